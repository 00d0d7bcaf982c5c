package policy

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Guard is what a node asks about one of its pods.
type Guard struct {
	Pod Pod
	// Ingress and Egress say who may come and where the pod may go. Nil: no policy says anything, so everybody and everywhere.
	Ingress, Egress *Rules
}

// Rules allow what one of them allows.
type Rules []Allow

// Allow is one rule: these peers, at these ports.
type Allow struct {
	// Peers are the other side's addresses; Anybody allows all.
	Peers   []Block
	Anybody bool
	// Ports are those of the receiver; AnyPort allows all, of every protocol.
	Ports   []Ports
	AnyPort bool
}

// Block is a range of addresses without some parts of it.
type Block struct {
	Range  netip.Prefix
	Except []netip.Prefix
}

// Ports are those from First to Last, both included, of one protocol.
type Ports struct {
	Protocol    corev1.Protocol
	First, Last uint16
}

const lastPort = 65535

// Compile says what the node asks about those of its pods that a policy selects, and about those that none does.
// The addresses of its pods are in the range.
func Compile(world World, ofNode netip.Prefix) ([]Guard, error) {
	var guards []Guard
	for _, pod := range world.Pods {
		if !ofNode.Contains(pod.IP) {
			continue
		}
		guard := Guard{Pod: pod}
		for _, policy := range world.Policies {
			if err := guard.add(world, policy); err != nil {
				return nil, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
		}
		guards = append(guards, guard)
	}
	return guards, nil
}

// add adds what the policy says about the pod.
func (g *Guard) add(world World, policy *networkingv1.NetworkPolicy) error {
	selected, err := selects(&policy.Spec.PodSelector, g.Pod.Labels)
	if err != nil || !selected || policy.Namespace != g.Pod.Namespace {
		return err
	}
	if speaksOf(policy, networkingv1.PolicyTypeIngress) {
		g.Ingress = isolated(g.Ingress)
		for _, rule := range policy.Spec.Ingress {
			if err := g.addIngress(world, policy.Namespace, rule); err != nil {
				return err
			}
		}
	}
	if speaksOf(policy, networkingv1.PolicyTypeEgress) {
		g.Egress = isolated(g.Egress)
		for _, rule := range policy.Spec.Egress {
			if err := g.addEgress(world, policy.Namespace, rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// isolated returns rules that allow nothing unless there are some already.
func isolated(rules *Rules) *Rules {
	if rules == nil {
		return &Rules{}
	}
	return rules
}

// speaksOf says whether the policy is about the direction. Without a list it is about ingress, and about egress when it has
// rules for it.
func speaksOf(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(policy.Spec.PolicyTypes) > 0 {
		return slices.Contains(policy.Spec.PolicyTypes, direction)
	}
	return direction == networkingv1.PolicyTypeIngress || len(policy.Spec.Egress) > 0
}

// addIngress reads names of ports as those of the pod itself.
func (g *Guard) addIngress(world World, namespace string, rule networkingv1.NetworkPolicyIngressRule) error {
	pods, blocks, err := resolve(world, namespace, rule.From)
	if err != nil {
		return err
	}
	allow := Allow{Anybody: len(rule.From) == 0, AnyPort: len(rule.Ports) == 0, Peers: append(addresses(pods), blocks...)}
	for _, port := range rule.Ports {
		if found, ok := portsOf(port, g.Pod); ok {
			allow.Ports = append(allow.Ports, found)
		}
	}
	*g.Ingress = append(*g.Ingress, allow)
	return nil
}

// addEgress reads names of ports as those of each receiver, which only pods have: a rule with names becomes one for each.
func (g *Guard) addEgress(world World, namespace string, rule networkingv1.NetworkPolicyEgressRule) error {
	pods, blocks, err := resolve(world, namespace, rule.To)
	if err != nil {
		return err
	}
	allow := Allow{Anybody: len(rule.To) == 0, AnyPort: len(rule.Ports) == 0, Peers: append(addresses(pods), blocks...)}
	for _, port := range rule.Ports {
		if !isNamed(port) {
			found, _ := portsOf(port, Pod{})
			allow.Ports = append(allow.Ports, found)
			continue
		}
		for _, receiver := range world.Pods {
			if found, ok := portsOf(port, receiver); ok && allow.means(receiver.IP) {
				*g.Egress = append(*g.Egress, Allow{Peers: addresses([]Pod{receiver}), Ports: []Ports{found}})
			}
		}
	}
	*g.Egress = append(*g.Egress, allow)
	return nil
}

// means says whether the address is one of the peers'.
func (a Allow) means(peer netip.Addr) bool {
	return a.Anybody || slices.ContainsFunc(a.Peers, func(block Block) bool {
		return block.Range.Contains(peer) &&
			!slices.ContainsFunc(block.Except, func(part netip.Prefix) bool { return part.Contains(peer) })
	})
}

func isNamed(port networkingv1.NetworkPolicyPort) bool {
	return port.Port != nil && port.Port.StrVal != ""
}

// portsOf reads what a policy says about ports, with names as those of the receiver. It returns false when that has no such
// port.
func portsOf(port networkingv1.NetworkPolicyPort, receiver Pod) (Ports, bool) {
	protocol := corev1.ProtocolTCP
	if port.Protocol != nil {
		protocol = *port.Protocol
	}
	switch {
	case port.Port == nil:
		return Ports{protocol, 1, lastPort}, true
	case isNamed(port):
		number, ok := receiver.port(port.Port.StrVal, protocol)
		return Ports{protocol, number, number}, ok
	case port.EndPort != nil:
		return Ports{protocol, uint16(port.Port.IntVal), uint16(*port.EndPort)}, true
	}
	return Ports{protocol, uint16(port.Port.IntVal), uint16(port.Port.IntVal)}, true
}

// resolve says who the peers of a rule are at this moment: pods, and ranges of addresses whoever has them.
func resolve(world World, namespace string, peers []networkingv1.NetworkPolicyPeer) (pods []Pod, blocks []Block, err error) {
	for _, peer := range peers {
		if peer.IPBlock != nil {
			block, err := blockOf(peer.IPBlock)
			if err != nil {
				return nil, nil, err
			}
			blocks = append(blocks, block)
			continue
		}
		for _, pod := range world.Pods {
			matches, err := isPeer(world, namespace, peer, pod)
			if err != nil {
				return nil, nil, err
			}
			if matches {
				pods = append(pods, pod)
			}
		}
	}
	return pods, blocks, nil
}

// isPeer says whether a peer's selectors mean the pod. Without a selector for namespaces they mean pods of the policy's own.
func isPeer(world World, namespace string, peer networkingv1.NetworkPolicyPeer, pod Pod) (bool, error) {
	inside := pod.Namespace == namespace
	if peer.NamespaceSelector != nil {
		var err error
		if inside, err = selects(peer.NamespaceSelector, world.Namespaces[pod.Namespace]); err != nil {
			return false, err
		}
	}
	if !inside || peer.PodSelector == nil {
		return inside, nil
	}
	return selects(peer.PodSelector, pod.Labels)
}

func selects(selector *metav1.LabelSelector, set labels.Set) (bool, error) {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return parsed.Matches(set), nil
}

func addresses(pods []Pod) []Block {
	var blocks []Block
	for _, pod := range pods {
		blocks = append(blocks, Block{Range: netip.PrefixFrom(pod.IP, pod.IP.BitLen())})
	}
	return blocks
}

func blockOf(block *networkingv1.IPBlock) (Block, error) {
	whole, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return Block{}, err
	}
	found := Block{Range: whole.Masked()}
	for _, text := range block.Except {
		part, err := netip.ParsePrefix(text)
		if err != nil {
			return Block{}, err
		}
		found.Except = append(found.Except, part.Masked())
	}
	return found, nil
}
