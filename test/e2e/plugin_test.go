package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// livestash runs the plugin, as `kubectl livestash` would.
func (s space) livestash(args ...string) (string, error) {
	out, err := run("", filepath.Join(repository(), "bin", "kubectl-livestash"), append([]string{"--namespace", s.name}, args...)...)
	return strings.TrimSpace(out), err
}

// plugin fails unless the plugin's verb works and its output has all parts.
func (s space) plugin(verb string, parts ...string) {
	s.t.Helper()
	s.eventually(30*time.Second, func() error {
		out, err := s.livestash(strings.Fields(verb)...)
		if err != nil {
			return fmt.Errorf("kubectl livestash %s: %w\n%s", verb, err, out)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				return fmt.Errorf("kubectl livestash %s does not say %q:\n%s", verb, part, out)
			}
		}
		return nil
	})
}

// The plugin's verbs that need pods: what they ask is answered by a kubelet, an agent and a release. The others are tested against an API
// server alone.
func TestPlugin(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "plugin")
	s.apply("adapter: ETS\nreplicas: 2")
	s.settled()
	s.rows("shop-1", 20)

	s.plugin("status", "shop is", "2 of 2 pods ready", "every node sees every other")
	s.plugin("doctor", "nothing is wrong")
	s.plugin("sessions", "shop-0", "shop-1", "20")
	s.plugin("rpc --pod shop-1 IO.puts(node())", "shop@shop-1.shop-nodes."+s.name+".svc.")
	// Of a process of the pod's own: the logger leaves out what is said on behalf of another node.
	const log = `spawn(fn -> Process.group_leader(self(), Process.whereis(:user)); :logger.error(~c"said by the test") end)`
	if out, err := s.livestash("rpc", "shop", "--pod", "shop-1", log); err != nil {
		t.Errorf("rpc: %v\n%s", err, out)
	}
	s.plugin("logs --tail 5", "[shop-1] ", "said by the test")
	if out, err := s.livestash("rpc", "Process.sleep(60_000)", "--timeout", "4s"); err == nil || !strings.Contains(out, "no answer after 4s") {
		t.Errorf("an expression that does not end: %v\n%s", err, out)
	}

	out, err := s.livestash("drain", "shop-1")
	if err != nil || !strings.Contains(out, "of 20 stashes, 20 handed over and 0 lost") {
		t.Errorf("drain: %v\n%s", err, out)
	}
	s.settled()
	s.plugin("rollout status --watch --timeout 1m", "2/2 pods", "Complete")
}
