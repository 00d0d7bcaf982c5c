package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// dnsPort is that of DNS servers.
const dnsPort = 53

// NetworkPolicy opens the HTTP port to all, the agent's to the operator and to Prometheus, and epmd and Erlang distribution to the
// fleet's own pods: whoever reaches those two and knows the cookie can run code in the pods. Ports that pods of another template still listen on stay open as long.
// Nil when it is disabled.
func NetworkPolicy(c *v1alpha1.LiveStashCluster, in render.Inputs) *networkingv1.NetworkPolicy {
	if !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	open := distinct(append([]int32{c.Spec.HTTP.Port}, in.HeldPorts.HTTP...))
	ingress := []networkingv1.NetworkPolicyIngressRule{{Ports: render.PolicyPorts(open...)}}
	// A rule without ports would open all of them.
	if read := agentPorts(c, in); len(read) > 0 {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{Ports: render.PolicyPorts(read...), From: render.ReadersOnly(in)})
	}
	between := distinct(append([]int32{epmdPort, c.Spec.Clustering.DistributionPort}, in.HeldPorts.Distribution...))
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   render.NetworkPolicyType,
		ObjectMeta: render.ObjectMeta(c, c.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *render.Selector(c),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: append(ingress, networkingv1.NetworkPolicyIngressRule{
				Ports: render.PolicyPorts(between...),
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}},
			}),
		},
	}
	if egress := c.Spec.NetworkPolicy.Egress; egress != nil {
		policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		policy.Spec.Egress = append(ownEgress(c, between), egress.Allow...)
	}
	return policy
}

// ownEgress is what no fleet can do without: DNS, which has other addresses in each cluster, the nodes of the fleet, and its Redis.
func ownEgress(c *v1alpha1.LiveStashCluster, between []int32) []networkingv1.NetworkPolicyEgressRule {
	dns := render.PolicyPorts(dnsPort, dnsPort)
	dns[0].Protocol = ptr.To(corev1.ProtocolUDP)
	return []networkingv1.NetworkPolicyEgressRule{
		{Ports: dns},
		{Ports: render.PolicyPorts(between...), To: []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}}},
		redis.Egress(c),
	}
}

// agentPorts are those that agents listen on.
func agentPorts(c *v1alpha1.LiveStashCluster, in render.Inputs) []int32 {
	ports := slices.Clone(in.HeldPorts.Agent)
	if c.AgentEnabled() {
		ports = append(ports, c.Spec.Agent.Port)
	}
	return distinct(ports)
}

// distinct are the ports in order, each once.
func distinct(ports []int32) []int32 {
	slices.Sort(ports)
	return slices.Compact(ports)
}
