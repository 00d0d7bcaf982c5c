package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestLikeTheOracle compares the compiler, which knows addresses, with an oracle that reads the policies as the API documents
// them, packet by packet, in worlds made at random.
func TestLikeTheOracle(t *testing.T) {
	allowed := map[bool]int{}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		world := randomWorld(random)
		guards := mustCompile(t, world)
		for _, from := range world.Pods {
			for _, to := range world.Pods {
				for _, port := range []uint16{1, 2, 3, 4} {
					protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[random.IntN(2)]
					want := oracle(world, from, to, protocol, port)
					allowed[want]++
					if got := passes(guards, from, to, protocol, port); got != want {
						t.Fatalf("seed %d: %s/%s reaches %s/%s at %s/%d: got %t, want %t, with\n%s", seed, from.Namespace, from.Name,
							to.Namespace, to.Name, protocol, port, got, want, Render(values(guards), everyNode))
					}
				}
			}
		}
	}
	if allowed[true] < 1000 || allowed[false] < 1000 {
		t.Errorf("too few of one kind: %v", allowed)
	}
}

func values(guards map[netip.Addr]Guard) []Guard {
	var list []Guard
	for _, guard := range guards {
		list = append(list, guard)
	}
	return list
}

// oracle says whether the API promises the packet a way.
func oracle(world World, from, to Pod, protocol corev1.Protocol, port uint16) bool {
	if from.IP == to.IP {
		return true
	}
	out, in := false, false
	mayLeave, mayCome := false, false
	for _, policy := range world.Policies {
		spec := policy.Spec
		for _, kind := range spec.PolicyTypes {
			if kind == networkingv1.PolicyTypeEgress && means(policy, spec.PodSelector, from) {
				out = true
				for _, rule := range spec.Egress {
					mayLeave = mayLeave || oneOf(world, policy, rule.To, to) && atPort(rule.Ports, to, protocol, port)
				}
			}
			if kind == networkingv1.PolicyTypeIngress && means(policy, spec.PodSelector, to) {
				in = true
				for _, rule := range spec.Ingress {
					mayCome = mayCome || oneOf(world, policy, rule.From, from) && atPort(rule.Ports, to, protocol, port)
				}
			}
		}
	}
	return (!out || mayLeave) && (!in || mayCome)
}

func means(policy *networkingv1.NetworkPolicy, selector metav1.LabelSelector, pod Pod) bool {
	return pod.Namespace == policy.Namespace && hasLabels(selector.MatchLabels, pod.Labels)
}

func hasLabels(wanted map[string]string, has labels.Set) bool {
	for key, value := range wanted {
		if has[key] != value {
			return false
		}
	}
	return true
}

func oneOf(world World, policy *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, pod Pod) bool {
	for _, peer := range peers {
		if peer.IPBlock != nil {
			inside := netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(pod.IP)
			for _, part := range peer.IPBlock.Except {
				inside = inside && !netip.MustParsePrefix(part).Contains(pod.IP)
			}
			if inside {
				return true
			}
			continue
		}
		namespace := pod.Namespace == policy.Namespace
		if peer.NamespaceSelector != nil {
			namespace = hasLabels(peer.NamespaceSelector.MatchLabels, world.Namespaces[pod.Namespace])
		}
		if namespace && (peer.PodSelector == nil || hasLabels(peer.PodSelector.MatchLabels, pod.Labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func atPort(ports []networkingv1.NetworkPolicyPort, receiver Pod, protocol corev1.Protocol, number uint16) bool {
	for _, port := range ports {
		if *port.Protocol != protocol {
			continue
		}
		if port.Port == nil {
			return true
		}
		for _, named := range receiver.Ports {
			if named.Name == port.Port.StrVal && named.Protocol == protocol && named.Number == number {
				return true
			}
		}
		first := uint16(port.Port.IntVal)
		last := first
		if port.EndPort != nil {
			last = uint16(*port.EndPort)
		}
		if port.Port.Type == intstr.Int && first <= number && number <= last {
			return true
		}
	}
	return len(ports) == 0
}

// Names are few, so that what is made at random often means something.
func randomWorld(random *rand.Rand) World {
	world := World{Namespaces: map[string]labels.Set{}}
	for i := range 3 {
		world.Namespaces[fmt.Sprint("n", i)] = labels.Set{"a": fmt.Sprint(random.IntN(2))}
	}
	for i := range 6 {
		pod := Pod{
			Namespace: fmt.Sprint("n", random.IntN(3)), Name: fmt.Sprint("p", i),
			Labels: labels.Set{"a": fmt.Sprint(random.IntN(2)), "b": fmt.Sprint(random.IntN(2))},
			IP:     netip.AddrFrom4([4]byte{10, 244, byte(random.IntN(3)), byte(10 + i)}),
		}
		if random.IntN(2) == 0 {
			pod.Ports = []NamedPort{{"web", randomProtocol(random), uint16(1 + random.IntN(4))}}
		}
		world.Pods = append(world.Pods, pod)
	}
	for i := range 1 + random.IntN(4) {
		policy := &networkingv1.NetworkPolicy{}
		policy.Namespace, policy.Name = fmt.Sprint("n", random.IntN(3)), fmt.Sprint("policy", i)
		policy.Spec.PodSelector = *randomSelector(random)
		if random.IntN(3) > 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		}
		if random.IntN(3) > 0 || len(policy.Spec.PolicyTypes) == 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
		for range random.IntN(3) {
			policy.Spec.Ingress = append(policy.Spec.Ingress,
				networkingv1.NetworkPolicyIngressRule{From: randomPeers(random), Ports: randomPorts(random)})
		}
		for range random.IntN(3) {
			policy.Spec.Egress = append(policy.Spec.Egress,
				networkingv1.NetworkPolicyEgressRule{To: randomPeers(random), Ports: randomPorts(random)})
		}
		world.Policies = append(world.Policies, policy)
	}
	return world
}

func randomProtocol(random *rand.Rand) corev1.Protocol {
	return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[random.IntN(2)]
}

func randomSelector(random *rand.Rand) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if random.IntN(3) > 0 {
		selector.MatchLabels = map[string]string{[]string{"a", "b"}[random.IntN(2)]: fmt.Sprint(random.IntN(2))}
	}
	return selector
}

func randomPeers(random *rand.Rand) []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for range random.IntN(3) {
		var peer networkingv1.NetworkPolicyPeer
		switch random.IntN(4) {
		case 0:
			peer.PodSelector = randomSelector(random)
		case 1:
			peer.NamespaceSelector = randomSelector(random)
		case 2:
			peer.PodSelector, peer.NamespaceSelector = randomSelector(random), randomSelector(random)
		case 3:
			peer.IPBlock = &networkingv1.IPBlock{
				CIDR:   []string{"10.244.0.0/24", "10.244.0.0/23", "10.244.2.10/32", "0.0.0.0/0"}[random.IntN(4)],
				Except: [][]string{nil, {"10.244.0.10/31"}, {"10.244.0.0/24", "10.244.0.12/32"}}[random.IntN(3)],
			}
		}
		peers = append(peers, peer)
	}
	return peers
}

func randomPorts(random *rand.Rand) []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for range random.IntN(3) {
		protocol := randomProtocol(random)
		port := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch random.IntN(4) {
		case 0:
			name := intstr.FromString("web")
			port.Port = &name
		case 1:
			number, last := intstr.FromInt32(int32(1+random.IntN(3))), int32(3+random.IntN(2))
			port.Port, port.EndPort = &number, &last
		case 2:
			number := intstr.FromInt32(int32(1 + random.IntN(4)))
			port.Port = &number
		}
		ports = append(ports, port)
	}
	return ports
}
