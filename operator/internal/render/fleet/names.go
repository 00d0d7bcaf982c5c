package fleet

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const (
	// AppContainer is the name of the application's container.
	AppContainer = "app"

	// HTTPPort is the name of that container's port for users.
	HTTPPort = "http"
	// DistributionPort is the name of its port for the other nodes.
	DistributionPort = "distribution"
	// AgentPort is the name of its agent's port.
	AgentPort = "agent"

	// SecretsDigestAnnotation is on the pods: render.Inputs.SecretsDigest.
	SecretsDigestAnnotation = "livestash.dev/secrets-digest"

	// ConfigDigestAnnotation is on the pods of a fleet that names ConfigMaps or Secrets: render.Inputs.ConfigDigest.
	ConfigDigestAnnotation = "livestash.dev/config-digest"
	// RejectedAnnotation is on the StatefulSet: render.Inputs.Rejected.
	RejectedAnnotation = "livestash.dev/rejected"
	// CookieAnnotation is on the StatefulSet: render.Inputs.Cookie.
	CookieAnnotation = "livestash.dev/cookie"
	// SecretKeyBaseAnnotation is on the StatefulSet: render.Inputs.SecretKeyBase.
	SecretKeyBaseAnnotation = "livestash.dev/secret-key-base"

	// StoreAnnotation is on the pods of a fleet with Redis: which store they use, as a digest.
	StoreAnnotation = "livestash.dev/store"

	// PreparedAnnotation is on the StatefulSet, and on the ServiceAccount of a fleet with spec.rollout.before: the digests of the templates that need no run of spec.rollout.before, because it has
	// succeeded for them or because they were rolled out without.
	PreparedAnnotation = "livestash.dev/prepared"
	// TemplateAnnotation is on the Job that runs before a rollout: the digest of the template that it runs for.
	TemplateAnnotation = "livestash.dev/template"
	// AttemptAnnotation is on it too: the digest of the template and of spec.rollout.before.
	AttemptAnnotation = "livestash.dev/attempt"

	// maxNodeName is how long a BEAM node name can be: it is an atom.
	maxNodeName = 255
)

// SecretName is the name of the Secret with the generated values.
func SecretName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-secrets" }

// CookieSecretName is the name of the Secret with the generated cookie, which each generation but the first has for itself.
func CookieSecretName(c *v1alpha1.LiveStashCluster) string {
	if generation := ptr.Deref(c.Spec.Clustering.CookieGeneration, 1); generation > 1 {
		return fmt.Sprintf("%s-cookie-%d", c.Name, generation)
	}
	return SecretName(c)
}

// SecretKeyBaseSecretName is the same for the generated SECRET_KEY_BASE.
func SecretKeyBaseSecretName(c *v1alpha1.LiveStashCluster) string {
	if generation := ptr.Deref(c.Spec.SecretKeyBaseGeneration, 1); generation > 1 {
		return fmt.Sprintf("%s-secret-key-base-%d", c.Name, generation)
	}
	return SecretName(c)
}

// BeforeName is the name of the Job that runs before a rollout. There is one name, so that there are never two of them.
func BeforeName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-before" }

// NodeName is the BEAM node name of a pod. Its part before the @ is the LiveStashCluster's name.
func NodeName(c *v1alpha1.LiveStashCluster, in render.Inputs, pod string) string {
	return fmt.Sprintf("%s@%s.%s", c.Name, pod, render.ServiceHost(c, in, render.HeadlessName(c)))
}

// PodURLs are the web addresses of the fleet's single pods, of which the first has the ordinal in.Start.
func PodURLs(c *v1alpha1.LiveStashCluster, in render.Inputs) []string {
	urls := make([]string, 0, c.DesiredReplicas())
	for number := range c.DesiredReplicas() {
		urls = append(urls, fmt.Sprintf("http://%s-%d.%s:%d", c.Name, in.Start+number, render.ServiceHost(c, in, render.HeadlessName(c)), c.Spec.HTTP.Port))
	}
	return urls
}

// ServiceURL is the web address of the client Service.
func ServiceURL(c *v1alpha1.LiveStashCluster, in render.Inputs) string {
	return fmt.Sprintf("http://%s:%d", render.ServiceHost(c, in, c.Name), c.Spec.HTTP.Service.Port)
}

// checkNodeNames refuses names that only become too long with the namespace and the domain, which the API's own
// validation cannot see.
func checkNodeNames(c *v1alpha1.LiveStashCluster, in render.Inputs) error {
	last := fmt.Sprintf("%s-%d", c.Name, max(c.DesiredReplicas()-1, 0))
	if name := NodeName(c, in, last); len(name) > maxNodeName {
		return render.SpecErrorf("the BEAM node name %s has %d characters and the most is %d: use a LiveStashCluster or namespace with a shorter name",
			name, len(name), maxNodeName)
	}
	return nil
}
