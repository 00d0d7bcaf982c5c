package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The chart as a user works with it: its own test, an upgrade, and an uninstall that leaves fleets alone.
func TestChart(t *testing.T) {
	s := newSpace(t, "chart")
	s.apply("adapter: None\nreplicas: 1")
	s.settled()
	pod := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")

	helm := func(args ...string) string {
		t.Helper()
		out, err := run("", "helm", append(args, "--namespace", releaseNamespace)...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	if out := helm("test", release); strings.Count(out, "Succeeded") == 0 {
		t.Errorf("helm test ran nothing:\n%s", out)
	}
	// An operator that would make other pods leaves those that there are.
	helm(append([]string{
		"upgrade", release, repository(), "--wait", "--set", "operator.replicaCount=2", "--set", "operator.extraArgs={--agent-image=example.invalid/agent:2}",
	}, chartValues()...)...)
	s.eventually(time.Minute, func() error {
		if says := s.condition("UpToDate"); !strings.HasPrefix(says, "False TemplateKept") {
			return fmt.Errorf("condition UpToDate is %s", says)
		}
		return nil
	})
	s.settled()
	if left := s.must("", "get", "pod/shop-0", "-o", "jsonpath={.metadata.uid}"); left != pod {
		t.Errorf("after an upgrade of the operator the pod is %q, was %q", left, pod)
	}
	helm("uninstall", release, "--wait")
	if left := s.must("", "get", "lsc/shop", "pod/shop-0", "-o", "jsonpath={.items[1].metadata.uid}"); left != pod {
		t.Errorf("after helm uninstall the pod is %q, was %q", left, pod)
	}
	helm(append([]string{"install", release, repository(), "--wait", "--timeout", "3m"}, chartValues()...)...)
	// The new operator works on the fleet that it found.
	s.must("", "scale", "lsc/shop", "--replicas=2")
	s.settled()
	s.mesh("shop-0", "shop-1")
}
