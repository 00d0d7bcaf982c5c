package fleet

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// ClusterLabel is on every object of a fleet; its value is the LiveStashCluster's name.
	ClusterLabel = "livestash.dev/cluster"

	// AppContainer is the name of the application's container.
	AppContainer = "app"

	// SecretsDigestAnnotation is on the pods: Inputs.SecretsDigest.
	SecretsDigestAnnotation = "livestash.dev/secrets-digest"

	// maxNodeName is how long a BEAM node name can be: it is an atom.
	maxNodeName = 255
)

// HeadlessName is the name of the Service that gives pods their DNS names.
func HeadlessName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-nodes" }

// SecretName is the name of the Secret with the generated values.
func SecretName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-secrets" }

// Labels are the labels of every object of a fleet.
func Labels(c *v1alpha1.LiveStashCluster) map[string]string {
	labels := SelectorLabels(c)
	labels["app.kubernetes.io/part-of"] = "livestash"
	labels["app.kubernetes.io/managed-by"] = "livestash-operator"
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

func objectMeta(c *v1alpha1.LiveStashCluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: Labels(c)}
}

// serviceHost is the DNS name of a Service. Every pod's host name ends with the headless one's.
func serviceHost(c *v1alpha1.LiveStashCluster, in Inputs, service string) string {
	return fmt.Sprintf("%s.%s.svc.%s", service, c.Namespace, in.ClusterDomain)
}

// NodeName is the BEAM node name of a pod. Its part before the @ is the LiveStashCluster's name.
func NodeName(c *v1alpha1.LiveStashCluster, in Inputs, pod string) string {
	return fmt.Sprintf("%s@%s.%s", c.Name, pod, serviceHost(c, in, HeadlessName(c)))
}

// PodURLs are the web addresses of the fleet's single pods.
func PodURLs(c *v1alpha1.LiveStashCluster, in Inputs) []string {
	urls := make([]string, 0, c.DesiredReplicas())
	for ordinal := range c.DesiredReplicas() {
		urls = append(urls, fmt.Sprintf("http://%s-%d.%s:%d", c.Name, ordinal, serviceHost(c, in, HeadlessName(c)), c.Spec.HTTP.Port))
	}
	return urls
}

// ServiceURL is the web address of the client Service.
func ServiceURL(c *v1alpha1.LiveStashCluster, in Inputs) string {
	return fmt.Sprintf("http://%s:%d", serviceHost(c, in, c.Name), c.Spec.HTTP.Service.Port)
}

// checkNodeNames refuses names that only become too long with the namespace and the domain, which the API's own
// validation cannot see.
func checkNodeNames(c *v1alpha1.LiveStashCluster, in Inputs) error {
	last := fmt.Sprintf("%s-%d", c.Name, max(c.DesiredReplicas()-1, 0))
	if name := NodeName(c, in, last); len(name) > maxNodeName {
		return specErrorf("the BEAM node name %s has %d characters and the most is %d: use a LiveStashCluster or namespace with a shorter name",
			name, len(name), maxNodeName)
	}
	return nil
}
