package fleet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const epmdPort = 4369

// HeadlessService gives every pod a stable DNS name and lists all pods in SRV records, which libcluster's
// Kubernetes.DNSSRV strategy reads. Pods are listed before they are ready: nodes must find each other to become ready.
func HeadlessService(c *v1alpha1.LiveStashCluster) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   serviceType,
		ObjectMeta: objectMeta(c, HeadlessName(c)),
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 SelectorLabels(c),
			Ports: []corev1.ServicePort{
				servicePort("http", c.Spec.HTTP.Port, "http"),
				servicePort("epmd", epmdPort, "epmd"),
				servicePort("distribution", c.Spec.Clustering.DistributionPort, "distribution"),
			},
		},
	}
}

func servicePort(name string, port int32, target string) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(target)}
}
