package e2e

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The alerts in a real Prometheus, while the fault is made that each is for. Only their patience is shorter: what would be
// waited for in minutes takes seconds.
func TestAlertsFireOnFaults(t *testing.T) {
	s := newSpace(t, "alerts")
	s.impatientRules()
	p := s.prometheus()
	s.apply("adapter: ETS\nreplicas: 2")
	s.must(strings.Replace(s.fleet("adapter: Redis\nreplicas: 1"), "name: shop", "name: cart", 1), "apply", "-f", "-")
	s.settled()
	s.must("", "wait", "lsc/cart", "--for=condition=Available", "--for=condition=StoreReady", "--timeout=3m")
	// The fleets have started, which also looks like a fault to rules without patience.
	p.eventuallyFiring()

	t.Run("the mesh is cut", func(t *testing.T) {
		s, p := s.in(t), p.in(t)
		cut := `(for n <- Node.list(), do: (Node.set_cookie(n, :cut); Node.disconnect(n)))`
		if out, err := s.rpc("shop-0", cut); err != nil {
			t.Fatal(out, err)
		}
		p.eventuallyFiring("LiveStashMeshIncomplete")
		// A new virtual machine knows nothing of the cut.
		s.must("", "delete", "pod", "shop-0")
		s.settled()
		p.eventuallyFiring()
	})

	t.Run("Redis is stopped", func(t *testing.T) {
		s, p := s.in(t), p.in(t)
		// The operator would bring it back at once.
		s.must("", "patch", "lsc", "cart", "--type=merge", "-p", `{"spec":{"paused":true}}`)
		s.must("", "scale", "statefulset", "cart-redis", "--replicas=0")
		p.eventuallyFiring("LiveStashStoreNotReady")
		s.must("", "patch", "lsc", "cart", "--type=merge", "-p", `{"spec":{"paused":false}}`)
		p.eventuallyFiring()
	})

	t.Run("a rollout is broken", func(t *testing.T) {
		s, p := s.in(t), p.in(t)
		s.apply("adapter: ETS\nreplicas: 2\nimage: example.invalid/no/such/image:1")
		// The other pod misses the one that does not start.
		p.eventuallyFiring("LiveStashMeshIncomplete", "LiveStashRolloutStuck")
		s.apply("adapter: ETS\nreplicas: 2")
		s.settled()
		p.eventuallyFiring()
	})

	t.Run("the operator is stopped", func(t *testing.T) {
		p := p.in(t)
		operator := space{t, releaseNamespace}
		operator.must("", "scale", "deployment", "livestash-operator", "--replicas=0")
		t.Cleanup(func() {
			operator.must("", "scale", "deployment", "livestash-operator", "--replicas=1")
			operator.must("", "rollout", "status", "deployment", "livestash-operator", "--timeout=2m")
		})
		p.eventuallyFiring("LiveStashOperatorNotReconciling")
	})
}

// impatientRules are the chart's alerts, which wait and look back for at most 20 seconds.
func (s space) impatientRules() {
	s.t.Helper()
	rules := regexp.MustCompile(`for: \d+[mh]`).ReplaceAllString(string(ruleFile(s.t)), "for: 5s")
	rules = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(rules, "[20s]")
	if strings.Count(rules, "for: 5s") < 5 || strings.Count(rules, "[20s]") < 2 {
		s.t.Fatal("the rules have no patience to be shortened")
	}
	s.must("", "create", "configmap", "rules", "--from-literal=livestash.yaml="+rules)
}

// eventuallyFiring waits until exactly these alerts fire.
func (p prometheus) eventuallyFiring(alerts ...string) {
	p.t.Helper()
	slices.Sort(alerts)
	space{p.t, ""}.eventually(2*time.Minute, func() error {
		var data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		}
		if err := p.Get(p.t.Context(), "alerts", url.Values{}, &data); err != nil {
			return err
		}
		var firing []string
		for _, alert := range data.Alerts {
			if alert.State == "firing" {
				firing = append(firing, alert.Labels["alertname"])
			}
		}
		slices.Sort(firing)
		if firing = slices.Compact(firing); !slices.Equal(firing, alerts) {
			return fmt.Errorf("%q fire, want %q", firing, alerts)
		}
		return nil
	})
	p.t.Logf("firing: %q", alerts)
}
