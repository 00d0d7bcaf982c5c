// Package render is what rendering has in common: a LiveStashCluster in, the objects it wants out, no client, no clock. Each of
// its folders renders one thing: the fleet, its Redis, its TLS.
package render

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

	// Redis is where the servers of that Redis are, unless it has a volume: see package succession.
	Redis RedisPlaces

	// RedisVolumeSize is the size that the volume of that Redis keeps. Nil: it has, or gets, the one that is wanted.
	RedisVolumeSize *resource.Quantity

	// OperatorNamespace is where the operator's own pods are. Empty when it runs outside of the cluster.
	OperatorNamespace string

	// Readers are the namespaces whose pods may read what agents and exporters tell, besides the operator's. AllNamespaces: anybody.
	Readers []string

	// MovesPods is whether the operator itself takes pods off nodes that are to be emptied.
	MovesPods bool

	// AllowPrivileged is whether pods may have what is more than their namespace's, such as the node's files.
	AllowPrivileged bool

	// StoreDigest tells which store the pods use.
	StoreDigest string

	// Replicas is how many pods the StatefulSet is to have now: see package rollout.
	Replicas int32

	// Start is the lowest ordinal that the StatefulSet is to have now.
	Start int32

	// Revision is that of the only pods that users are to get to now. Empty: they get to all that are ready.
	Revision string

	// Replacing is whether a pod that comes back gets the wanted template, though not all have been rolled out to it.
	Replacing bool

	// Rejected notes that the template which the StatefulSet has was rejected, and why. Empty: it was not.
	Rejected string

	// HeldPorts are those that pods of another template still listen on.
	HeldPorts Ports

	// Prepared are the digests of the templates that may be rolled out: see fleet.TemplateDigest.
	Prepared []string

	// SecretsDigest changes when a value that pods read from a Secret changes, so that pods are replaced then.
	SecretsDigest string

	// Cookie tells a change of the Erlang cookie, and nothing else about it.
	Cookie string

	// SecretKeyBase tells a change of SECRET_KEY_BASE, and nothing else about it.
	SecretKeyBase string

	// PreviousCookie is where the cookie is of pods that have not been replaced yet. Nil: all have the same.
	PreviousCookie *v1alpha1.SecretKeyReference

	// ConfigDigest changes when something changes that fleet.References names. Empty when there is nothing of that kind.
	ConfigDigest string
}

// AllNamespaces among the readers stands for every namespace.
const AllNamespaces = "*"

// RedisPlaces are the pods, 0 and 1, of a Redis that has no volume.
type RedisPlaces struct {
	// Serves is the one that the Service leads to.
	Serves int
	// Both is whether there are to be both, because one hands over to the other. Otherwise there is only Only.
	Both bool
	Only int
}

// Ports are ports of a fleet's pods.
type Ports struct {
	// HTTP is the application's, Agent the agent's, Distribution the BEAM node's.
	HTTP, Agent, Distribution []int32
}

// SpecError is a spec that cannot be rendered. Its message says what to change.
type SpecError struct{ message string }

func (e *SpecError) Error() string { return e.message }

// SpecErrorf is a SpecError with that message.
func SpecErrorf(format string, args ...any) *SpecError {
	return &SpecError{message: fmt.Sprintf(format, args...)}
}

// OwnerReference makes the LiveStashCluster the one controller of an object, so that it is deleted with it.
func OwnerReference(c *v1alpha1.LiveStashCluster) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("LiveStashCluster"))
}

// OwnOrKeep makes an object the LiveStashCluster's that spec.whenDeleted may let outlive it. The garbage collector deletes what has an owner
// that is gone, so what is kept has none.
func OwnOrKeep(c *v1alpha1.LiveStashCluster, object client.Object) {
	annotations := maps.Clone(object.GetAnnotations())
	if !c.Retains() {
		delete(annotations, KeptAnnotation)
		object.SetAnnotations(annotations)
		object.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(c)})
		return
	}
	object.SetAnnotations(Merged(annotations, map[string]string{KeptAnnotation: KeptFor(c, object)}))
	object.SetOwnerReferences(nil)
}

// KeptFor is what is noted on an object that is kept: the UID of the one whose it is, and the object's name, which a copy of it has not.
func KeptFor(owner, object metav1.Object) string {
	return string(owner.GetUID()) + "/" + object.GetName()
}

func typeMeta(gv schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gv.String(), Kind: kind}
}

// Server-side apply needs the type in every object.
var (
	StatefulSetType           = typeMeta(appsv1.SchemeGroupVersion, "StatefulSet")
	ServiceType               = typeMeta(corev1.SchemeGroupVersion, "Service")
	ServiceAccountType        = typeMeta(corev1.SchemeGroupVersion, "ServiceAccount")
	ConfigMapType             = typeMeta(corev1.SchemeGroupVersion, "ConfigMap")
	SecretType                = typeMeta(corev1.SchemeGroupVersion, "Secret")
	PersistentVolumeClaimType = typeMeta(corev1.SchemeGroupVersion, "PersistentVolumeClaim")
	NetworkPolicyType         = typeMeta(networkingv1.SchemeGroupVersion, "NetworkPolicy")
	JobType                   = typeMeta(batchv1.SchemeGroupVersion, "Job")
	PodDisruptionBudgetType   = typeMeta(policyv1.SchemeGroupVersion, "PodDisruptionBudget")
)

// StartOf is the lowest ordinal of a StatefulSet's pods.
func StartOf(set *appsv1.StatefulSet) int32 {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return set.Spec.Ordinals.Start
}
