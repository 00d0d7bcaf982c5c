package cli

import (
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// lookAgain is after how long a terminal is asked for its size again. Not by a signal, which not every system has.
const lookAgain = 500 * time.Millisecond

// terminalSize tells whenever a terminal has another size.
type terminalSize struct {
	file int
	last remotecommand.TerminalSize
	stop chan struct{}
}

// watchSize watches a terminal until the function is called.
func watchSize(file int) (*terminalSize, func()) {
	size := &terminalSize{file: file, stop: make(chan struct{})}
	return size, sync.OnceFunc(func() { close(size.stop) })
}

// Next waits for another size than the last one. Nil: it is over.
func (s *terminalSize) Next() *remotecommand.TerminalSize {
	for {
		width, height, err := term.GetSize(s.file)
		now := remotecommand.TerminalSize{Width: uint16(min(max(width, 0), 1<<16-1)), Height: uint16(min(max(height, 0), 1<<16-1))}
		if err == nil && now != s.last {
			s.last = now
			return &now
		}
		select {
		case <-s.stop:
			return nil
		case <-time.After(lookAgain):
		}
	}
}
