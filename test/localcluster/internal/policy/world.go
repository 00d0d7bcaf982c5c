// Package policy enforces NetworkPolicies on one node: it compiles what the API server has into rules of nftables.
//
// A packet between pods passes the node of its sender, which asks the sender's egress rules, and that of its receiver, which
// asks the receiver's ingress rules. The node itself always reaches its pods, and they reach it, as the API promises: such
// packets are not forwarded, and nothing here looks at them.
package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// World is all that decides who may reach whom.
type World struct {
	// Namespaces maps their names to their labels.
	Namespaces map[string]labels.Set
	Pods       []Pod
	Policies   []*networkingv1.NetworkPolicy
}

// Pod is one that has an address of its own.
type Pod struct {
	Namespace, Name string
	Labels          labels.Set
	IP              netip.Addr
	Ports           []NamedPort
	// Born decides between two that have one address: the earlier pod is gone, and the API server has not heard of it yet.
	Born time.Time
}

// sort gives the same world the same rules, whatever order it was read in, and leaves each address to one pod.
func (w *World) sort() {
	slices.SortFunc(w.Pods, func(a, b Pod) int { return cmp.Or(a.IP.Compare(b.IP), b.Born.Compare(a.Born)) })
	w.Pods = slices.CompactFunc(w.Pods, func(a, b Pod) bool { return a.IP == b.IP })
	slices.SortFunc(w.Policies, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// NamedPort is what a policy can call by its name.
type NamedPort struct {
	Name     string
	Protocol corev1.Protocol
	Number   uint16
}

// FromAPI returns the pod, and false for one without an address of its own: on the network of its node, without an address
// yet, or ended, so that its address may be another's by now.
func FromAPI(pod *corev1.Pod) (Pod, bool) {
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	found := Pod{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, IP: ip, Born: pod.CreationTimestamp.Time}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			if port.Name != "" {
				found.Ports = append(found.Ports, NamedPort{port.Name, port.Protocol, uint16(port.ContainerPort)})
			}
		}
	}
	return found, true
}

// port is the number of the port that the pod has under this name.
func (p Pod) port(name string, protocol corev1.Protocol) (uint16, bool) {
	for _, port := range p.Ports {
		if port.Name == name && port.Protocol == protocol {
			return port.Number, true
		}
	}
	return 0, false
}
