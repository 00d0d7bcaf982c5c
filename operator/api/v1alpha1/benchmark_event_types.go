package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BenchmarkEvent is something that is done to the fleet in the middle of every run.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'Scale') == has(self.replicas)",message="replicas and kind Scale go together: set both, or neither",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.kind == 'Rollout' || !has(self.image)",message="image is for kind Rollout, which is what brings another image: remove it, or set kind Rollout",fieldPath=".image"
type BenchmarkEvent struct {
	// at is when it begins, counted from the start of the load: whole seconds from 10s on.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('10s') && duration(self) <= duration('72h')",message="at must be whole seconds from 10s to 72h with a unit, for example 1m: it counts from the start of the load"
	// +required
	At metav1.Duration `json:"at"`

	// kind of event. Rollout: the fleet is deployed anew, with another environment or with image. DeletePod: one pod is deleted, and has the time
	// to stop that every pod has. Scale: the fleet gets replicas pods.
	// +required
	Kind BenchmarkEventKind `json:"kind"`

	// within is until when the event must be over, counted from at: all pods ready, clustered, and the store there, as before. A run in which it
	// is not is Errored. A return that is to begin meanwhile, or in the 5 s before, is one during the event. Default 2m.
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('10s') && duration(self) <= duration('72h')",message="within must be whole seconds from 10s to 72h with a unit, for example 2m"
	// +optional
	Within *metav1.Duration `json:"within,omitempty"`

	// replicas are the pods that the fleet is to have then, with kind Scale, which needs it. From 1 to 1000.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000",message="replicas must be from 1 to 1000: without a pod nobody can come back"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image that is deployed, with kind Rollout. Default: the one that the fleet has, with another environment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`
}

// BenchmarkEventKind is what is done to a fleet.
//
// +kubebuilder:validation:Enum=Rollout;DeletePod;Scale
type BenchmarkEventKind string

// The kinds of events.
const (
	// EventRollout: the fleet is deployed anew.
	EventRollout BenchmarkEventKind = "Rollout"
	// EventDeletePod: one pod is deleted.
	EventDeletePod BenchmarkEventKind = "DeletePod"
	// EventScale: the fleet gets another number of pods.
	EventScale BenchmarkEventKind = "Scale"
)
