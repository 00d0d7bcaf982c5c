package fleet

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Who runs Redis, as in spec.redis.
const (
	Managed  = "managed"
	Operated = "operator"
)

// RedisProcess is the name of the server's process in RedisContainer.
const RedisProcess = "redis-server"

// redis is spec.redis: one server that the operator runs, or a master with two replicas that redis-operator runs.
func (f *Fleet) redis() map[string]any {
	spec := map[string]any{}
	if f.Options.Persistence {
		spec["persistence"] = map[string]any{}
	}
	return map[string]any{f.Options.Redis: spec}
}

// RedisContainer is the container of the server's process.
func (f *Fleet) RedisContainer() string {
	if f.Options.Redis == Operated {
		return Name + "-redis-op"
	}
	return "redis"
}

// RedisPod is the pod of the server that takes writes.
func (f *Fleet) RedisPod(ctx context.Context) (string, error) {
	if f.Options.Redis == Managed {
		pod, err := f.In(ctx, "", "get", "lsc", Name, "-o", "jsonpath={.status.redis.server.pod}")
		return cmp.Or(pod, Name+"-redis-0"), err
	}
	master, err := f.In(ctx, "", "get", "pods", "-l", "livestash.dev/cluster="+Name+",redis-role=master", "-o", "jsonpath={.items[*].metadata.name}")
	if err == nil && len(strings.Fields(master)) != 1 {
		err = fmt.Errorf("pods %q are called master, want one", master)
	}
	return strings.TrimSpace(master), err
}

// RedisLife tells one run of a ready Redis from another, or one master from another.
func (f *Fleet) RedisLife(ctx context.Context) (string, error) {
	name, err := f.RedisPod(ctx)
	if err != nil {
		return "", err
	}
	pod, err := f.Pod(ctx, name)
	if err != nil {
		return "", err
	}
	if !IsReady(*pod) {
		return "", fmt.Errorf("pod %s is not ready", name)
	}
	redis, err := Container(pod, f.RedisContainer())
	return fmt.Sprint(pod.UID, redis.RestartCount), err
}

// UntilConnected is how long an application may be without its connection when Redis has been away: Redix tries again after
// 0.5 s and then after one and a half times as long, up to 30 s, which is never more than half of the time that is over and
// 0.5 s. Five seconds are for the attempt itself, which is how long Redix waits for a server that has just gone.
func UntilConnected(away time.Duration) time.Duration {
	return min(away/2+500*time.Millisecond, 30*time.Second) + 5*time.Second
}
