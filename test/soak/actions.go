package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/schedule"
)

// nobodysImage is what makes a tag one that nobody can pull.
const nobodysImage = "-that-nobody-has"

// step is an event with the names of the pods that it is done to.
type step struct {
	schedule.Step
	pods []string
}

// action does an event, and undoes it when it is one of those that are undone. It does not wait for what becomes of the fleet.
type action func(ctx context.Context, s *soak, step step) error

var actions = map[schedule.Kind]action{
	schedule.Image: func(ctx context.Context, s *soak, _ step) error {
		return s.change(ctx, func() { s.Image = s.OtherImage() })
	},
	schedule.ConfigChange: func(ctx context.Context, s *soak, _ step) error {
		return s.change(ctx, func() { s.Rollout++ })
	},
	schedule.BadImage: func(ctx context.Context, s *soak, step step) error {
		err := s.change(ctx, func() { s.bad++ })
		err = errors.Join(err, fleet.Pause(ctx, step.Hold))
		return errors.Join(err, s.change(context.WithoutCancel(ctx), func() { s.bad-- }))
	},
	schedule.Delete:    deletePods,
	schedule.DeleteTwo: deletePods,
	schedule.DeleteAll: func(ctx context.Context, s *soak, _ step) error {
		return s.kubectlDelete(ctx, "pod", "--selector", fleet.Selector, "--wait=false")
	},
	schedule.Evict: func(ctx context.Context, s *soak, step step) error {
		return s.Evict(ctx, step.pods[0])
	},
	schedule.Scale: func(ctx context.Context, s *soak, step step) error {
		return s.change(ctx, func() { s.Replicas = step.Replicas })
	},
	schedule.Restart: func(ctx context.Context, s *soak, _ step) error {
		_, err := s.In(ctx, "", "rollout", "restart", "statefulset/"+fleet.Name)
		return err
	},
	schedule.Operator: func(ctx context.Context, s *soak, _ step) error {
		return s.DeleteOperator(ctx, "--wait=false")
	},
	schedule.Redis: func(ctx context.Context, s *soak, _ step) error {
		return s.withoutRedis(ctx, func(pod string) error { return s.kubectlDelete(ctx, "pod", pod, "--wait=false") })
	},
	schedule.Password: func(ctx context.Context, s *soak, _ step) error {
		return s.kubectlDelete(ctx, "secret", fleet.Name+"-redis", "--ignore-not-found")
	},
	schedule.Certificate: func(ctx context.Context, s *soak, _ step) error {
		return s.kubectlDelete(ctx, "secret", fleet.Name+"-distribution-tls", "--ignore-not-found")
	},
	schedule.Kill: func(ctx context.Context, s *soak, step step) error {
		return begun(s.Kill(ctx, step.pods[0], fleet.AppContainer, fleet.Beam))
	},
	schedule.Freeze: func(ctx context.Context, s *soak, step step) error {
		thaw, err := s.Freeze(ctx, step.pods[0], fleet.AppContainer, fleet.Beam)
		return hold(ctx, step, thaw, err)
	},
	schedule.Split: func(ctx context.Context, s *soak, step step) error {
		heal, err := s.Split(ctx, step.pods[0], step.pods[1])
		return hold(ctx, step, heal, err)
	},
	schedule.CutOff: func(ctx context.Context, s *soak, step step) error {
		heal, err := s.Cut(ctx, step.pods[0])
		return hold(ctx, step, heal, err)
	},
	schedule.Slow: func(ctx context.Context, s *soak, step step) error {
		heal, err := s.Slow(ctx, step.pods[0], step.pods[1])
		return hold(ctx, step, heal, err)
	},
	schedule.RedisKill: func(ctx context.Context, s *soak, _ step) error {
		return s.withoutRedis(ctx, func(pod string) error {
			return begun(s.Kill(ctx, pod, s.RedisContainer(), fleet.RedisProcess))
		})
	},
	schedule.RedisFreeze: func(ctx context.Context, s *soak, step step) error {
		return s.redisIsAway(ctx, func() error {
			pod, err := s.RedisPod(ctx)
			if err != nil {
				return err
			}
			thaw, err := s.Freeze(ctx, pod, s.RedisContainer(), fleet.RedisProcess)
			return hold(ctx, step, thaw, err)
		})
	},
}

// hold leaves what was done as it is for a while, and undoes it, also when the run was stopped.
func hold(ctx context.Context, step step, undo func() error, err error) error {
	if err != nil {
		return begun(err)
	}
	return errors.Join(fleet.Pause(ctx, step.Hold), undo())
}

// errNotBegun is an event that was not done at all, and so explains nothing.
var errNotBegun = errors.New("not done")

// begun marks the error of what would have begun an event.
func begun(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errNotBegun, err)
}

// change changes what the spec asks for, one after the other.
func (s *soak) change(ctx context.Context, change func()) error {
	s.spec.Lock()
	defer s.spec.Unlock()
	change()
	good := s.Image
	defer func() { s.Image = good }()
	if s.bad > 0 {
		s.Image += nobodysImage
	}
	return s.Apply(ctx)
}

func deletePods(ctx context.Context, s *soak, step step) error {
	return s.kubectlDelete(ctx, append([]string{"pod", "--wait=false", "--ignore-not-found"}, step.pods...)...)
}

func (s *soak) kubectlDelete(ctx context.Context, args ...string) error {
	_, err := s.In(ctx, "", append([]string{"delete"}, args...)...)
	return err
}

// withoutRedis takes Redis away and waits until it is back.
func (s *soak) withoutRedis(ctx context.Context, takeAway func(pod string) error) error {
	return s.redisIsAway(ctx, func() error {
		var before string
		err := fleet.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
			before, err = s.RedisLife(ctx)
			return err
		})
		if err != nil {
			return err
		}
		pod, err := s.RedisPod(ctx)
		if err != nil {
			return err
		}
		if err := takeAway(pod); err != nil {
			return err
		}
		return fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
			now, err := s.RedisLife(ctx)
			if err == nil && now == before {
				err = fmt.Errorf("pod %s was not restarted", pod)
			}
			return err
		})
	})
}

// redisIsAway tells the users that what is acknowledged during an event may not be in Redis, until the application must have its
// connection again.
func (s *soak) redisIsAway(ctx context.Context, event func() error) error {
	if err := s.tellRedisAway(ctx, 1); err != nil {
		return err
	}
	began := time.Now()
	err := event()
	err = errors.Join(err, fleet.Pause(ctx, fleet.UntilConnected(time.Since(began))))
	return errors.Join(err, s.tellRedisAway(context.WithoutCancel(ctx), -1))
}

func (s *soak) tellRedisAway(ctx context.Context, change int) error {
	s.redis.Lock()
	defer s.redis.Unlock()
	s.redisAway += change
	return s.Order(ctx, "soak/store", map[string]bool{"away": s.redisAway > 0})
}
