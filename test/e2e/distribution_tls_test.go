package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The nodes of a fleet talk to each other over TLS when it starts, when it grows, and when its certificate is a new one.
func TestDistributionTLS(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "tls")
	s.apply("adapter: ETS\nreplicas: 2\nclustering: {tls: {enabled: true}}")
	s.settled()
	s.mesh("shop-0", "shop-1")

	t.Run("who shows no certificate is not let in", func(t *testing.T) {
		s := s.in(t)
		// A second virtual machine in the pod, with the right cookie, connects to the first one.
		const connect = `[_, host] = String.split(System.fetch_env!("RELEASE_NODE"), "@")
			{:ok, _} = Node.start(:"stranger@#{host}", :longnames)
			Node.set_cookie(String.to_atom(System.fetch_env!("RELEASE_COOKIE")))
			IO.puts("admitted: #{Node.connect(String.to_atom(System.fetch_env!("RELEASE_NODE")))}")`
		for flags, admitted := range map[string]bool{
			"": false,
			"-proto_dist inet_tls -ssl_dist_optfile /livestash-tls/ssl_dist.conf": true,
		} {
			out := s.must("", "exec", "shop-0", "-c", "app", "--", "env", "ERL_AFLAGS="+flags, "bin/workload", "eval", connect)
			if !strings.Contains(out, fmt.Sprintf("admitted: %v", admitted)) {
				t.Errorf("with the flags %q: %s", flags, out)
			}
		}
	})

	t.Run("a new pod is admitted", func(t *testing.T) {
		s := s.in(t)
		s.must("", "scale", "lsc/shop", "--replicas=3")
		s.settled()
		s.mesh("shop-0", "shop-1", "shop-2")
	})

	t.Run("a new certificate takes over beside the old one, and restarts nothing", func(t *testing.T) {
		s := s.in(t)
		certificate := func() string {
			return s.must("", "get", "secret", "shop-distribution-tls", "--ignore-not-found", "-o", `jsonpath={.data.tls\.crt}`)
		}
		others := func() string {
			return s.must("", "get", "pod", "shop-0", "shop-1", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount} {end}")
		}
		before, first := others(), certificate()
		s.must("", "delete", "secret", "shop-distribution-tls")
		s.eventually(time.Minute, func() error {
			if now := certificate(); now == "" || now == first {
				return fmt.Errorf("there is no new certificate")
			}
			return nil
		})
		// It starts with the new certificate, while the others still have the old one in their memory.
		s.must("", "delete", "pod", "shop-2")
		s.settled()
		s.mesh("shop-0", "shop-1", "shop-2")
		if after := others(); after != before {
			t.Errorf("the other pods were %q and are %q", before, after)
		}
	})
}
