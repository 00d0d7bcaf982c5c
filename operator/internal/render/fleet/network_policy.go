package fleet

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// NetworkPolicy opens the HTTP port and the agent's to all, and epmd and Erlang distribution to the fleet's own pods: whoever reaches
// those two and knows the cookie can run code in the pods. Nil when it is disabled.
func NetworkPolicy(c *v1alpha1.LiveStashCluster) *networkingv1.NetworkPolicy {
	if !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	open := []int32{c.Spec.HTTP.Port}
	if c.AgentEnabled() {
		// The operator and a Prometheus of the user's own read it; nothing can be changed through it.
		open = append(open, c.Spec.Agent.Port)
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   render.NetworkPolicyType,
		ObjectMeta: render.ObjectMeta(c, c.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *render.Selector(c),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: render.PolicyPorts(open...)},
				{
					Ports: render.PolicyPorts(epmdPort, c.Spec.Clustering.DistributionPort),
					From:  []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}},
				},
			},
		},
	}
}
