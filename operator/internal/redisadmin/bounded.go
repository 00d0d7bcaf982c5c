package redisadmin

import (
	"bytes"
	"net"
	"strconv"
)

const (
	// mostAnswer is many times what a server says of itself. A server's image may be the user's, and the library makes room for as much as a
	// server says that it is going to say: for more than there is, the program ends.
	mostAnswer = 1 << 20
	// mostElements is how many an array has at most, and how many arrays come: those within each other are followed on the stack.
	mostElements = 1 << 10
	// mostHeader is the longest line: an error's sentence.
	mostHeader = 4 << 10
)

const errTooLong sentence = "the server's answer is too long to be that of a Redis"

// bounded is a connection to a server over which nothing comes that announces too much, and nothing goes while servers may be told nothing. It
// follows version 2 of Redis' protocol.
type bounded struct {
	net.Conn
	// mayTell is Client.MayTell.
	mayTell func() error
	// line is what has come of the line that is coming, payload how much of what a line announced is still to come.
	line    []byte
	payload int
	// arrays is how many have come.
	arrays int
}

func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.Conn.Read(into)
	if !b.follow(into[:n]) {
		return 0, errTooLong
	}
	return n, err
}

func (b *bounded) Write(said []byte) (int, error) {
	if b.mayTell != nil {
		if err := b.mayTell(); err != nil {
			return 0, err
		}
	}
	return b.Conn.Write(said)
}

// follow is whether what has come is in bounds.
func (b *bounded) follow(come []byte) bool {
	for len(come) > 0 {
		if b.payload > 0 {
			skipped := min(b.payload, len(come))
			b.payload, come = b.payload-skipped, come[skipped:]
			continue
		}
		end := bytes.IndexByte(come, '\n')
		if end < 0 {
			b.line = append(b.line, come...)
			return len(b.line) <= mostHeader
		}
		b.line, come = append(b.line, come[:end]...), come[end+1:]
		if len(b.line) > mostHeader || !b.announced() {
			return false
		}
		b.line = b.line[:0]
	}
	return true
}

// announced reads what a whole line announces, and is whether that is in bounds.
func (b *bounded) announced() bool {
	line := bytes.TrimSuffix(b.line, []byte("\r"))
	if len(line) == 0 {
		return true
	}
	switch line[0] {
	case '+', '-', ':':
		return true
	case '$':
		length, err := strconv.Atoi(string(line[1:]))
		b.payload = length // then comes an empty line; -1 is the length of none
		return err == nil && length <= mostAnswer
	case '*':
		length, err := strconv.Atoi(string(line[1:]))
		b.arrays++
		return err == nil && length <= mostElements && b.arrays <= mostElements
	}
	return false // of another version of the protocol, which the library would follow further than this does
}
