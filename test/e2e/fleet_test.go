package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A fleet becomes one BEAM cluster, keeps its names and secrets through restarts, and scales.
func TestFleet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "fleet")
	s.apply(`adapter: ETS
replicas: 2
podTemplate: {spec: {containers: [{name: app, securityContext: {readOnlyRootFilesystem: true}}]}}`)
	s.settled()

	t.Run("its nodes see each other", func(t *testing.T) {
		s := s.in(t)
		s.mesh("shop-0", "shop-1")
	})

	t.Run("it runs as nobody, with a fixed distribution port", func(t *testing.T) {
		s := s.in(t)
		if uid := s.must("", "exec", "shop-0", "-c", "app", "--", "id", "-u"); uid != "65534" {
			t.Errorf("the user id is %s", uid)
		}
		names := s.must("", "exec", "shop-0", "-c", "app", "--", "sh", "-c", "$(find / -name epmd -type f 2>/dev/null | head -n 1) -names")
		if !strings.Contains(names, "name shop at port 9100") {
			t.Errorf("epmd says %q, want the node shop at port 9100", names)
		}
	})

	t.Run("it can do with a read-only root file system", func(t *testing.T) {
		s := s.in(t)
		s.must("", "exec", "shop-0", "-c", "app", "--", "sh", "-c", "echo > /tmp/written")
		if out, err := s.kubectl("", "exec", "shop-0", "-c", "app", "--", "sh", "-c", "echo > /written"); err == nil || !strings.Contains(out, "Read-only file system") {
			t.Errorf("it may write elsewhere: %v, %s", err, out)
		}
	})

	t.Run("its pods have no token", func(t *testing.T) {
		s := s.in(t)
		if out, err := s.kubectl("", "exec", "shop-0", "-c", "app", "--", "ls", "/var/run/secrets/kubernetes.io"); err == nil {
			t.Errorf("there is a token: %s", out)
		}
	})

	t.Run("a deleted pod comes back under its name with the same secrets", func(t *testing.T) {
		s := s.in(t)
		secret := `:crypto.hash(:sha256, System.fetch_env!("SECRET_KEY_BASE") <> System.fetch_env!("RELEASE_COOKIE"))`
		before, err := s.rpc("shop-1", secret)
		if err != nil {
			t.Fatal(before, err)
		}
		s.must("", "delete", "pod", "shop-1")
		s.settled()
		s.mesh("shop-0", "shop-1")
		after, err := s.rpc("shop-1", secret)
		if err != nil || after != before {
			t.Errorf("the secrets were %s and are %s, %v", before, after, err)
		}
	})

	t.Run("it scales", func(t *testing.T) {
		s := s.in(t)
		s.must("", "scale", "lsc/shop", "--replicas=3")
		s.settled()
		s.mesh("shop-0", "shop-1", "shop-2")
		s.must("", "scale", "lsc/shop", "--replicas=1")
		s.eventually(2*time.Minute, func() error {
			pods := s.must("", "get", "pods", "-l", "livestash.dev/cluster=shop", "-o", "name")
			if pods != "pod/shop-0" {
				return fmt.Errorf("the pods are %q", pods)
			}
			return nil
		})
		s.settled()
	})

	t.Run("deleting it removes everything it made", func(t *testing.T) {
		s := s.in(t)
		s.must("", "delete", "lsc", "shop")
		s.eventually(2*time.Minute, func() error {
			left := s.must("", "get", "all,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets", "-l", "livestash.dev/cluster=shop", "-o", "name", "--ignore-not-found")
			if left != "" {
				return fmt.Errorf("left: %s", left)
			}
			return nil
		})
	})
}

// in is the same namespace, for a subtest.
func (s space) in(t *testing.T) space { return space{t, s.name} }

// mesh waits until every pod's node sees all the others.
func (s space) mesh(pods ...string) {
	s.t.Helper()
	for _, pod := range pods {
		s.eventually(time.Minute, func() error {
			nodes, err := s.rpc(pod, "Enum.sort([node() | Node.list()])")
			if err != nil {
				return fmt.Errorf("%s: %w: %s", pod, err, nodes)
			}
			if strings.Count(nodes, "@") != len(pods) {
				return fmt.Errorf("%s sees %s", pod, nodes)
			}
			for _, other := range pods {
				name := fmt.Sprintf("shop@%s.shop-nodes.%s.svc.", other, s.name)
				if !strings.Contains(nodes, name) {
					return fmt.Errorf("%s does not see %s: %s", pod, name, nodes)
				}
			}
			return nil
		})
	}
}

// The load test against a real fleet, each connection to the other pod than the last.
func TestReconnect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		adapter, name string
		keeps         bool
	}{
		{"ETS", "ets", true},
		{"BrowserMemory", "browser_memory", true},
		{"None", "none", false},
	} {
		t.Run(c.adapter, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, "reconnect-"+strings.ReplaceAll(c.name, "_", "-"))
			s.apply("adapter: " + c.adapter)
			s.settled()
			s.mesh("shop-0", "shop-1")
			outcome := s.load(c.name)

			if outcome.Cycles == 0 || !outcome.Passed {
				t.Errorf("%d cycles, passed %v", outcome.Cycles, outcome.Passed)
			}
			if outcome.WrongCount != 0 || outcome.Error != 0 {
				t.Errorf("%d wrong counters, %d errors", outcome.WrongCount, outcome.Error)
			}
			if c.keeps && (outcome.Recovered.Share == nil || *outcome.Recovered.Share <= 0.99) {
				t.Errorf("recovered: %+v, want more than 99 %%", outcome.Recovered)
			}
			if !c.keeps && outcome.Recovered.Yes != 0 {
				t.Errorf("%d users found state that nobody kept", outcome.Recovered.Yes)
			}
			if len(outcome.Connections) != 2 {
				t.Fatalf("connections: %v, want both pods", outcome.Connections)
			}
			for pod, connections := range outcome.Connections {
				if connections == 0 {
					t.Errorf("no connection to %s", pod)
				}
			}
		})
	}
}

// A rollout that got stuck on a broken image goes on when the image is mended, with nobody deleting pods.
func TestStuckRolloutHeals(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "stuck")
	s.apply("adapter: None")
	s.settled()

	before := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
	s.apply("adapter: None\nimage: example.invalid/no/such/image:1")
	s.eventually(2*time.Minute, func() error {
		if got := s.condition("Progressing"); !strings.HasPrefix(got, "True PodFailing pod shop-1, container app: ") || !strings.Contains(got, "check spec.image") {
			return fmt.Errorf("Progressing is %q", got)
		}
		return nil
	})
	if after := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}"); after != before {
		t.Errorf("shop-0 was %s and is %s: the rollout took more than one pod", before, after)
	}
	s.says("Available", "True EnoughReady", "")

	s.apply("adapter: None")
	s.settled()
}

// The operator's own restart changes nothing for a fleet.
func TestOperatorRestart(t *testing.T) {
	s := newSpace(t, "restart")
	s.apply("adapter: None\nreplicas: 1")
	s.settled()
	state := func() string {
		// Not its version: a pod on a busy machine can be unready for a moment.
		const same = "jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation} {.metadata.labels} {.metadata.annotations} {.status.containerStatuses[*].restartCount} {end}"
		return s.must("", "get", "statefulset/shop", "pod/shop-0", "-o", same)
	}
	before := state()

	operator := space{t, releaseNamespace}
	operator.must("", "delete", "pod", "-l", "app.kubernetes.io/name=livestash-operator")
	operator.must("", "rollout", "status", "deployment", "-l", "app.kubernetes.io/name=livestash-operator", "--timeout=2m")
	// The new operator works: it acts on a change.
	s.must("", "annotate", "lsc", "shop", "e2e=1")
	s.must("", "delete", "networkpolicy", "shop")
	s.eventually(time.Minute, func() error {
		_, err := s.kubectl("", "get", "networkpolicy", "shop")
		return err
	})
	if after := state(); after != before {
		t.Errorf("the StatefulSet and its pod were %q and are %q", before, after)
	}
}

// Bad input is refused by `kubectl apply` with a sentence. operator/api tests every one of them; here, that a user sees it.
func TestBadInput(t *testing.T) {
	s := newSpace(t, "bad")
	for spec, says := range map[string]string{
		"adapter: Memcached":                              "supported values",
		"adapter: ETS\nttl: 0s":                           "ttl must be a duration from 1s to 720h with a unit",
		"adapter: BrowserMemory\nttl: 25h":                "at most 24h with adapter BrowserMemory",
		"adapter: ETS\nreplicas: -1":                      "greater than or equal to 0",
		"adapter: ETS\nenv: [{name: PORT, value: \"1\"}]": "use the field of the spec that stands for it",
	} {
		out, err := s.kubectl(s.fleet(spec), "apply", "-f", "-")
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("%q: %v, want a refusal that says %q:\n%s", spec, err, says, out)
		}
	}
	if left := s.must("", "get", "lsc", "-o", "name"); left != "" {
		t.Errorf("made all the same: %s", left)
	}
}

// A fleet whose Secret is missing is not half-made, says so, and gets on when the Secret appears.
func TestMissingSecretHeals(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "secret")
	s.apply("adapter: None\nreplicas: 1\nclustering: {cookie: {secretRef: {name: mine, key: cookie}}}")
	s.eventually(time.Minute, func() error {
		if got := s.condition("ReconcileSucceeded"); !strings.HasPrefix(got, "False SecretMissing Secret mine does not exist in namespace e2e-secret") {
			return fmt.Errorf("ReconcileSucceeded is %q", got)
		}
		return nil
	})
	if pods := s.must("", "get", "statefulsets,pods", "-o", "name"); pods != "" {
		t.Errorf("half-made: %s", pods)
	}
	s.must("", "create", "secret", "generic", "mine", "--from-literal=cookie=a-cookie-of-my-own")
	s.settled()
	if cookie, err := s.rpc("shop-0", "Node.get_cookie()"); err != nil || cookie != `:"a-cookie-of-my-own"` {
		t.Errorf("the cookie is %s, %v", cookie, err)
	}
}
