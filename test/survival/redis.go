package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// sparedFor is how long no server may be replaced after a change that spares them.
const sparedFor = 10 * time.Second

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

// redisChanges are all that can change in the Redis that the operator runs. Each is a patch of the LiveStashCluster, or a command.
var redisChanges = []struct {
	name  string
	patch string
	// command is what kubectl is told instead.
	command []string
	// spared is whether it is none of the server's business.
	spared bool
}{
	{name: "exporter", patch: `{"spec": {"redis": {"managed": {"exporter": {"enabled": false}}}}}`},
	{name: "resources and configuration", patch: `{"spec": {"redis": {"managed": {"memory": "768Mi"}}}}`},
	{name: "image", patch: `{"spec": {"redis": {"managed": {"image": "` + redisImage("-next") + `"}}}}`},
	{name: "imagePullSecrets", patch: `{"spec": {"imagePullSecrets": [{"name": "registry"}]}}`},
	{name: "restart", command: []string{"rollout", "restart", "statefulset/" + fleet.Name + "-redis"}},
	{name: "a deleted Secret", command: []string{"delete", "secret", fleet.Name + "-redis-acl"}, spared: true},
}

// redisImage is the image of Redis on a local cluster, under the tag with that end.
func redisImage(tagEnd string) string {
	return cmp.Or(os.Getenv("REGISTRY"), "ghcr.io/livestash-dev") + "/livestash-test-redis:" + fleet.Defaults().Tag + tagEnd
}

// withVolume says why no adapter goes through the changes, if Redis has a volume: it is restarted then, as redis-restart does it.
func withVolume(o options) map[string]string {
	if !o.Persistence && o.Redis == fleet.Managed {
		return nil
	}
	return map[string]string{"Redis": "only a managed Redis without a volume hands over to another server: see redis-restart"}
}

// changeRedis changes everything that can be, one after the other.
func changeRedis(ctx context.Context, s *subject) error {
	for _, change := range redisChanges {
		before, err := s.RedisLife(ctx)
		if err != nil {
			return err
		}
		begun := time.Now()
		command := change.command
		if command == nil {
			command = []string{"patch", "lsc", fleet.Name, "--type=merge", "-p", change.patch}
		}
		if _, err := s.In(ctx, "", command...); err != nil {
			return err
		}
		if err := s.redisSettled(ctx, before, change.spared); err != nil {
			return fmt.Errorf("%s: %w", change.name, err)
		}
		if !change.spared {
			s.remark("%s: another server after %.0f s", change.name, time.Since(begun).Seconds())
		}
		// As after a restart: what was acknowledged in the moment without a connection is stored with the next stash.
		if err := fleet.Pause(ctx, fleet.UntilConnected(time.Second)); err != nil {
			return err
		}
		if err := s.restash(ctx); err != nil {
			return fmt.Errorf("%s: %w", change.name, err)
		}
	}
	return nil
}

// redisSettled waits until another server has taken over and is the only one, or, when the change spares it, until it can be said
// that none has.
func (s *subject) redisSettled(ctx context.Context, before string, spared bool) error {
	if spared {
		if err := fleet.Pause(ctx, sparedFor); err != nil {
			return err
		}
	}
	return fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
		now, err := s.RedisLife(ctx)
		if err != nil {
			return err
		}
		if (now == before) != spared {
			return fmt.Errorf("the server's life was %s and is %s", before, now)
		}
		pods, err := s.In(ctx, "", "get", "pods", "-l", "livestash.dev/cluster="+fleet.Name+",app.kubernetes.io/name=redis", "-o", "name")
		if err == nil && len(strings.Fields(pods)) != 1 {
			err = fmt.Errorf("there are %q", strings.Fields(pods))
		}
		return errors.Join(err, s.ConditionsHold(ctx))
	})
}
