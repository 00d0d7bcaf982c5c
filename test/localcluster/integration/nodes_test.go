//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// machines is a cluster of three nodes with a pod on each.
type machines struct {
	*lab
	// program is the probe, for the control plane's network.
	program string
	// nodes, pods and ips belong together, by index.
	nodes, pods, ips []string
}

// TestNodes lets everything happen to three nodes that can happen to machines.
func TestNodes(t *testing.T) {
	l := newLab(t, "it-nodes")
	started := time.Now()
	l.must(l.try("up", "--nodes", "3", "--network-policies"))
	t.Logf("up after %s", time.Since(started).Round(time.Second))
	l.loadProbe()
	m := &machines{lab: l, program: filepath.Join(t.TempDir(), "probe")}
	l.must(run(exec.Command("go", "build", "-o", m.program, "../internal/probe")))
	l.kubectl("apply", "-f", "testdata/nodes.yaml")
	l.kubectl("rollout", "status", "-n", "probe", "statefulset/probe", "--timeout=90s")
	m.look()

	in := func(part func(*machines)) func(*testing.T) {
		return func(t *testing.T) {
			own := *m
			own.lab = &lab{t: t, bin: l.bin, name: l.name, stateDir: l.stateDir}
			part(&own)
		}
	}
	t.Run("a zone and a pod each", func(t *testing.T) {
		zones := l.kubectl("get", "nodes", "-o", `jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}`)
		equal(t, "zones", zones, "zone-a zone-b zone-c")
		if used := slices.Compact(slices.Sorted(slices.Values(m.nodes))); len(used) != 3 {
			t.Errorf("the pods are on %v", used)
		}
	})
	t.Run("everybody reaches everybody", in((*machines).testWhole))
	t.Run("network policies", in((*machines).testPolicies))
	t.Run("cut", in((*machines).testCut))
	t.Run("delay", in((*machines).testDelay))
	t.Run("freeze", in((*machines).testFreeze))
	t.Run("kill", in((*machines).testKill))
	t.Run("stop, and what up mends", in((*machines).testStop))

	namespaces := namespacesOf(t, l.signs()[1])
	if len(namespaces) < 8 {
		t.Errorf("found only the namespaces %v: the check below would be worth nothing", namespaces)
	}
	m.do("delay", 0)
	m.do("freeze", 1)
	l.must(l.try("down"))
	mustBeGone(t, namespaces)
	l.before.mustEqual(t, l.id(), l.signs()...)

	for _, delay := range []time.Duration{2500 * time.Millisecond, 6 * time.Second} {
		t.Run("killed after "+delay.String(), l.in(func(l *lab) {
			l.killUp(delay, "--nodes", "3", "--network-policies")
			l.must(l.try("down"))
			l.before.mustEqual(l.t, l.id(), l.signs()...)
		}))
	}
}

// look notes where the pods are.
func (m *machines) look() {
	m.t.Helper()
	m.nodes, m.pods, m.ips = nil, nil, nil
	for _, line := range strings.Split(m.kubectl("get", "pods", "-n", "probe", "--sort-by=.spec.nodeName",
		"-o", `jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.podIP}{"\n"}{end}`), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			m.t.Fatalf("a pod that is not there: %q", line)
		}
		m.nodes, m.pods, m.ips = append(m.nodes, fields[0]), append(m.pods, fields[1]), append(m.ips, fields[2])
	}
}

func (m *machines) do(fault string, node int) {
	m.t.Helper()
	m.must(m.try("node", fault, m.nodes[node]))
}

// reaches says whether the pod of one node gets an answer from that of another.
func (m *machines) reaches(from, to int) bool {
	answer := m.tryKubectl("exec", "-n", "probe", m.pods[from], "--", "/probe", "get", "http://"+m.ips[to]+":8080")
	return answer.err == nil && strings.TrimSpace(answer.stdout) == m.pods[to]
}

func (m *machines) mustReach(from, to int, want bool) {
	m.t.Helper()
	if m.reaches(from, to) != want {
		m.t.Errorf("that %s reaches %s is not %t", m.pods[from], m.pods[to], want)
	}
}

// fromControlPlane runs the probe where the control plane is.
func (m *machines) fromControlPlane(args ...string) result {
	return m.try(append([]string{"exec", "--", m.program}, args...)...)
}

func (m *machines) testWhole() {
	t := m.t
	for from := range m.pods {
		for to := range m.pods {
			m.mustReach(from, to, true)
		}
		answer := m.probe(m.pods[from], "get", "http://nearest.probe.svc.cluster.local")
		if !slices.Contains(m.pods, answer) {
			t.Errorf("the Service answered %q", answer)
		}
	}
	service := m.kubectl("get", "service", "-n", "probe", "nearest", "-o", "jsonpath={.spec.clusterIP}")
	if answer := m.must(m.fromControlPlane("get", "http://"+service)); !slices.Contains(m.pods, answer) {
		t.Errorf("the Service answered the control plane %q", answer)
	}
	server := m.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	address := strings.TrimSuffix(strings.TrimPrefix(server, "https://"), ":6443")
	if answer, err := httpGet("http://" + address + ":30080"); err != nil || !slices.Contains(m.pods, answer) {
		t.Errorf("the node port answered the machine %q, %v", answer, err)
	}
	if answer := m.must(m.try("exec", "--node", m.nodes[2], "--", m.program, "get", "http://"+service)); !slices.Contains(m.pods, answer) {
		t.Errorf("the Service answered a node %q", answer)
	}
	blocked := m.tryKubectl("exec", "-n", "probe", m.pods[2], "--", "/probe", "dial", previousAddress(address)+":1")
	if !strings.Contains(blocked.stderr, "no route to host") {
		t.Errorf("a pod reaches the machine: %v %s%s", blocked.err, blocked.stdout, blocked.stderr)
	}
}

func (m *machines) testCut() {
	m.do("cut", 1)
	m.mustReach(0, 1, false)
	m.mustReach(0, 2, true)
	if m.fromControlPlane("dial", m.ips[1]+":8080").err == nil {
		m.t.Error("the control plane reaches a node that is cut off")
	}
	m.do("heal", 1)
	m.eventually("a healed network", func() string {
		// Not from the node itself: its kubelet looks for the API server again only when its connection has timed out.
		if !m.reaches(0, 1) || m.fromControlPlane("dial", m.ips[1]+":8080").err != nil {
			return "not whole"
		}
		return ""
	})
}

func (m *machines) testDelay() {
	m.do("delay", 1)
	m.eventually("a bad network", func() string {
		started := time.Now()
		answer := m.fromControlPlane("get", "http://"+m.ips[1]+":8080/large")
		took := time.Since(started)
		// One round trip to connect, one for the answer.
		if took < 400*time.Millisecond {
			m.t.Fatalf("an answer from a slow node after %s", took)
		}
		if answer.err != nil || len(answer.stdout) < 100_000 {
			return fmt.Sprintf("after %s: %v %s", took, answer.err, answer.stderr)
		}
		return ""
	})
	m.do("heal", 1)
	m.must(m.fromControlPlane("get", "http://"+m.ips[1]+":8080"))
}

func (m *machines) testFreeze() {
	m.do("freeze", 1)
	if answer := m.fromControlPlane("get", "http://"+m.ips[1]+":8080"); answer.err == nil {
		m.t.Errorf("a frozen pod answered %q", answer.stdout)
	}
	m.mustReach(0, 2, true)
	m.do("thaw", 1)
	m.must(m.fromControlPlane("get", "http://"+m.ips[1]+":8080"))
	m.mustWork()
}

func (m *machines) testKill() {
	m.probe(m.pods[2], "write", "/data/file", "kept")
	m.do("kill", 2)
	m.mustReach(0, 1, true)
	if answer := m.try("status"); answer.err == nil || !strings.Contains(answer.stdout, "node start --name "+m.name+" "+m.nodes[2]) {
		m.t.Errorf("status of a cluster without a node: %v %s", answer.err, answer.stdout)
	}
	if answer := m.try("load", m.program); answer.err == nil || !strings.Contains(answer.stderr, "does not run") {
		m.t.Errorf("load without a node: %v %s", answer.err, answer.stderr)
	}
	m.do("start", 2)
	m.whole()
	equal(m.t, "a volume after the node's return", m.probe(m.pods[2], "read", "/data/file"), "kept")
}

func (m *machines) testStop() {
	m.do("stop", 0)
	m.do("cut", 1)
	m.do("freeze", 2)
	m.must(m.try("up", "--nodes", "3", "--network-policies"))
	m.mustWork()
	m.whole()
}

// whole waits until every pod reaches every other, wherever they are by now.
func (m *machines) whole() {
	m.t.Helper()
	m.eventually("the return of everybody", func() string {
		if ready := m.kubectl("get", "statefulset", "-n", "probe", "probe", "-o", "jsonpath={.status.readyReplicas}"); ready != "3" {
			return ready + " of 3 pods are ready"
		}
		m.look()
		for from := range m.pods {
			for to := range m.pods {
				if !m.reaches(from, to) {
					return m.pods[from] + " does not reach " + m.pods[to]
				}
			}
		}
		return ""
	})
}
