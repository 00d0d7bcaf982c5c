package redis

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Service is the address of the Redis that this operator runs. It stays the same when the pod moves.
func Service(c *v1alpha1.LiveStashCluster) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   render.ServiceType,
		ObjectMeta: objectMeta(c, Name(c)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: selectorLabels(c),
			Ports:    []corev1.ServicePort{render.ServicePort("redis", redisPort, "redis")},
		},
	}
}

// NetworkPolicy opens Redis to the fleet's pods, and to the operator, which tells it a new password. Its exporter is open
// to those who may read the fleet's metrics. Nil when spec.networkPolicy is disabled.
func NetworkPolicy(c *v1alpha1.LiveStashCluster, in render.Inputs) *networkingv1.NetworkPolicy {
	if !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	admitted := []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}}
	if in.OperatorNamespace != "" {
		admitted = append(admitted, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in.OperatorNamespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "livestash-operator"}},
		})
	}
	ingress := []networkingv1.NetworkPolicyIngressRule{{Ports: render.PolicyPorts(redisPort), From: admitted}}
	if store.ManagedRedis(c).ExporterEnabled() {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{Ports: render.PolicyPorts(exporterPort), From: render.ReadersOnly(in)})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   render.NetworkPolicyType,
		ObjectMeta: objectMeta(c, Name(c)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: selectorLabels(c)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     ingress,
		},
	}
}
