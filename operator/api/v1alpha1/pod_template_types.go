package v1alpha1

import corev1 "k8s.io/api/core/v1"

// PodTemplateOverride is merged over the pods that the operator makes.
type PodTemplateOverride struct {
	// metadata adds labels and annotations to the pods.
	// +optional
	Metadata PodMetadataOverride `json:"metadata,omitempty"`

	// spec is a strategic merge patch for the pods' spec: any field of a PodSpec, lists merged by their keys as
	// `kubectl patch` does. Entries of containers other than `app` are sidecars. What is more than the namespace's, such as hostPath,
	// hostPID, privileged or added capabilities, makes ReconcileSucceeded False with the reason InvalidSpec, unless whoever runs the
	// operator allows it to all fleets (allowPrivilegedPodTemplates of its chart).
	// +optional
	Spec *PodSpecOverride `json:"spec,omitempty"`
}

// ServiceAccountSpec is the identity of a fleet's pods.
type ServiceAccountSpec struct {
	// annotations are added to the ServiceAccount, for example eks.amazonaws.com/role-arn or iam.gke.io/gcp-service-account, by which a
	// cloud knows who the pods are. Those under livestash.dev/ are the operator's. Pods that run keep what they got. Default none.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('livestash.dev/'))",message="serviceAccount.annotations must not set livestash.dev/*: those are the operator's"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodMetadataOverride adds labels and annotations to the pods.
type PodMetadataOverride struct {
	// labels are added to the pods. Those of the selector and livestash.dev/ are the operator's.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k in ['app.kubernetes.io/name', 'app.kubernetes.io/instance', 'app.kubernetes.io/component', 'app.kubernetes.io/part-of', 'app.kubernetes.io/managed-by'] || k.startsWith('livestash.dev/'))",message="podTemplate.metadata.labels must not set app.kubernetes.io/{name,instance,component,part-of,managed-by} or livestash.dev/*: the selector is made of them; use other labels"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the pods. Those under livestash.dev/ are the operator's.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('livestash.dev/'))",message="podTemplate.metadata.annotations must not set livestash.dev/*: those are the operator's"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodSpecOverride is a strategic merge patch for a PodSpec. The fields named here are those that are checked when the
// LiveStashCluster is applied; every other field of a PodSpec may be given too and is kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.hostname) && !has(self.subdomain) && !has(self.hostNetwork)",message="podTemplate.spec must not set hostname, subdomain or hostNetwork: they are the pod's identity in the BEAM cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccountName) && !has(self.serviceAccount)",message="podTemplate.spec must not set serviceAccountName or serviceAccount: the pods run as the ServiceAccount of the LiveStashCluster's name; bind what they need to that one, and set a cloud's identity in spec.serviceAccount.annotations"
// +kubebuilder:validation:XValidation:rule="!has(self.terminationGracePeriodSeconds)",message="podTemplate.spec must not set terminationGracePeriodSeconds: set spec.drain.gracePeriod"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || self.containers.all(c, c.name == 'app' || has(c.image))",message="podTemplate.spec.containers: the application's container is named app and cannot be renamed; a container with another name is a sidecar and needs an image"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || !self.containers.exists(c, c.name == 'app' && has(c.image))",message="podTemplate.spec.containers: set the image of the container app in spec.image"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || !self.containers.exists(c, c.name == 'app' && has(c.env))",message="podTemplate.spec.containers: set environment variables of the container app in spec.env"
type PodSpecOverride struct {
	// containers are merged by name: `app` is the application's, others are sidecars.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	// +optional
	Containers []ContainerOverride `json:"containers,omitempty"`

	// hostname is refused: it is the pod's identity.
	// +optional
	Hostname *string `json:"hostname,omitempty"`

	// subdomain is refused: it is the pod's identity.
	// +optional
	Subdomain *string `json:"subdomain,omitempty"`

	// hostNetwork is refused: pods of one node would share one address.
	// +optional
	HostNetwork *bool `json:"hostNetwork,omitempty"`

	// serviceAccountName is refused: it would lend another ServiceAccount's rights. See spec.serviceAccount.
	// +optional
	ServiceAccountName *string `json:"serviceAccountName,omitempty"`

	// serviceAccount is refused: it is the old name of serviceAccountName.
	// +optional
	ServiceAccount *string `json:"serviceAccount,omitempty"`

	// terminationGracePeriodSeconds is refused: it is spec.drain.gracePeriod.
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// raw is the patch as the user wrote it, unknown fields included.
	raw []byte `json:"-"`
}

// ContainerOverride is merged over a container of the pods, by name.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainerOverride struct {
	// name of the container: `app` is the application's.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// image of a sidecar. The application's is spec.image.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image *string `json:"image,omitempty"`

	// env of a sidecar. The application's is spec.env.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
}
