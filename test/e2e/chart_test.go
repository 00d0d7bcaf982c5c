package e2e

import (
	"strings"
	"testing"
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
	helm(append([]string{"upgrade", release, repository(), "--wait", "--set", "operator.replicas=2"}, chartValues()...)...)
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
