package render

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// ClusterLabel is on every object of a fleet; its value is the LiveStashCluster's name.
	ClusterLabel = "livestash.dev/cluster"

	// ManagedByLabel is on every object of a fleet; its value is Operator.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// Operator is this operator's name.
	Operator = "livestash-operator"

	// AppliedAnnotation is on every object that the operator applies: a digest of it.
	AppliedAnnotation = "livestash.dev/applied"
	// KeptAnnotation is on an object that outlives its LiveStashCluster, and has no owner for that reason: see KeptFor.
	KeptAnnotation = "livestash.dev/kept-for"

	// ComponentLabel tells a fleet's own pods from those of its Redis.
	ComponentLabel = "app.kubernetes.io/component"
	// FleetComponent is the ComponentLabel of the pods that serve.
	FleetComponent = "fleet"
	// BeforeComponent is the ComponentLabel of the pods of the Job that runs before a rollout.
	BeforeComponent = "before"
	// RedisComponent is the ComponentLabel of the pods of Redis.
	RedisComponent = "redis"
)

// HeadlessName is the name of the Service that gives pods their DNS names.
func HeadlessName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-nodes" }

// Labels are the labels of every object of a fleet.
func Labels(c *v1alpha1.LiveStashCluster) map[string]string {
	labels := SelectorLabels(c)
	labels["app.kubernetes.io/part-of"] = "livestash"
	labels[ManagedByLabel] = Operator
	return labels
}

// SelectorLabels are the labels that select a fleet's pods. They can never change: a StatefulSet's selector is fixed.
func SelectorLabels(c *v1alpha1.LiveStashCluster) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":     "liveview",
		"app.kubernetes.io/instance": c.Name,
		ComponentLabel:               FleetComponent,
		ClusterLabel:                 c.Name,
	}
}

// Selector selects a fleet's pods.
func Selector(c *v1alpha1.LiveStashCluster) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: SelectorLabels(c)}
}

// ObjectMeta is that of an object of the fleet.
func ObjectMeta(c *v1alpha1.LiveStashCluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: Labels(c)}
}

// ServiceHost is the DNS name of a Service. Every pod's host name ends with the headless one's.
func ServiceHost(c *v1alpha1.LiveStashCluster, in Inputs, service string) string {
	return fmt.Sprintf("%s.%s.svc.%s", service, c.Namespace, in.ClusterDomain)
}
