package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// killGap is how long the second pod is killed after the first.
const killGap = 5 * time.Second

// killingEvents are beside the plain one. Without copies of stashes each loses what the killed pods had.
func killingEvents(o options) []event {
	all := []event{
		{name: "kill-twice", do: each(killTwo)},
		{name: "kill-rollout", do: each(killInRollout(oldPod))},
		{name: "kill-surge", do: each(killInRollout(additionalPod))},
	}
	for i := range all {
		all[i].group, all[i].replicas, all[i].needsNode, all[i].judge = killing, 3, true, onlyWithCopies(o)
	}
	return all
}

// killed is an event that loses what only the killed pod had: with ETS its sessions, unless other pods have copies,
// else nothing.
func killed(o options) func(string, crowd.Report) string {
	return func(adapter string, r crowd.Report) string {
		if adapter != "ETS" || o.Shadows(adapter) {
			return planned(adapter, r)
		}
		for address, pod := range r.Pods {
			if pod.Lost > 0 && address != lowest(r) {
				return fmt.Sprintf("%d sessions lost of %s, which was not killed", pod.Lost, address)
			}
		}
		return ""
	}
}

// onlyWithCopies events lose nothing where there are copies of stashes; else whoever was moved to a killed pod is lost
// with it.
func onlyWithCopies(o options) func(string, crowd.Report) string {
	return func(adapter string, r crowd.Report) string {
		if adapter == "ETS" && !o.Shadows(adapter) {
			return ""
		}
		return planned(adapter, r)
	}
}

func killPod(ctx context.Context, s *subject) error { return s.kill(ctx, s.lowest) }

func killTwo(ctx context.Context, s *subject) error {
	restarted, err := s.killed(ctx, s.lowest)
	if err != nil {
		return err
	}
	if err := fleet.Pause(ctx, killGap); err != nil {
		return err
	}
	if err := s.kill(ctx, s.highest); err != nil {
		return err
	}
	return restarted(ctx)
}

// killInRollout kills the chosen pod when the first pod of a rollout was replaced.
func killInRollout(choose func(ctx context.Context, s *subject, before map[string]bool) (string, error)) act {
	return func(ctx context.Context, s *subject) error {
		before, err := s.Lives(ctx)
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for name := range before {
			names[name] = true
		}
		s.Rollout++
		if err := s.Apply(ctx); err != nil {
			return err
		}
		if err := s.midway(ctx, before); err != nil {
			return err
		}
		name, err := choose(ctx, s, names)
		if err != nil {
			return err
		}
		s.remark("killed %s", name)
		if _, err := s.killed(ctx, name); err != nil {
			return err
		}
		return s.Replaced(ctx, before)
	}
}

// oldPod is the one that a rollout replaces last.
func oldPod(_ context.Context, s *subject, _ map[string]bool) (string, error) { return s.lowest, nil }

// additionalPod is the one that was made for the rollout.
func additionalPod(ctx context.Context, s *subject, before map[string]bool) (string, error) {
	pods, err := s.ListPods(ctx)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		if !before[pod.Name] {
			return pod.Name, nil
		}
	}
	return "", errors.New("the rollout made no additional pod")
}

// kill kills a pod's BEAM and waits until the kubelet has started it again.
func (s *subject) kill(ctx context.Context, name string) error {
	restarted, err := s.killed(ctx, name)
	if err != nil {
		return err
	}
	return restarted(ctx)
}

// killed kills a pod's BEAM. What it returns waits until the kubelet has started it again.
func (s *subject) killed(ctx context.Context, name string) (restarted func(context.Context) error, err error) {
	before, err := s.restarts(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.Kill(ctx, name, fleet.AppContainer, fleet.Beam); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
			now, err := s.restarts(ctx, name)
			if err == nil && now == before {
				return fmt.Errorf("the container of pod %s was not restarted", name)
			}
			return err
		})
	}, s.users.effect(ctx)
}

func (s *subject) restarts(ctx context.Context, name string) (int32, error) {
	pod, err := s.Pod(ctx, name)
	if err != nil {
		return 0, err
	}
	app, err := fleet.Container(pod, fleet.AppContainer)
	return app.RestartCount, err
}
