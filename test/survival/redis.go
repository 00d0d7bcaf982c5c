package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// Who runs Redis, as in spec.redis.
const (
	managed  = "managed"
	operated = "operator"
)

const redisProcess = "redis-server"

// redis is spec.redis: one server that the operator runs, or a master with two replicas that redis-operator runs.
func (f *fleet) redis() map[string]any {
	spec := map[string]any{}
	if f.options.persistence {
		spec["persistence"] = map[string]any{}
	}
	return map[string]any{f.options.redis: spec}
}

func restartRedis(ctx context.Context, s *subject) error {
	return s.withoutRedis(ctx, func(pod string) error {
		_, err := s.in(ctx, "", "delete", "pod", pod, "--timeout=2m")
		return err
	})
}

func killRedis(ctx context.Context, s *subject) error {
	return s.withoutRedis(ctx, func(pod string) error { return s.kill(ctx, pod, s.redisContainer(), redisProcess) })
}

func (f *fleet) redisContainer() string {
	if f.options.redis == operated {
		return fleetName + "-redis-op"
	}
	return "redis"
}

// redisPod is the pod of the server that takes writes.
func (s *subject) redisPod(ctx context.Context) (string, error) {
	if s.options.redis == managed {
		return fleetName + "-redis-0", nil
	}
	master, err := s.in(ctx, "", "get", "pods", "-l", "livestash.dev/cluster="+fleetName+",redis-role=master", "-o", "jsonpath={.items[*].metadata.name}")
	if err == nil && len(strings.Fields(master)) != 1 {
		err = fmt.Errorf("pods %q are called master, want one", master)
	}
	return strings.TrimSpace(master), err
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
	before, err := s.redisLife(ctx)
	if err != nil {
		return err
	}
	pod, err := s.redisPod(ctx)
	if err != nil {
		return err
	}
	taken := time.Now()
	if err := takeAway(pod); err != nil {
		return err
	}
	err = eventually(ctx, settleTime, func(ctx context.Context) error {
		now, err := s.redisLife(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("pod %s was not restarted", pod)
		}
		if err != nil {
			return err
		}
		return s.conditionsHold(ctx)
	})
	if err != nil {
		return err
	}
	away := time.Since(taken)
	s.remark("Redis was away for %.0f s", away.Seconds())
	if err := pause(ctx, untilConnected(away)); err != nil {
		return err
	}
	return s.restash(ctx)
}

// untilConnected is how long an application may be without its connection when Redis has been away: Redix tries again after
// 0.5 s and then after one and a half times as long, up to 30 s, which is never more than half of the time that is over and
// 0.5 s. A second is for the attempt itself.
func untilConnected(away time.Duration) time.Duration {
	return min(away/2+500*time.Millisecond, 30*time.Second) + time.Second
}

// restash waits until every session that stashes every now and then has stashed once more.
func (s *subject) restash(ctx context.Context) error {
	if err := s.order(ctx, "restash", nil); err != nil {
		return err
	}
	return eventually(ctx, s.patience()+2*s.options.stashEvery, func(ctx context.Context) error {
		report, err := s.fleet.report(ctx)
		if err == nil && report.Outdated > 0 {
			err = fmt.Errorf("%d sessions have not stashed since Redis is back", report.Outdated)
		}
		return err
	})
}

// redisLife tells one run of a ready Redis from another, or one master from another.
func (s *subject) redisLife(ctx context.Context) (string, error) {
	name, err := s.redisPod(ctx)
	if err != nil {
		return "", err
	}
	pod, err := s.pod(ctx, name)
	if err != nil {
		return "", err
	}
	if !isReady(*pod) {
		return "", fmt.Errorf("pod %s is not ready", name)
	}
	redis, err := container(pod, s.redisContainer())
	return fmt.Sprint(pod.UID, redis.RestartCount), err
}

// redisRestarted is the verdict on an event that restarts Redis. Without persistence it comes back empty: lost are those who
// do not stash again.
func redisRestarted(o options) func(string, crowd.Report) string {
	if o.persistence {
		return planned
	}
	return func(_ string, r crowd.Report) string {
		if busy := r.Lost - r.LostIdle; busy > 0 {
			return fmt.Sprintf("%d sessions lost that had stashed again", busy)
		}
		return ""
	}
}
