package runner

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// NetworkPolicy opens k6's API, which asks nobody who they are, to those who start the test: the operator, k6-operator, which may be in any
// namespace, and its starter, which is a pod of the test. Nobody else connects to a runner.
func NetworkPolicy(test Test, operatorNamespace string) *networkingv1.NetworkPolicy {
	named := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}}
	}
	ours := metav1.LabelSelector{MatchLabels: map[string]string{TestLabel: test.Name}}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   render.NetworkPolicyType,
		ObjectMeta: test.meta(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: ours,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: render.PolicyPorts(apiPort),
				From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &ours},
					{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: named("k6-operator")},
					{
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: operatorNamespace}},
						PodSelector:       named("livestash-operator"),
					},
				},
			}},
		},
	}
}
