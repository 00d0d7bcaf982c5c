package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/internal/program"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// What happens to nodes, of which there must be several: NODES=3.
const (
	// machines are what people do to them.
	machines = "machines"
	// faults are what happens to them by itself.
	faults = "faults"
)

const (
	// frozenTime is how long a machine stands still, or has no network: longer than the kubelet may be silent (40 s) before
	// the node counts as lost.
	frozenTime = time.Minute
	// rebootTime is how long a machine is away that comes back.
	rebootTime = 2 * time.Minute
	// noticeTime is how long Kubernetes may take to see that a node is lost, or that it is back.
	noticeTime = 3 * time.Minute
	// outOfService is how somebody says of a lost machine that it is off for good, so that its pods may be replaced.
	outOfService = "node.kubernetes.io/out-of-service"
	// elsewhere keeps new pods from a node, and leaves those that it has.
	elsewhere = "livestash.dev/survival"
)

func machineEvents(o options) []event {
	return []event{
		{name: "node-drain-3", group: machines, replicas: 3, do: drainNodes, judge: planned},
		{name: "node-drain-1", group: machines, replicas: 1, do: drainNodes, judge: planned},
		{name: "node-frozen", group: faults, replicas: 3, needsNode: true, do: faulty("freeze", "thaw", frozenTime), judge: oneMachine(o)},
		{name: "node-cut", group: faults, replicas: 3, needsNode: true, do: faulty("cut", "heal", frozenTime), judge: oneMachine(o)},
		{name: "node-reboot", group: faults, replicas: 3, needsNode: true, do: faulty("kill", "start", rebootTime), judge: oneMachine(o)},
		{name: "node-lost", group: faults, replicas: 3, needsNode: true, do: loseNode, judge: oneMachine(o)},
		{name: "node-lost-operator", group: faults, replicas: 3, needsNode: true, do: loseOperatorsNode, judge: oneMachine(o)},
	}
}

// oneMachine is an event that loses what only one pod had: with ETS its sessions, unless other pods have copies, else nothing.
func oneMachine(o options) func(string, crowd.Report) string {
	return func(adapter string, r crowd.Report) string {
		if adapter != "ETS" || o.Shadows(adapter) {
			return planned(adapter, r)
		}
		var losers []string
		for _, address := range slices.Sorted(maps.Keys(r.Pods)) {
			if r.Pods[address].Lost > 0 {
				losers = append(losers, address)
			}
		}
		if len(losers) > 1 {
			return fmt.Sprintf("sessions lost of %s: more than one machine had", strings.Join(losers, " and "))
		}
		return ""
	}
}

// faulty lets a fault happen to a node that every fleet has a pod on, and undoes it after a time.
func faulty(fault, undo string, after time.Duration) func(context.Context, *driver, []*subject) error {
	return func(ctx context.Context, d *driver, fleets []*subject) error {
		node, err := d.victim(ctx, fleets)
		if err != nil {
			return err
		}
		return d.fault(ctx, fleets, node, fault, undo, func() error { return fleet.Pause(ctx, after) })
	}
}

// loseNode loses a node for good: as soon as Kubernetes has seen that it is silent, somebody says that it is off, and the fleets
// are whole again on the nodes that are left. Then a machine of the same name takes its place.
func loseNode(ctx context.Context, d *driver, fleets []*subject) error {
	node, err := d.victim(ctx, fleets)
	if err != nil {
		return err
	}
	return d.loseForGood(ctx, fleets, node)
}

// loseOperatorsNode is the same for the node that the operator runs on.
func loseOperatorsNode(ctx context.Context, d *driver, fleets []*subject) error {
	node, err := d.victim(ctx, fleets)
	if err != nil {
		return err
	}
	nodes, err := d.nodes(ctx)
	if err != nil {
		return err
	}
	// Not by a cordon: the operator takes pods from nodes that somebody is about to empty.
	taint := append([]string{"taint", "node"}, slices.DeleteFunc(nodes, func(name string) bool { return name == node })...)
	if _, err := d.Kubectl(ctx, "", append(taint, elsewhere+"=:NoSchedule")...); err != nil {
		return err
	}
	err = errors.Join(d.DeleteOperator(ctx, "--timeout=2m"), d.OperatorReady(ctx))
	_, untainted := d.Kubectl(context.WithoutCancel(ctx), "", append(taint, elsewhere+"-")...)
	if err := errors.Join(err, untainted); err != nil {
		return err
	}
	return d.loseForGood(ctx, fleets, node)
}

func (d *driver) loseForGood(ctx context.Context, fleets []*subject, node string) error {
	return d.fault(ctx, fleets, node, "kill", "start", func() error {
		if err := d.nodeReady(ctx, node, false); err != nil {
			return err
		}
		if _, err := d.Kubectl(ctx, "", "taint", "node", node, outOfService+"=nodeshutdown:NoExecute"); err != nil {
			return err
		}
		lost := time.Now()
		try(fleets, func(s *subject) error {
			err := s.left(ctx, node)
			s.remark("whole without %s %.0f s after it was declared lost", node, time.Since(lost).Seconds())
			// Nothing spreads it anew when the node is back.
			s.Up = false
			return err
		})
		_, err := d.Kubectl(ctx, "", "taint", "node", node, outOfService+"-")
		return err
	})
}

// fault lets a fault happen to a node, waits, and undoes it whatever comes of it.
func (d *driver) fault(ctx context.Context, fleets []*subject, node, fault, undo string, wait func() error) error {
	try(fleets, func(s *subject) error { return s.leaves(ctx, node) })
	if err := localNode(ctx, fault, node); err != nil {
		return err
	}
	try(fleets, func(s *subject) error { return s.users.effect(ctx) })
	err := wait()
	// Also when the run was stopped: the cluster may be kept.
	if err := errors.Join(err, localNode(context.WithoutCancel(ctx), undo, node)); err != nil {
		return err
	}
	return d.nodeReady(ctx, node, true)
}

// localNode does something to a node of the local cluster.
func localNode(ctx context.Context, what, node string) error {
	_, err := program.Run(ctx, "", "localcluster", "node", what, node, "--name", os.Getenv("CLUSTER_NAME"))
	return err
}

// victim is a node that every fleet has a pod on, and none of their users. The stores stay, and where there is a choice the operator and DNS.
func (d *driver) victim(ctx context.Context, fleets []*subject) (string, error) {
	all, err := d.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	wanted, needed, others := map[string]map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, pod := range all.Items {
		node := pod.Spec.NodeName
		mine := slices.ContainsFunc(fleets, func(s *subject) bool { return s.Namespace == pod.Namespace })
		switch {
		case mine && pod.Labels["app.kubernetes.io/component"] == fleet.Component:
			if wanted[node] == nil {
				wanted[node] = map[string]bool{}
			}
			wanted[node][pod.Namespace] = true
		case mine:
			needed[node] = true
		default:
			others[node]++
		}
	}
	nodes := slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(node string) bool {
		return needed[node] || len(wanted[node]) < len(fleets)
	})
	if len(nodes) == 0 {
		return "", errors.New("no node has a pod of the fleet, and neither its users nor its Redis: make the cluster with NODES=3")
	}
	return slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(others[a], others[b]) }), nil
}

// nodeReady waits until Kubernetes says of a node what is true.
func (d *driver) nodeReady(ctx context.Context, name string, ready bool) error {
	return fleet.Eventually(ctx, noticeTime, func(ctx context.Context) error {
		node, err := d.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if is != ready {
			return fmt.Errorf("node %s is ready: %t", name, is)
		}
		return nil
	})
}

// drainNodes empties one node after the other of the fleets' pods, as for an upgrade of the machines, and lets each take pods
// again before the next. The users' own pods stay where they are.
func drainNodes(ctx context.Context, d *driver, fleets []*subject) error {
	nodes, err := d.nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) < 2 {
		return fmt.Errorf("there is nowhere to go from %s: make the cluster with NODES=3", strings.Join(nodes, " "))
	}
	for _, node := range nodes {
		try(fleets, func(s *subject) error { return s.leaves(ctx, node) })
		_, err := d.Kubectl(ctx, "", "drain", node, "--pod-selector=livestash.dev/cluster", "--delete-emptydir-data", "--timeout=5m")
		if err != nil {
			return err
		}
		try(fleets, func(s *subject) error { return s.left(ctx, node) })
		if _, err := d.Kubectl(ctx, "", "uncordon", node); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) nodes(ctx context.Context) ([]string, error) {
	names, err := d.Kubectl(ctx, "", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	return strings.Fields(names), err
}

// leaves says that the pods on the node are about to be taken, and notes how they were spread.
func (s *subject) leaves(ctx context.Context, node string) error {
	pods, err := s.ListPods(ctx)
	if err != nil {
		return err
	}
	s.remark("before %s went: %s", node, spread(pods))
	for _, pod := range pods {
		if pod.Spec.NodeName == node {
			s.watch.expect(pod.UID)
		}
	}
	return nil
}

// left waits until the fleet is whole again on other nodes, evenly: a node with two pods more than another one that takes pods
// would lose too many at once.
func (s *subject) left(ctx context.Context, node string) error {
	if err := s.Settled(ctx); err != nil {
		return fmt.Errorf("without %s: %w", node, err)
	}
	pods, err := s.ListPods(ctx)
	if err != nil {
		return err
	}
	count := perNode(pods)
	if count[node] > 0 {
		return fmt.Errorf("%d pods are on %s, which takes none", count[node], node)
	}
	if most := slices.Max(slices.Collect(maps.Values(count))); most > 2 {
		return fmt.Errorf("%d of %d pods are on one node", most, s.Replicas)
	}
	return nil
}

// perNode counts pods by node.
func perNode(pods []corev1.Pod) map[string]int {
	count := map[string]int{}
	for _, pod := range pods {
		count[pod.Spec.NodeName]++
	}
	return count
}

// spread is the numbers of pods on the nodes that have some.
func spread(pods []corev1.Pod) string {
	count := perNode(pods)
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s has %d", node, count[node]))
	}
	return strings.Join(parts, ", ")
}
