package fleet

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// ClientService is where users, load balancers and ingresses connect: the ready pods, or during a rollout those of them that stay.
func ClientService(c *v1alpha1.LiveStashCluster, in render.Inputs) *corev1.Service {
	service := &corev1.Service{
		TypeMeta:   render.ServiceType,
		ObjectMeta: render.ObjectMeta(c, c.Name),
		Spec: corev1.ServiceSpec{
			Type:     c.Spec.HTTP.Service.Type,
			Selector: render.SelectorLabels(c),
			Ports:    []corev1.ServicePort{render.ServicePort(HTTPPort, c.Spec.HTTP.Service.Port, HTTPPort)},
		},
	}
	if in.Revision != "" {
		service.Spec.Selector[appsv1.StatefulSetRevisionLabel] = in.Revision
	}
	service.Annotations = c.Spec.HTTP.Service.Annotations
	return service
}
