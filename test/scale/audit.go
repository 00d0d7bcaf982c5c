package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/livestash-dev/livestash/test/internal/audit"
)

// request is one request of the operator, as the API server's audit log has it.
type request struct {
	received time.Time
	verb     string
	// target is what was asked for: a resource with its subresource, for example livestashclusters/status, or the path
	// of a request for something else.
	target string
	// code is the HTTP status of the answer.
	code int
}

// isRenewal is whether an operator that has nothing to do makes this request: it keeps its lease and its watches.
func (r request) isRenewal() bool { return r.verb == "watch" || r.target == "leases" }

// auditLog follows the audit log of an API server and keeps the requests of one account.
type auditLog struct {
	path    string
	account string
	// offset is how much of the file has been read, always the start of a line.
	offset   int64
	requests []request
}

// read takes in what was added to the file since the last call.
func (l *auditLog) read() error {
	file, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(l.offset, io.SeekStart); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	reader := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what is left is half a line: the next call reads it
		}
		if err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		l.offset += int64(len(line))
		if err := l.add(line); err != nil {
			return fmt.Errorf("audit log, before byte %d: %w", l.offset, err)
		}
	}
}

func (l *auditLog) add(line []byte) error {
	event, err := audit.Read(line, l.account)
	if event == nil {
		return err
	}
	seen := request{received: event.RequestReceivedTimestamp, verb: event.Verb, target: event.Target(), code: event.ResponseStatus.Code}
	if seen.target == "" {
		seen.target, _, _ = strings.Cut(event.RequestURI, "?")
	}
	l.requests = append(l.requests, seen)
	return nil
}

// between are the requests received from the one time until before the other, without the renewals.
func (l *auditLog) between(from, until time.Time) []request {
	var found []request
	for _, r := range l.requests {
		if !r.isRenewal() && !r.received.Before(from) && r.received.Before(until) {
			found = append(found, r)
		}
	}
	return found
}

// last is when the last request was received that is no renewal. Zero when there is none.
func (l *auditLog) last() time.Time {
	var last time.Time
	for _, r := range l.requests {
		if !r.isRenewal() && r.received.After(last) {
			last = r.received
		}
	}
	return last
}
