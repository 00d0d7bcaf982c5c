package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

const (
	// pairGap is how long the second thing comes after the first: long before the fleet is over that one.
	pairGap = time.Second
	// badTime is how long an image that cannot be had stays, and how long a pod that is deleted meanwhile is left alone.
	badTime = 5 * time.Second
	// pairP99 is the longest p99 of these events: with two pods gone in turn, some users meet both.
	pairP99 = time.Second
)

// act is something that a user does to a fleet.
type act func(context.Context, *subject) error

// pairs are events of two things at once, each of which loses nothing when it is alone. Each is done to fleets of 3 and of 2
// pods, and its name says to which. What scales goes from one to the other and is the last of a size.
func pairs() []event {
	kinds := []struct {
		name string
		do   act
	}{
		{"evict-change", inTurn(evictLowest, change)},
		{"delete-change", inTurn(deleteLowest, change)},
		{"change-change", changeAndBack},
		{"bad-image", badImage},
		{"scale-change", inTurn(rescaleAndChange)},
		{"scale-then-change", inTurn(rescale, change)},
		{"restart-scale", inTurn(restart, rescale)},
	}
	var all []event
	for _, replicas := range []int{3, 2} {
		for _, kind := range kinds {
			all = append(all, event{
				name: fmt.Sprintf("%s-%d", kind.name, replicas), group: paired, replicas: replicas,
				maxP99: pairP99, do: each(kind.do), judge: planned,
			})
		}
	}
	return all
}

// inTurn does some things, each a moment after the one before, and waits until every pod was replaced.
func inTurn(acts ...act) act {
	return func(ctx context.Context, s *subject) error {
		before, err := s.Lives(ctx)
		if err != nil {
			return err
		}
		for i, act := range acts {
			if i > 0 {
				if err := fleet.Pause(ctx, pairGap); err != nil {
					return err
				}
			}
			if err := act(ctx, s); err != nil {
				return err
			}
		}
		return s.Replaced(ctx, before)
	}
}

func evictLowest(ctx context.Context, s *subject) error {
	if err := s.take(ctx, s.lowest); err != nil {
		return err
	}
	return s.Evict(ctx, s.lowest)
}

// deleteLowest deletes a pod and does not wait until it is gone.
func deleteLowest(ctx context.Context, s *subject) error {
	return s.delete(ctx, s.lowest, "--wait=false")
}

func change(ctx context.Context, s *subject) error {
	s.Rollout++
	return s.Apply(ctx)
}

// rescale goes from 3 pods to 2, and from 2 to 3.
func rescale(ctx context.Context, s *subject) error {
	return scaleTo(otherSize(s.Replicas))(ctx, s)
}

// rescaleAndChange does both with one write.
func rescaleAndChange(ctx context.Context, s *subject) error {
	s.Replicas = otherSize(s.Replicas)
	return change(ctx, s)
}

func otherSize(replicas int) int { return 5 - replicas }

func restart(ctx context.Context, s *subject) error {
	_, err := s.In(ctx, "", "rollout", "restart", "statefulset/"+fleet.Name)
	return err
}

// changeAndBack rolls out another image, and the one before again while some pods have this one and some that one.
func changeAndBack(ctx context.Context, s *subject) error {
	before, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	old := s.Image
	s.Image = s.OtherImage()
	err = s.Apply(ctx)
	s.Image = old
	if err != nil {
		return err
	}
	if err := s.midway(ctx, before); err != nil {
		return err
	}
	return s.Apply(ctx)
}

// badImage rolls out an image that nobody can pull, has a pod deleted while that one's place is empty, and takes the image
// back. Of three pods it is one that serves, so that there is still one to hand its users to. Of two it is the one with the
// bad image, as people do who look at what hangs: to delete the only one that is left would be no fault of the operator.
func badImage(ctx context.Context, s *subject) error {
	before, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	good := s.Image
	s.Image = good + "-that-nobody-has"
	err = s.Apply(ctx)
	s.Image = good
	if err := errors.Join(err, fleet.Pause(ctx, badTime)); err != nil {
		return err
	}
	victim, err := s.newcomer(ctx, before)
	if err != nil {
		return err
	}
	if s.Replicas > 2 {
		victim = s.lowest
	}
	if err := s.delete(ctx, victim, "--wait=false"); err != nil {
		return err
	}
	if err := fleet.Pause(ctx, badTime); err != nil {
		return err
	}
	return s.Apply(ctx)
}

// newcomer waits for a pod that was not there before.
func (s *subject) newcomer(ctx context.Context, before map[string]types.UID) (string, error) {
	var name string
	err := fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
		pods, err := s.ListPods(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return before[pod.Name] != pod.UID })
		if i < 0 {
			return errors.New("the rollout has not replaced a pod")
		}
		name = pods[i].Name
		return nil
	})
	return name, err
}
