package fleet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// ServiceAccount is the pods' identity, and their cloud's by its annotations. They get no token: nothing in a fleet talks to the Kubernetes API. Where something runs before
// a rollout, it also keeps for which templates that needs not be: it is there before the first pod, and stays.
func ServiceAccount(c *v1alpha1.LiveStashCluster, in render.Inputs) *corev1.ServiceAccount {
	meta := render.ObjectMeta(c, c.Name)
	meta.Annotations = c.Spec.ServiceAccount.Annotations
	if c.Spec.Rollout.Before != nil {
		meta.Annotations = render.Merged(meta.Annotations, preparedAnnotation(in))
	}
	return &corev1.ServiceAccount{
		TypeMeta:                     render.ServiceAccountType,
		ObjectMeta:                   meta,
		AutomountServiceAccountToken: ptr.To(false),
	}
}
