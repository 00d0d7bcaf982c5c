package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fakeNode is a node that takes pods and never starts them: nobody runs there.
const fakeNode = `apiVersion: v1
kind: Node
metadata: {name: e2e-fake}
`

const fakeNodeStatus = `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "as far as is told"}],
	"capacity": {"cpu": "64", "memory": "64Gi", "pods": "100"}, "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100"}}}`

// A drain of the only node cannot take a fleet's only pod, and it is said why. With a second node the pod that is to take the users
// over is asked for; as long as it does not serve, nobody goes. After the uncordon all is as it was, and nothing is lost.
func TestTheOnlyPodOfTheOnlyNodeIsNotTaken(t *testing.T) {
	s := newSpace(t, "nodes")
	s.apply("adapter: ETS\nreplicas: 1")
	s.settled()
	s.rows("shop-0", 300)
	pod := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
	node := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.spec.nodeName}")
	t.Cleanup(func() {
		_, _ = s.kubectl("", "uncordon", node)
		_, _ = s.kubectl("", "delete", "node", "e2e-fake")
	})
	refused, err := s.kubectl("", "drain", node, "--pod-selector=livestash.dev/cluster=shop", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=7s")
	if err == nil || !strings.Contains(refused, "disruption budget") {
		t.Errorf("kubectl drain says %v: %s", err, refused)
	}
	s.says("Placed", "False NoOtherNode", node+" is cordoned")
	if got := s.condition("Ready"); !strings.HasPrefix(got, "True ") {
		t.Errorf("Ready is %s", got)
	}

	s.must(fakeNode, "apply", "-f", "-")
	s.must(fakeNodeStatus, "patch", "node", "e2e-fake", "--subresource=status", "--patch-file", "/dev/stdin")
	s.says("Progressing", "True Surging", "shop-0 has to leave its node")
	s.eventually(time.Minute, func() error {
		second, err := s.kubectl("", "get", "pod", "shop-1", "-o", "jsonpath={.metadata.name}")
		if err != nil {
			return fmt.Errorf("there is no second pod: %w: %s", err, second)
		}
		return nil
	})
	time.Sleep(10 * time.Second) // in which nothing may happen
	if now := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid} {.metadata.deletionTimestamp}"); now != pod {
		t.Errorf("shop-0 was taken without a pod that could keep its users: %s", now)
	}

	s.must("", "uncordon", node)
	s.must("", "delete", "node", "e2e-fake")
	_, _ = s.kubectl("", "delete", "pod", "shop-1", "--force", "--grace-period=0")
	s.settled()
	s.eventually(time.Minute, func() error {
		if got := s.condition("Placed"); strings.TrimSpace(got) != "" {
			return fmt.Errorf("Placed is %s", got)
		}
		return nil
	})
	s.held(300, "shop-0")
	if now := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}"); now != pod {
		t.Error("shop-0 is another pod")
	}
}

// says waits until a condition begins and goes on so.
func (s space) says(kind, begins, has string) {
	s.t.Helper()
	s.eventually(time.Minute, func() error {
		if got := s.condition(kind); !strings.HasPrefix(got, begins) || !strings.Contains(got, has) {
			return fmt.Errorf("%s is %s", kind, got)
		}
		return nil
	})
}
