package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// What no session goes on without outlives a fleet that says so, and nothing else of it does. The next fleet of that name has it.
func TestWhatOutlivesAFleet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "retain")
	isUp := func() {
		t.Helper()
		s.apply("adapter: Redis\nreplicas: 0\nwhenDeleted: Retain\nredis: {managed: {memory: 64Mi, persistence: {size: 8Mi}}}")
		s.eventually(time.Minute, func() error {
			if says := s.condition("ReconcileSucceeded"); !strings.HasPrefix(says, "True ") {
				return fmt.Errorf("ReconcileSucceeded is %q", says)
			}
			_, err := s.kubectl("", "rollout", "status", "statefulset/shop-redis", "--timeout=2m")
			return err
		})
	}
	isUp()
	s.redis("set", "live_stash:e2e", "kept", "EX", "600")
	base := s.secretValue("shop-secrets", "secret-key-base")

	s.must("", "delete", "lsc", "shop", "--cascade=foreground", "--timeout=1m")
	left := strings.Fields(s.must("", "get", "statefulsets,pods,services,secrets,configmaps,persistentvolumeclaims,serviceaccounts,networkpolicies,poddisruptionbudgets",
		"-l", "livestash.dev/cluster=shop", "-o", "name"))
	if slices.Sort(left); !slices.Equal(left, []string{"persistentvolumeclaim/shop-redis-data", "secret/shop-secrets"}) {
		t.Fatalf("left are %v", left)
	}

	isUp()
	if got := s.redis("get", "live_stash:e2e"); got != "kept" {
		t.Errorf("the stash is %q", got)
	}
	if got := s.secretValue("shop-secrets", "secret-key-base"); got != base {
		t.Error("no session goes on: SECRET_KEY_BASE is another one")
	}
}
