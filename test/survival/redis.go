package main

import (
	"context"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

func restartRedis(ctx context.Context, s *subject) error {
	return s.withoutRedis(ctx, func(pod string) error {
		_, err := s.In(ctx, "", "delete", "pod", pod, "--timeout=2m")
		return err
	})
}

func killRedis(ctx context.Context, s *subject) error {
	return s.withoutRedis(ctx, func(pod string) error { return s.Kill(ctx, pod, s.RedisContainer(), fleet.RedisProcess) })
}

// withoutRedis takes Redis away and returns when sessions can be asked for the count that was acknowledged last.
//
// That is not as soon as Redis is back. LiveStash acknowledges a stash also when Redis did not take it: an acknowledgement
// says that the process behind the page has the state. Redis gets it, all of it, with that page's next stash. Until then, a
// user who comes back by another connection finds what Redis got last, which is older than what was acknowledged; to expect
// more of LiveStash would be wrong, and to count that as recovered too. So sessions go on stashing while Redis is away, and
// the event lasts until each of those that stash has done so once more. From then on no session may miss anything, and with
// persistence neither may those that are idle, for which nothing but Redis' file speaks.
//
// Who comes back while Redis is away finds nothing at all; no socket is closed by these events, so nobody does.
func (s *subject) withoutRedis(ctx context.Context, takeAway func(pod string) error) error {
	before, err := s.RedisLife(ctx)
	if err != nil {
		return err
	}
	pod, err := s.RedisPod(ctx)
	if err != nil {
		return err
	}
	taken := time.Now()
	if err := takeAway(pod); err != nil {
		return err
	}
	err = fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
		now, err := s.RedisLife(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("pod %s was not restarted", pod)
		}
		if err != nil {
			return err
		}
		return s.ConditionsHold(ctx)
	})
	if err != nil {
		return err
	}
	away := time.Since(taken)
	s.remark("Redis was away for %.0f s", away.Seconds())
	if err := fleet.Pause(ctx, fleet.UntilConnected(away)); err != nil {
		return err
	}
	return s.restash(ctx)
}

// restash waits until every session that stashes every now and then has stashed once more.
func (s *subject) restash(ctx context.Context) error {
	if err := s.Order(ctx, "restash", nil); err != nil {
		return err
	}
	return fleet.Eventually(ctx, s.patience()+2*s.options.stashEvery, func(ctx context.Context) error {
		report, err := s.ask(ctx)
		if err == nil && report.Outdated > 0 {
			err = fmt.Errorf("%d sessions have not stashed since Redis is back", report.Outdated)
		}
		return err
	})
}

// redisRestarted is the verdict on an event that restarts Redis. Without persistence it comes back empty: lost are those who
// do not stash again.
func redisRestarted(o options) func(string, crowd.Report) string {
	if o.Persistence {
		return planned
	}
	return func(_ string, r crowd.Report) string {
		if busy := r.Lost - r.LostIdle; busy > 0 {
			return fmt.Sprintf("%d sessions lost that had stashed again", busy)
		}
		return ""
	}
}
