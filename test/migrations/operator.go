package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"time"
)

// mortal is an operator that is killed again and again.
type mortal struct {
	program string
	// life is how long one lives in the mean.
	life   time.Duration
	chance *rand.Rand
	log    io.Writer
	// kills is how many were killed so far, ends how many have ended by themselves, because the API server did not answer.
	kills, ends int
}

// live runs one operator after the other until the context ends, each until it is killed with SIGKILL.
func (m *mortal) live(ctx context.Context) error {
	for ctx.Err() == nil {
		operator := exec.Command(m.program, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
		operator.Stdout, operator.Stderr = m.log, m.log
		if err := operator.Start(); err != nil {
			return fmt.Errorf("starting the operator: %w", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- operator.Wait() }()
		select {
		case err := <-ended:
			if err == nil {
				return errors.New("the operator has ended by itself, and well")
			}
			m.ends++
			time.Sleep(time.Second)
			continue
		case <-ctx.Done():
		case <-time.After(time.Duration(m.chance.Int64N(2 * int64(m.life)))):
			m.kills++
		}
		if err := operator.Process.Kill(); err != nil {
			return fmt.Errorf("killing the operator: %w", err)
		}
		if err := <-ended; err == nil {
			return errors.New("the operator ended well though it was killed")
		}
	}
	return nil
}
