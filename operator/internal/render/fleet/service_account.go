package fleet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// ServiceAccount is the pods' identity. They get no token: nothing in a fleet talks to the Kubernetes API.
func ServiceAccount(c *v1alpha1.LiveStashCluster) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:                     render.ServiceAccountType,
		ObjectMeta:                   render.ObjectMeta(c, c.Name),
		AutomountServiceAccountToken: ptr.To(false),
	}
}
