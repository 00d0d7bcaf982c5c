package cluster

import (
	"context"
	"fmt"
	"io"
	"time"
)

const (
	pollInterval = 100 * time.Millisecond
	// reminder is how long a wait may be silent.
	reminder = 5 * time.Second
)

// progress prints one line for each step, with the seconds since the start.
type progress struct {
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: out, start: time.Now()} }

func (p *progress) step(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// during says from time to time that the work still goes on.
func (p *progress) during(what string, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	reminders := time.NewTicker(reminder)
	defer reminders.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-reminders.C:
			p.step("  still %s", what)
		}
	}
}

// wait asks until there is nothing left to wait for, at most for the limit. ask returns what is missing, or nothing when
// all is there; an error ends the wait at once.
func (p *progress) wait(ctx context.Context, what string, limit time.Duration, ask func(context.Context) (missing string, err error)) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	reminders := time.NewTicker(reminder)
	defer reminders.Stop()
	polls := time.NewTicker(pollInterval)
	defer polls.Stop()
	missing := ""
	for {
		now, err := ask(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if now == "" {
			return nil
		}
		if ctx.Err() == nil || missing == "" {
			missing = now
		}
		select {
		case <-ctx.Done():
			if caller.Err() != nil {
				return fmt.Errorf("interrupted while waiting for %s", what)
			}
			return fmt.Errorf("%s: not there after %s: %s", what, limit, missing)
		case <-reminders.C:
			p.step("  still waiting for %s: %s", what, missing)
		case <-polls.C:
		}
	}
}
