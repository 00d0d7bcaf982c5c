package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reminder is how long a step may be silent.
const reminder = 5 * time.Second

// progress prints one line for each step, with the seconds since the start.
type progress struct {
	mutex sync.Mutex
	out   io.Writer
	start time.Time
}

func (p *progress) step(format string, args ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write passes on what started programs say.
func (p *progress) Write(text []byte) (int, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.out.Write(text)
}

// remind prints how far the step is, every few seconds until stop is called.
func (p *progress) remind(howFar func() string) (stop func()) {
	ticker, done := time.NewTicker(reminder), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-ticker.C:
				p.step("  %s", howFar())
			case <-done:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		ended.Wait()
	}
}
