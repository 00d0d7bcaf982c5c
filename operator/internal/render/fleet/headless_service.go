package fleet

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const epmdPort = 4369

// HeadlessService gives every pod a stable DNS name and lists all pods in SRV records, which libcluster's
// Kubernetes.DNSSRV strategy reads. Pods are listed before they are ready: nodes must find each other to become ready.
// Nil when there are to be no pods: that the name is gone tells the last ones that nobody comes whom they could wait for.
func HeadlessService(c *v1alpha1.LiveStashCluster, in render.Inputs) *corev1.Service {
	if in.Replicas == 0 {
		return nil
	}
	return &corev1.Service{
		TypeMeta:   render.ServiceType,
		ObjectMeta: render.ObjectMeta(c, render.HeadlessName(c)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 render.SelectorLabels(c),
			Ports: []corev1.ServicePort{
				render.ServicePort(HTTPPort, c.Spec.HTTP.Port, HTTPPort),
				render.ServicePort("epmd", epmdPort, "epmd"),
				render.ServicePort(DistributionPort, c.Spec.Clustering.DistributionPort, DistributionPort),
			},
		},
	}
}
