package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The waits of a kubelet between two starts of a container that ends: none, then firstWait, and each time twice as long.
const (
	firstWait = 10 * time.Second
	mostWait  = 5 * time.Minute
)

// replica is a pod of the operator: what ends is started again, as a kubelet does it.
type replica struct {
	name       string
	kubeconfig string
	b          *bench
	// ends counts the operators that have ended by themselves.
	ends atomic.Int64

	mutex   sync.Mutex
	now     *operator
	starts  int
	killed  bool
	wait    time.Duration
	stopped chan struct{}
	err     error
}

// startReplica runs operators, one after the other, until ctx ends. done waits for its end.
func (b *bench) startReplica(ctx context.Context, name, kubeconfig string) *replica {
	r := &replica{name: name, kubeconfig: kubeconfig, b: b, stopped: make(chan struct{})}
	go func() {
		defer close(r.stopped)
		r.err = r.live(ctx)
	}()
	return r
}

// done waits until the last operator has ended, after the context has.
func (r *replica) done() error {
	<-r.stopped
	return r.err
}

func (r *replica) live(ctx context.Context) error {
	for ctx.Err() == nil {
		one, err := r.start()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			one.stop()
			return nil
		case <-one.ended:
		}
		_ = sleepUntil(ctx, time.Now().Add(r.pause()))
	}
	return nil
}

func (r *replica) start() (*operator, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.starts++
	one, err := r.b.startOperator(r.kubeconfig, fmt.Sprintf("operator-%s-%d.log", r.name, r.starts))
	r.now = one
	return one, err
}

// pause is how long it takes until the next start. One that was killed by the measurement is a pod that was deleted: another one takes its
// place at once.
func (r *replica) pause() time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.now = nil
	if r.killed {
		r.killed = false
		return 0
	}
	r.ends.Add(1)
	wait := r.wait
	r.wait = min(max(2*wait, firstWait), mostWait)
	return wait
}

// rest forgets that operators have ended before.
func (r *replica) rest() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.wait = 0
	r.ends.Store(0)
}

// running is the operator that runs; nil between two.
func (r *replica) running() *operator {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.now
}

// kill ends the operator with SIGKILL, if one runs.
func (r *replica) kill() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.now != nil {
		r.killed = true
		_ = r.now.Kill() // it may have ended in this moment
	}
}

// leader is the replica that leads, by its own word; nil when none does.
func leader(ctx context.Context, replicas []*replica) *replica {
	for _, r := range replicas {
		if one := r.running(); one != nil && one.leads(ctx) {
			return r
		}
	}
	return nil
}

// awaitFollower waits until the replica runs and knows that it does not lead.
func awaitFollower(ctx context.Context, r *replica) error {
	for {
		if one := r.running(); one != nil && one.follows(ctx) {
			return nil
		}
		if err := sleepUntil(ctx, time.Now().Add(pollInterval)); err != nil {
			return err
		}
	}
}

// awaitLeader waits until one leads that is not that one.
func awaitLeader(ctx context.Context, replicas []*replica, not *replica) (*replica, error) {
	for {
		if r := leader(ctx, replicas); r != nil && r != not {
			return r, nil
		}
		if err := sleepUntil(ctx, time.Now().Add(pollInterval)); err != nil {
			return nil, err
		}
	}
}
