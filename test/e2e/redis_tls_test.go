package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A managed Redis with TLS speaks nothing else: the fleet, the exporter, the operator and a server that takes its place talk to it so. It
// shows a new certificate without a restart.
func TestManagedRedisTLS(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "redis-tls")
	const spec = "adapter: Redis\nreplicas: 2\nredis: {managed: {memory: %s, tls: {enabled: true}}}"
	s.apply(fmt.Sprintf(spec, "64Mi"))
	s.settled()
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	s.redisOverTLS("set", "live_stash:e2e", "kept", "EX", "600")

	t.Run("who does not speak TLS gets no answer", func(t *testing.T) {
		s := s.in(t)
		if out, err := s.kubectl("", "exec", s.redisServer(), "-c", "redis", "--", "timeout", "5", "redis-cli", "ping"); err == nil && strings.Contains(out, "PONG") {
			t.Errorf("it says %s", out)
		}
	})

	t.Run("users move between pods", func(t *testing.T) {
		s := s.in(t)
		outcome := s.load("redis")
		if !outcome.Passed || outcome.Recovered.No != 0 || outcome.WrongCount != 0 || outcome.Error != 0 || outcome.Recovered.Yes < 50 {
			t.Errorf("load test: %+v", outcome)
		}
	})

	t.Run("it serves metrics", func(t *testing.T) {
		s := s.in(t)
		metrics := s.must("", "get", "--raw", "/api/v1/namespaces/"+s.name+"/pods/"+s.redisServer()+":9121/proxy/metrics")
		if !strings.Contains(metrics, "redis_up 1") {
			t.Error("the exporter does not reach Redis")
		}
	})

	t.Run("a new certificate is shown, and restarts nothing", func(t *testing.T) {
		s := s.in(t)
		said := func(what string) string {
			return s.must("", "get", "secret", "shop-redis-tls", "--ignore-not-found", "-o", "jsonpath={"+what+"}")
		}
		pods := func() string {
			return s.must("", "get", "pods", "-l", "livestash.dev/cluster=shop", "-o",
				"jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount} {end}")
		}
		const certificate = `.data.tls\.crt`
		before, first := pods(), said(certificate)
		s.must("", "delete", "secret", "shop-redis-tls")
		s.eventually(5*time.Minute, func() error { // the kubelet takes up to two for a changed Secret
			now, unread := said(certificate), said(`.metadata.annotations.livestash\.dev/unread`)
			if now == "" || now == first || unread != "" {
				return fmt.Errorf("another certificate: %t, which Redis does not show: %q", now != first, unread)
			}
			return nil
		})
		if after := pods(); after != before {
			t.Errorf("the pods were %q and are %q", before, after)
		}
		if got := s.redisOverTLS("get", "live_stash:e2e"); got != "kept" {
			t.Errorf("the stash is %q after the new certificate", got)
		}
		s.must("", "delete", "pod", "shop-1") // which logs in to it as it starts
		s.settled()
		s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	})

	t.Run("another server takes over what it holds", func(t *testing.T) {
		s := s.in(t)
		before := s.redisServer()
		s.apply(fmt.Sprintf(spec, "96Mi"))
		s.eventually(2*time.Minute, func() error {
			now, pods := s.redisServer(), s.must("", "get", "pods", "-l", "app.kubernetes.io/name=redis", "-o", "name")
			if now == before || pods != "pod/"+now {
				return fmt.Errorf("the server was %s and is %s; the pods are %s", before, now, pods)
			}
			return nil
		})
		if got := s.redisOverTLS("get", "live_stash:e2e"); got != "kept" {
			t.Errorf("the stash is %q in the other server", got)
		}
	})
}

// redisOverTLS is what redis-cli says over TLS, which checks the certificate.
func (s space) redisOverTLS(command ...string) string {
	s.t.Helper()
	return s.redis(append([]string{"--tls", "--cacert", "/etc/livestash-redis/ca.crt"}, command...)...)
}
