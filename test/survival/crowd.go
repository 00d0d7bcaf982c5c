package main

import (
	"context"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

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
		StashEveryMS: int(s.options.stashEvery / time.Millisecond), Hidden: hiddenTabs,
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
