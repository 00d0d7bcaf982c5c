package render

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// ServicePort is a port of a Service that leads to the pods' port of that name.
func ServicePort(name string, port int32, target string) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(target)}
}

// PolicyPorts are those TCP ports in a NetworkPolicy.
func PolicyPorts(ports ...int32) []networkingv1.NetworkPolicyPort {
	policy := make([]networkingv1.NetworkPolicyPort, 0, len(ports))
	for _, port := range ports {
		policy = append(policy, networkingv1.NetworkPolicyPort{
			Protocol: ptr.To(corev1.ProtocolTCP),
			Port:     ptr.To(intstr.FromInt32(port)),
		})
	}
	return policy
}

// ReadersOnly admits those who may read what agents and exporters tell: the operator's namespace and the readers'. Nil, which is
// everybody: that is wanted, or nobody knows where the operator's questions come from, because it runs outside of the cluster.
func ReadersOnly(in Inputs) []networkingv1.NetworkPolicyPeer {
	if in.OperatorNamespace == "" || slices.Contains(in.Readers, AllNamespaces) {
		return nil
	}
	namespaces := append([]string{in.OperatorNamespace}, in.Readers...)
	slices.Sort(namespaces)
	return []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: slices.Compact(namespaces),
		}},
	}}}
}

// LockedDown is the security context of a container that needs nothing and writes nothing but its volumes.
func LockedDown() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// TopologySpread keeps pods on different nodes and zones, so that losing one of them loses as few sessions as possible.
func TopologySpread(c *v1alpha1.LiveStashCluster) []corev1.TopologySpreadConstraint {
	if c.Spec.TopologySpread == v1alpha1.SpreadDisabled {
		return nil
	}
	overNodes := corev1.ScheduleAnyway
	if c.Spec.TopologySpread == v1alpha1.SpreadDoNotSchedule {
		overNodes = corev1.DoNotSchedule
	}
	return []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: overNodes, LabelSelector: Selector(c)},
		{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: Selector(c)},
	}
}

// Value is an environment variable with a fixed value.
func Value(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

// Merged is the union of two maps; on a clash the second wins.
func Merged(first, second map[string]string) map[string]string {
	union := maps.Clone(first)
	if union == nil {
		union = map[string]string{}
	}
	maps.Copy(union, second)
	return union
}

// RandomText is n random bytes as text. Hexadecimal, so that it is fit for a command line and a URL.
func RandomText(n int) []byte {
	random := make([]byte, n)
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(random)
	return []byte(hex.EncodeToString(random))
}
