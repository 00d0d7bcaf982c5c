package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentSpec is the agent in every pod.
type AgentSpec struct {
	// enabled loads the agent into the application's virtual machine, with ERL_AFLAGS and an init container. Without it a
	// rolling restart loses every ETS stash of each pod, and with Mnesia the whole fleet's. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// port is where the agent serves /metrics, /status, /readyz and /healthz. The port after it answers the kubelet's
	// readiness probe. Default 9568.
	// +kubebuilder:default=9568
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65534
	// +optional
	Port int32 `json:"port,omitempty"`

	// readyGrace is how long a new pod waits for its peers and its store before it serves without them. For Redis it waits without limit until
	// that has answered once, and for Mnesia's table as long as a connected peer has a loaded copy. Default 30s.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) <= duration('1h')",message="readyGrace must be a duration of at most 1h with a unit, for example 30s"
	// +optional
	ReadyGrace *metav1.Duration `json:"readyGrace,omitempty"`
}

// DrainSpec is how a pod that is told to stop moves its users to the other pods. The pod's termination grace period is
// gracePeriod, so that no step is cut off.
type DrainSpec struct {
	// endpointWait is how long a stopping pod still serves, so that proxies and load balancers stop sending to it first.
	// Default 3s.
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	EndpointWait *metav1.Duration `json:"endpointWait,omitempty"`

	// batchSize is how many sockets are closed at once, each with code 1012, upon which clients reconnect. Measured with
	// 500 sessions on 2 cores: the time to be back (p99) was 193 ms with batches of 50, 587 ms with one of 500. Default 50.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	BatchSize int32 `json:"batchSize,omitempty"`

	// batchInterval is the pause between two batches: reconnecting clients are work for the other pods. Default 200ms.
	// +kubebuilder:default="200ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	BatchInterval *metav1.Duration `json:"batchInterval,omitempty"`

	// closeTimeout bounds the time for closing all sockets: with many sockets, batches grow to keep it. Default 30s.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	CloseTimeout *metav1.Duration `json:"closeTimeout,omitempty"`

	// handOffTimeout bounds the time for handing stashes over to peers, with the adapters whose stashes are in the pods'
	// memory. When all pods stop at once, the last one waits for the first that is back, and that may take about
	// endpointWait + closeTimeout + handOffTimeout: where a pod needs longer to start, because its image is large or a node has to be
	// added first, make this as much longer. Default 20s.
	// +kubebuilder:default="20s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	HandOffTimeout *metav1.Duration `json:"handOffTimeout,omitempty"`

	// keepFor is how long the stash of a user is kept at least, from the moment on at which a drain has closed the user's
	// socket, whatever is left of its TTL: a browser opens the socket of a hidden tab again only when the tab is shown, and
	// until then nothing renews the stash. When the user is back, spec.ttl applies again. Read with adapters ETS, Mnesia and
	// Redis. A stash of BrowserMemory is in the browser and ages from the moment it was made: there, set spec.ttl to as
	// long as users may be away. At most 168h; 0s keeps no stash beyond its TTL. Default 1h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) <= duration('168h')",message="keepFor must be a duration of at most 168h with a unit, for example 1h, or 0s"
	// +optional
	KeepFor *metav1.Duration `json:"keepFor,omitempty"`

	// keepBytes bounds what keepFor may cost a pod: stashes are kept beyond their TTL as long as those that the pod has take
	// less than this. The others keep what is left of their TTL and are lost when their users come back later; those that
	// are being used are never dropped for it. Reckon with it in resources.limits.memory. Default 256Mi: some 17,000 users
	// with stashes of 15 kB, the size on the heap of the published benchmark's.
	// +kubebuilder:default="256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="keepBytes must be a quantity, for example 256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('0')) >= 0",message="keepBytes must not be negative"
	// +optional
	KeepBytes *resource.Quantity `json:"keepBytes,omitempty"`

	// gracePeriod is after how long the kubelet kills a pod that was told to stop. Whole seconds, rounded up.
	// Default: endpointWait + closeTimeout + handOffTimeout + 7s to stop: 60s; without the agent 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) <= duration('24h')",message="gracePeriod must be a duration of at most 24h with a unit, for example 90s"
	// +optional
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}
