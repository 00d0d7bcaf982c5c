package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ShadowSpec are the copies of ETS stashes that other pods hold, for the case that a pod is killed.
type ShadowSpec struct {
	// enabled has the agents copy what changes to other pods, who take it over when a pod is killed without a word:
	// SIGKILL, out of memory, a lost machine. Its users then find what they had stashed, but for the last interval and
	// a second. A silent pod is given up after 8 seconds, unless clustering.netTickTime says otherwise. Default false.
	// +kubebuilder:default=false
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// interval is the time between two looks for changed stashes, from 100ms to 1m: what was stashed since the last one
	// is lost with a killed pod. Default 1s.
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="interval must be a duration from 100ms to 1m with a unit, for example 1s"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// copies is how many pods hold each stash besides its own, 1 or 2. With 2, two pods may be killed at the same
	// moment; each change is sent twice. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	// +optional
	Copies int32 `json:"copies,omitempty"`

	// maxBytes bounds what the copies take that a pod holds for others. Copies for which there is no room are refused:
	// those stashes are lost with their pod, and condition ShadowsCurrent says so. Reckon with it in
	// resources.limits.memory. Default 256Mi: some 110,000 copies of stashes of 2 kB, the size in which the published
	// benchmark's are sent.
	// +kubebuilder:default="256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="maxBytes must be a quantity, for example 256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('0')) >= 0",message="maxBytes must not be negative"
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
}

// ShadowEnabled is whether other pods hold copies of stashes.
func (c *LiveStashCluster) ShadowEnabled() bool {
	return c.AgentEnabled() && ptr.Deref(c.Spec.Shadow, ShadowSpec{}).Enabled
}
