package main

import (
	"context"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// users are those who have sessions on a fleet.
type users interface {
	// open opens the sessions. hidden are those that come back only when they are checked.
	open(ctx context.Context, hidden bool) error
	// begin says that from now on sockets are closed by the event, effect that from now on they are by what it has done.
	begin(ctx context.Context) error
	effect(ctx context.Context) error
	// verify has every session checked, and returns what they found.
	verify(ctx context.Context) (crowd.Report, error)
	// stop ends all sessions. It is called whatever has failed.
	stop(ctx context.Context) error
}

// newSubject is a fleet with the users that the options ask for: by themselves a crowd in a pod of the cluster.
func newSubject(f *fleet.Fleet, o options, skipped string) *subject {
	s := &subject{Fleet: f, options: o, skipped: skipped}
	if s.users = s; o.tabs > 0 {
		s.users = &tabs{subject: s}
	}
	return s
}

func (s *subject) begin(ctx context.Context) error  { return s.Order(ctx, "begin", nil) }
func (s *subject) effect(ctx context.Context) error { return s.Order(ctx, "effect", nil) }
func (s *subject) stop(ctx context.Context) error   { return s.Order(ctx, "stop", nil) }

// ask gets the sessions' report.
func (s *subject) ask(ctx context.Context) (crowd.Report, error) {
	var report crowd.Report
	err := s.Ask(ctx, "report", &report)
	return report, err
}

// open opens the sessions, round robin over the pods, in tabs that are shown or in hidden ones.
func (s *subject) open(ctx context.Context, hiddenTabs bool) error {
	if err := s.ClientReady(ctx); err != nil {
		return err
	}
	pods, service, host, err := s.Addresses(ctx)
	if err != nil {
		return err
	}
	err = s.Order(ctx, "open", crowd.Plan{
		Adapter: fleet.Adapters[s.Adapter], Sessions: s.options.sessions, Host: host, Pods: pods, Service: service,
		StashEveryMS: int(s.options.stashEvery / time.Millisecond), Hidden: hiddenTabs, YoungMS: int(s.options.Young(s.Adapter) / time.Millisecond),
	})
	if err != nil {
		return err
	}
	return s.reached(ctx, crowd.Opened)
}

// verify has every session checked, and returns what they found.
func (s *subject) verify(ctx context.Context) (crowd.Report, error) {
	within := s.patience()
	if err := s.Order(ctx, "verify", map[string]any{"withinMs": within.Milliseconds()}); err != nil {
		return crowd.Report{}, err
	}
	if err := s.reached(ctx, crowd.Verified); err != nil {
		return crowd.Report{}, err
	}
	return s.ask(ctx)
}

// patience is how long opening or checking all sessions may take.
func (s *subject) patience() time.Duration {
	return 2*time.Minute + time.Duration(s.options.sessions)*30*time.Millisecond
}

func (s *subject) reached(ctx context.Context, phase crowd.Phase) error {
	var problem error
	err := fleet.Eventually(ctx, s.patience()+30*time.Second, func(ctx context.Context) error {
		report, err := s.ask(ctx)
		if err != nil {
			return err
		}
		if report.Problem != "" {
			problem = fmt.Errorf("%s's sessions: %s (failed attempts: %v)", s.Adapter, report.Problem, report.FailedAttempts)
			return nil
		}
		if report.Phase != phase {
			return fmt.Errorf("%s's sessions are %s, not %s: %d of %d ready", s.Adapter, report.Phase, phase, report.Ready, report.Sessions)
		}
		return nil
	})
	if problem != nil {
		return problem
	}
	return err
}

// restash waits until every session that stashes every now and then has stashed once more.
func (s *subject) restash(ctx context.Context) error {
	if err := s.Order(ctx, "restash", nil); err != nil {
		return err
	}
	return fleet.Eventually(ctx, s.patience()+2*s.options.stashEvery, func(ctx context.Context) error {
		report, err := s.ask(ctx)
		if err == nil && report.Outdated > 0 {
			err = fmt.Errorf("%d sessions have not stashed since the store is back", report.Outdated)
		}
		return err
	})
}
