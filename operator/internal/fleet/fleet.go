// Package fleet renders a LiveStashCluster into the objects it wants: one file per object, no client, no clock.
package fleet

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Inputs is what rendering needs besides the LiveStashCluster.
type Inputs struct {
	// ClusterDomain is the DNS domain of the Kubernetes cluster, for example cluster.local.
	ClusterDomain string

	// AgentImage is the image that holds the agent and its helper: the operator's own.
	AgentImage string

	// RedisImage and RedisExporterImage are the images of the Redis that this operator runs, unless the spec names others.
	RedisImage, RedisExporterImage string

	// RedisAccessUID is that of the Secret with the users of the Redis that this operator runs.
	RedisAccessUID string

	// OperatorNamespace is where the operator's own pods are. Empty when it runs outside of the cluster.
	OperatorNamespace string

	// StoreDigest is RedisStore's: which store the pods use.
	StoreDigest string

	// StoreLeft is whether pods with another store are still there. Until they are gone, there are to be no others.
	StoreLeft bool

	// SecretsDigest changes when a value that pods read from a Secret changes, so that pods are replaced then.
	SecretsDigest string
}

// Render returns the objects that the LiveStashCluster wants, in the order in which they should be made: what pods
// need comes before the pods. The Secret is not among them, because its content is not a function of the spec: see
// GeneratedSecret. An error is a *SpecError: it speaks to the user.
func Render(c *v1alpha1.LiveStashCluster, in Inputs) ([]client.Object, error) {
	if err := checkNodeNames(c, in); err != nil {
		return nil, err
	}

	statefulSet, err := StatefulSet(c, in)
	if err != nil {
		return nil, err
	}

	objects := []client.Object{ServiceAccount(c), HeadlessService(c)}
	if options := DistributionOptions(c, in); options != nil {
		objects = append(objects, options)
	}
	if policy := NetworkPolicy(c); policy != nil {
		objects = append(objects, policy)
	}
	objects = append(objects, managedRedis(c, in)...)
	if config := RedisOperatedConfig(c); config != nil {
		objects = append(objects, config)
	}
	objects = append(objects, statefulSet, ClientService(c))
	// After the pods: a budget without pods makes the disruption controller complain in an event.
	if budget := PodDisruptionBudget(c); budget != nil {
		objects = append(objects, budget)
	}
	for _, object := range objects {
		object.SetOwnerReferences([]metav1.OwnerReference{ownerReference(c)})
	}
	return objects, nil
}

// SpecError is a spec that cannot be rendered. Its message says what to change.
type SpecError struct{ message string }

func (e *SpecError) Error() string { return e.message }

func specErrorf(format string, args ...any) *SpecError {
	return &SpecError{message: fmt.Sprintf(format, args...)}
}

// ownerReference makes the LiveStashCluster the one controller of an object, so that it is deleted with it.
func ownerReference(c *v1alpha1.LiveStashCluster) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("LiveStashCluster"))
}

func typeMeta(gv schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gv.String(), Kind: kind}
}

// Server-side apply needs the type in every object.
var (
	statefulSetType           = typeMeta(appsv1.SchemeGroupVersion, "StatefulSet")
	serviceType               = typeMeta(corev1.SchemeGroupVersion, "Service")
	serviceAccountType        = typeMeta(corev1.SchemeGroupVersion, "ServiceAccount")
	configMapType             = typeMeta(corev1.SchemeGroupVersion, "ConfigMap")
	secretType                = typeMeta(corev1.SchemeGroupVersion, "Secret")
	persistentVolumeClaimType = typeMeta(corev1.SchemeGroupVersion, "PersistentVolumeClaim")
	networkPolicyType         = typeMeta(networkingv1.SchemeGroupVersion, "NetworkPolicy")
	podDisruptionBudgetType   = typeMeta(policyv1.SchemeGroupVersion, "PodDisruptionBudget")
)
