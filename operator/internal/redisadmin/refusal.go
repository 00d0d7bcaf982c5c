package redisadmin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/livestash-dev/livestash/operator/internal/fencing"
)

// sentence is an error in words of this package.
type sentence string

func (s sentence) Error() string { return string(s) }

// answerCodes are how answers begin that a Redis gives whatever it was sent.
var answerCodes = map[string]bool{
	"WRONGPASS": true, "NOAUTH": true, "NOPERM": true, "LOADING": true, "READONLY": true, "MASTERDOWN": true, "NOREPLICAS": true, "BUSY": true, "OOM": true, "MISCONF": true,
}

// unquoted is an error that tells nothing of what was sent, and nothing that a server says: its image may be the user's, and who answers
// need not be that server. A Redis repeats what it does not understand, or its beginning, passwords included. So does the library with an
// answer that it does not understand, and Go with names in a certificate.
func unquoted(err error) error { return &unquotedError{err} }

type unquotedError struct{ err error }

func (u *unquotedError) Unwrap() error { return u.err }

func (u *unquotedError) Error() string {
	var own sentence
	var answer redis.Error
	var network net.Error
	var record tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(u.err, fencing.ErrExpired):
		return fencing.ErrExpired.Error()
	case errors.As(u.err, &own):
		return own.Error()
	case errors.As(u.err, &answer):
		if code, _, _ := strings.Cut(answer.Error(), " "); answerCodes[code] {
			return "it answers " + code + ": see its log"
		}
		return "it does not understand, or refuses, what the operator asks: see its log"
	case errors.As(u.err, new(x509.HostnameError)):
		return "its certificate is for another name"
	case errors.As(u.err, new(x509.UnknownAuthorityError)):
		return "its certificate is signed by another authority"
	case errors.As(u.err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not yet valid"
	case errors.As(u.err, &record):
		return record.Error()
	case errors.As(u.err, &network):
		return network.Error()
	case errors.Is(u.err, io.EOF):
		return "it closes the connection"
	case errors.Is(u.err, context.Canceled):
		return context.Canceled.Error()
	}
	return "it does not answer as a Redis does"
}
