package cluster

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
)

// maxNodes is how many have a zone of their own, and a kubelet each on one machine.
const maxNodes = 9

// node is one machine of the cluster, with folders, a range of pods and a zone of its own.
type node struct {
	index   int
	name    string
	dir     string
	ip      net.IP
	podCIDR string
	// alone says that it is the only one: then it shares namespaces, control group and address with the control plane.
	alone bool
}

func (c *Cluster) node(index int) node {
	n := node{
		index:   index,
		name:    fmt.Sprintf("%s-%d", c.Name, index),
		dir:     c.path(fmt.Sprintf("node-%d", index)),
		podCIDR: fmt.Sprintf("10.244.%d.0/22", index*4),
		alone:   c.state.Options.Nodes <= 1,
		ip:      net.IPv4(10, 243, 0, byte(10+index)).To4(),
	}
	if n.alone {
		n.ip = c.apiServerIP()
	}
	return n
}

// nodes are those that the cluster has.
func (c *Cluster) nodes() []node {
	if c.state.Options.ControlPlaneOnly {
		return nil
	}
	nodes := make([]node, max(1, c.state.Options.Nodes))
	for i := range nodes {
		nodes[i] = c.node(i)
	}
	return nodes
}

// severalNodes says whether nodes have machines of their own.
func (c *Cluster) severalNodes() bool {
	return !c.state.Options.ControlPlaneOnly && c.state.Options.Nodes > 1
}

// nodeNamed finds the node that has this name in Kubernetes.
func (c *Cluster) nodeNamed(name string) (node, error) {
	var names []string
	for _, n := range c.nodes() {
		if n.name == name {
			return n, nil
		}
		names = append(names, n.name)
	}
	return node{}, fmt.Errorf("cluster %s has no node %s: it has %v", c.Name, name, names)
}

// onEach does something on all nodes at the same time, and returns all errors.
func onEach(nodes []node, do func(n node) error) error {
	errs := make([]error, len(nodes))
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() { errs[i] = do(n) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (n node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// role is the name of one of its processes, for records and logs.
func (n node) role(program string) string {
	if n.alone {
		return program
	}
	return fmt.Sprintf("%s-%d", program, n.index)
}

// inText says whose something is, where there is more than one.
func (n node) inText(what string) string {
	if n.alone {
		return what
	}
	return what + " of " + n.name
}

// zone is what it is labelled with; the only node of a cluster has none.
func (n node) zone() string {
	if n.alone {
		return ""
	}
	return "zone-" + string(rune('a'+n.index))
}

// containerdSocket is its path as the machine sees it.
func (n node) containerdSocket() string { return n.path("run", "containerd", "containerd.sock") }

// volumes is where the provisioner keeps its folders.
func (n node) volumes() string { return n.path("volumes") }
