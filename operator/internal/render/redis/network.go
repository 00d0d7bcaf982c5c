package redis

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Service is the address of the Redis that this operator runs. It stays the same when the pod moves, and when another pod takes its
// place.
func Service(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, in render.Inputs) *corev1.Service {
	selector := selectorLabels(c)
	if redis.Persistence == nil {
		selector[appsv1.StatefulSetPodNameLabel] = PodName(c, in.Redis.Serves)
	}
	return &corev1.Service{
		TypeMeta:   render.ServiceType,
		ObjectMeta: objectMeta(c, Name(c)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: selector,
			Ports:    []corev1.ServicePort{render.ServicePort("redis", redisPort, "redis")},
		},
	}
}

// sentinelPort is that of the Sentinels of redis-operator.
const sentinelPort = 26379

// OperatedNetworkPolicy opens the Redis that redis-operator runs to the fleet's pods, and to redis-operator, which may be in any namespace.
// Servers and Sentinels reach each other: Sentinels have no password. Nil when there is none, or spec.networkPolicy is disabled.
func OperatedNetworkPolicy(c *v1alpha1.LiveStashCluster) *networkingv1.NetworkPolicy {
	if store.OperatedRedis(c) == nil || !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	own := metav1.LabelSelector{MatchLabels: operatedLabels(c)}
	managers := []networkingv1.NetworkPolicyPeer{{PodSelector: &own}}
	// The labels of its chart's pods, of the same in other versions, and of its bundle for the Operator Lifecycle Manager.
	for _, label := range []string{"name", "app.kubernetes.io/name", "control-plane"} {
		managers = append(managers, networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{label: "redis-operator"}},
		})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   render.NetworkPolicyType,
		ObjectMeta: operatedMeta(c),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: own,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: render.PolicyPorts(redisPort), From: []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}}},
				{Ports: render.PolicyPorts(redisPort, sentinelPort), From: managers},
			},
		},
	}
}

// operatedLabels select the servers and Sentinels of the Redis that redis-operator runs.
func operatedLabels(c *v1alpha1.LiveStashCluster) map[string]string {
	return map[string]string{"app.kubernetes.io/name": operatedBy, render.ClusterLabel: c.Name}
}

// Egress is what the fleet's pods may connect to for their Redis: that of either operator, because pods of before use the Redis of before.
func Egress(c *v1alpha1.LiveStashCluster) networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		Ports: render.PolicyPorts(redisPort),
		To: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{MatchLabels: selectorLabels(c)}},
			{PodSelector: &metav1.LabelSelector{MatchLabels: operatedLabels(c)}},
		},
	}
}

// NetworkPolicy opens Redis to the fleet's pods, to the server that takes its place, and to the operator, which tells both. Its exporter is open
// to those who may read the fleet's metrics. Nil when spec.networkPolicy is disabled.
func NetworkPolicy(c *v1alpha1.LiveStashCluster, in render.Inputs) *networkingv1.NetworkPolicy {
	if !ptr.Deref(c.Spec.NetworkPolicy.Enabled, true) {
		return nil
	}
	admitted := []networkingv1.NetworkPolicyPeer{{PodSelector: render.Selector(c)}}
	if store.ManagedRedis(c).Persistence == nil {
		admitted = append(admitted, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: selectorLabels(c)}})
	}
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
