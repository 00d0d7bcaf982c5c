package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

// namespaces says how those of a host are made.
func (c *Cluster) namespaces(ctx context.Context, h host) (daemon.Namespaces, error) {
	if c.state.Options.ControlPlaneOnly {
		return daemon.Namespaces{}, nil
	}
	if h.node == nil {
		// What goes from node to node passes the switch here; it is not this host's to filter or translate.
		return daemon.Namespaces{Sysctls: map[string]string{
			"net/ipv4/ip_forward":                "1",
			"net/bridge/bridge-nf-call-iptables": "0",
		}}, nil
	}
	binds, err := c.binds(ctx, *h.node)
	return daemon.Namespaces{
		Binds: binds,
		Sysctls: map[string]string{
			"net/ipv4/ip_forward":                "1",
			"net/bridge/bridge-nf-call-iptables": "1",
		},
	}, err
}

// binds gives the node folders of its own in the places that the kubelet, containerd and the network plugins have
// compiled in, so that several clusters, and a container runtime of the machine, never meet.
func (c *Cluster) binds(ctx context.Context, node node) ([]daemon.Bind, error) {
	folders := []daemon.Bind{
		{Source: node.path("kubelet"), Target: "/var/lib/kubelet"},
		{Source: node.path("cni-state"), Target: "/var/lib/cni"},
		{Source: node.path("log", "pods"), Target: "/var/log/pods"},
		{Source: node.path("log", "containers"), Target: "/var/log/containers"},
		{Source: node.path("run", "containerd"), Target: "/run/containerd"},
		{Source: node.path("run", "netns"), Target: "/run/netns"},
	}
	var targets []string
	for _, bind := range folders {
		if err := os.MkdirAll(bind.Source, 0o755); err != nil {
			return nil, err
		}
		targets = append(targets, bind.Target)
	}
	if err := c.registry.MakeMountPoints(ctx, targets); err != nil {
		return nil, err
	}
	settings, err := kernelSettings(node)
	return append(folders, settings...), err
}

// kernelSettings covers the settings of the whole machine that the kubelet sets as it likes: it writes to plain files
// instead, and the machine keeps its own values.
func kernelSettings(node node) ([]daemon.Bind, error) {
	var binds []daemon.Bind
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		target := filepath.Join("/proc/sys", setting)
		value, err := os.ReadFile(target)
		if err != nil {
			return nil, err
		}
		source := node.path("run", "sysctl", strings.ReplaceAll(setting, "/", "."))
		if err := replaceFile(source, value, 0o644); err != nil {
			return nil, err
		}
		binds = append(binds, daemon.Bind{Source: source, Target: target})
	}
	return binds, nil
}
