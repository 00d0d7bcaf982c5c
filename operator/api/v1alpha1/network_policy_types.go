package v1alpha1

import networkingv1 "k8s.io/api/networking/v1"

// NetworkPolicySpec restricts who reaches the pods. It works where the cluster's network plugin enforces NetworkPolicies.
//
// +kubebuilder:validation:XValidation:rule="self.enabled || !has(self.egress)",message="egress is only read with enabled: true: set it, or remove egress"
type NetworkPolicySpec struct {
	// enabled makes a NetworkPolicy: the HTTP port is open, the agent's is open to the operator's namespace and to those that the operator
	// was told (agentReaders of its chart, Prometheus'), epmd and Erlang distribution to the fleet's own pods only, everything else is
	// closed. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// egress restricts what the pods connect to: DNS, the fleet's own pods, the Redis that an operator runs for the fleet, and what it
	// allows. Default: not restricted.
	// +optional
	Egress *EgressSpec `json:"egress,omitempty"`
}

// EgressSpec is what a fleet's pods may connect to, besides DNS (port 53 of any address), each other, and their Redis when this operator or
// redis-operator runs it. Pods of spec.rollout.before are not restricted.
type EgressSpec struct {
	// allow are rules as those of a NetworkPolicy: the application's database, other services, an external Redis. A rule without ports is about
	// all ports, one without to about all addresses. Without its external Redis, no pod starts. Default none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Allow []networkingv1.NetworkPolicyEgressRule `json:"allow,omitempty"`
}
