package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// machines are what happens to nodes, of which there must be several: NODES=3.
const machines = "machines"

func machineEvents() []event {
	return []event{
		{name: "node-drain-3", group: machines, replicas: 3, do: drainNodes, judge: planned},
		{name: "node-drain-1", group: machines, replicas: 1, do: drainNodes, judge: planned},
	}
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
	spread, err := s.spread(ctx)
	if err != nil {
		return err
	}
	s.remark("before the drain of %s: %s", node, spread)
	pods, err := s.ListPods(ctx)
	if err != nil {
		return err
	}
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
		return fmt.Errorf("after the drain of %s: %w", node, err)
	}
	count, err := s.perNode(ctx)
	if err != nil {
		return err
	}
	if count[node] > 0 {
		return fmt.Errorf("%d pods are on %s, which was drained", count[node], node)
	}
	if most := slices.Max(slices.Collect(maps.Values(count))); most > 2 {
		return fmt.Errorf("%d of %d pods are on one node", most, s.Replicas)
	}
	return nil
}

// perNode counts the fleet's pods by node.
func (s *subject) perNode(ctx context.Context) (map[string]int, error) {
	pods, err := s.ListPods(ctx)
	count := map[string]int{}
	for _, pod := range pods {
		count[pod.Spec.NodeName]++
	}
	return count, err
}

// spread is the numbers of pods on the nodes that have some.
func (s *subject) spread(ctx context.Context) (string, error) {
	count, err := s.perNode(ctx)
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s has %d", node, count[node]))
	}
	return strings.Join(parts, ", "), err
}
