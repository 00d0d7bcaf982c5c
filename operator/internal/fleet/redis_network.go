package fleet

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// RedisService is the address of the Redis that this operator runs. It stays the same when the pod moves.
func RedisService(c *v1alpha1.LiveStashCluster) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   serviceType,
		ObjectMeta: redisMeta(c, RedisName(c)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: redisLabels(c),
			Ports:    []corev1.ServicePort{servicePort("redis", redisPort, "redis")},
		},
	}
}

// RedisNetworkPolicy opens Redis to the fleet's pods, and to the operator, which tells it a new password. Its exporter is open
// to all, like the metrics of the fleet. Nil when spec.networkPolicy is disabled.
func RedisNetworkPolicy(c *v1alpha1.LiveStashCluster, in Inputs) *networkingv1.NetworkPolicy {
	if !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	admitted := []networkingv1.NetworkPolicyPeer{{PodSelector: Selector(c)}}
	if in.OperatorNamespace != "" {
		admitted = append(admitted, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in.OperatorNamespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "livestash-operator"}},
		})
	}
	ingress := []networkingv1.NetworkPolicyIngressRule{{Ports: policyPorts(redisPort), From: admitted}}
	if store.ManagedRedis(c).ExporterEnabled() {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{Ports: policyPorts(exporterPort)})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   networkPolicyType,
		ObjectMeta: redisMeta(c, RedisName(c)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: redisLabels(c)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     ingress,
		},
	}
}
