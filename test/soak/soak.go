package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/eventlog"
	"github.com/livestash-dev/livestash/test/soak/ledger"
	"github.com/livestash-dev/livestash/test/soak/schedule"
)

const (
	// progressEvery is how often a run says how far it is.
	progressEvery = 30 * time.Second
	// eventTime bounds one event.
	eventTime = 5 * time.Minute
)

// soak is one fleet in a run.
type soak struct {
	*fleet.Fleet
	options options
	out     io.Writer
	steps   []schedule.Step
	pods    *podLog
	began   time.Time

	// spec guards what the fleet's spec asks for.
	spec sync.Mutex
	// bad is how many events want an image that nobody can pull.
	bad int
	// redis guards redisAway, how many events have Redis away.
	redis     sync.Mutex
	redisAway int

	mu   sync.Mutex
	done []*done
}

// done is an event that was done.
type done struct {
	eventlog.Event
	what string
	// err is why it could not be done.
	err error
}

// run goes through a schedule with a fleet of each adapter, one after the other or all at once.
func run(ctx context.Context, o options, out io.Writer) ([]*result, error) {
	c, err := fleet.Open()
	if err != nil {
		return nil, err
	}
	if err := fleet.InstallOperator(ctx, o.Tag); err != nil {
		return nil, err
	}
	var results []*result
	var failed []error
	for group := range slices.Chunk(o.adapters, o.atOnce()) {
		fleets := make([]*soak, len(group))
		for i, adapter := range group {
			fleets[i] = &soak{Fleet: fleet.New(c, o.Options, "soak", adapter), options: o, out: out, steps: o.schedule(adapter)}
		}
		done, err := goThroughAll(ctx, fleets)
		results, failed = append(results, done...), append(failed, err)
	}
	if !o.keep {
		failed = append(failed, fleet.UninstallOperator(context.WithoutCancel(ctx)))
	}
	return results, errors.Join(append(failed, ctx.Err())...)
}

// goThroughAll is everything with some fleets at the same time. Those that have a result have one also when others fail.
func goThroughAll(ctx context.Context, fleets []*soak) ([]*result, error) {
	results, errs := make([]*result, len(fleets)), make([]error, len(fleets))
	var running sync.WaitGroup
	for i, s := range fleets {
		running.Go(func() {
			r, err := s.run(ctx)
			if !s.options.keep {
				// Also when the run was stopped: a cluster of the user's own stays as it was.
				err = errors.Join(err, s.Remove(context.WithoutCancel(ctx)))
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Adapter, err)
			}
			results[i], errs[i] = r, err
		})
	}
	running.Wait()
	return slices.DeleteFunc(results, func(r *result) bool { return r == nil }), errors.Join(errs...)
}

// run is everything with one fleet. It has a result as soon as there were users.
func (s *soak) run(ctx context.Context) (*result, error) {
	s.say("%d pods, then %d users, then %d events in %g minutes", s.options.pods, s.options.users, len(s.steps), s.options.minutes)
	if err := s.Ensure(ctx, s.options.pods); err != nil {
		return nil, fmt.Errorf("bring the fleet up: %w", err)
	}
	if err := s.OpenUsers(ctx, s.options.users, s.options.seed); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	if s.pods, err = s.watchPods(watching); err != nil {
		return nil, err
	}
	s.began = time.Now()
	telling := s.tellProgress(watching)
	s.goThrough(ctx)
	unsettled := s.end(ctx)
	if unsettled != nil {
		s.say("the fleet did not settle: %v", unsettled)
	}
	s.say("every user comes back once more")
	unchecked, err := s.CheckUsers(ctx)
	stop()
	<-telling
	if err != nil {
		return nil, err
	}
	report, err := s.Users(ctx)
	if err != nil {
		return nil, err
	}
	// Who is not back is not known any better than who found nothing.
	report.Verdicts[ledger.Lost] += unchecked
	return s.result(report, unchecked, unsettled), s.StopUsers(ctx)
}

// goThrough does every step at its time, whatever became of those before, and waits until all are over.
func (s *soak) goThrough(ctx context.Context) {
	var running sync.WaitGroup
	for _, step := range s.steps {
		if fleet.Pause(ctx, time.Until(s.began.Add(step.At))) != nil {
			break
		}
		running.Go(func() { s.do(ctx, step) })
	}
	// Events that are undone are so also when the run was stopped.
	running.Wait()
}

func (s *soak) do(ctx context.Context, event schedule.Step) {
	ctx, cancel := context.WithTimeout(ctx, eventTime)
	defer cancel()
	d := &done{Event: eventlog.Event{Kind: event.Kind, Pods: s.pods.named(event.Pods), Start: time.Now()}, what: event.String()}
	if event.Kind == schedule.Kill {
		d.Alone = s.pods.alone(d.Pods)
	}
	s.mu.Lock()
	s.done = append(s.done, d)
	s.mu.Unlock()
	s.say("%s", d.what)
	err := actions[event.Kind](ctx, s, step{event, d.Pods})
	s.mu.Lock()
	defer s.mu.Unlock()
	d.End, d.err = time.Now(), err
	if err != nil {
		s.say("%s: %v", d.what, err)
	}
}

// end asks for the number of pods of the beginning, and waits until the fleet has settled.
func (s *soak) end(ctx context.Context) error {
	s.say("the last event is over; the fleet settles")
	err := s.change(ctx, func() { s.Replicas = s.options.pods })
	if err != nil {
		return err
	}
	return s.Settled(ctx)
}

// tellProgress says every now and then how far the run is, until the context ends. The returned channel is closed then.
func (s *soak) tellProgress(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for fleet.Pause(ctx, progressEvery) == nil {
			r, err := s.UsersProgress(ctx)
			if err != nil {
				continue
			}
			s.say("    %d of %d users are away; %d stashes, %d returns, %d stale, %d lost", r.Away, r.Users, r.Stashes, r.Returns,
				r.Verdicts[ledger.Stale], r.Verdicts[ledger.Lost])
		}
	}()
	return over
}

func (s *soak) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "%s %-13s  %s\n", time.Now().Format(time.TimeOnly), s.Adapter, fmt.Sprintf(format, args...))
}
