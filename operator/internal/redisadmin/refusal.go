package redisadmin

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusal is what a server answers when it does not do what it is told.
type refusal struct {
	answer redis.Error
	err    error
}

// unquoted is an error that tells nothing of what was sent. A server answers ERR to what it does not understand, and repeats it, or its
// beginning, passwords included. Other codes are about rights and states, and their words are Redis' own.
func unquoted(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	return &refusal{answer, err}
}

func (r *refusal) Error() string {
	code, words, _ := strings.Cut(r.answer.Error(), " ")
	if code == "ERR" || words == "" {
		return "it does not understand, or refuses, what the operator asks: see its log"
	}
	return r.answer.Error()
}

func (r *refusal) Unwrap() error { return r.err }
