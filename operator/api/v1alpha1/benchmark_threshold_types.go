package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BenchmarkThresholds decide between Passed and Failed.
type BenchmarkThresholds struct {
	// minRecovered is the share of returns within the TTL that brought the state back, at least, from "0" to "1". With
	// adapter None the threshold is that none does. Default "0.99".
	// +kubebuilder:default="0.99"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="minRecovered must be a share from \"0\" to \"1\", for example \"0.99\""
	// +optional
	MinRecovered string `json:"minRecovered,omitempty"`

	// maxWrong is the number of recovered states that are not the last acknowledged one, at most. Default 0.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxWrong *int64 `json:"maxWrong,omitempty"`

	// maxFailed is the share of steps (first visit, return, stash; request; message) that failed, at most, from "0" to "1". A socket that the server
	// ends while its user looks at the page is a failed step too. No larger share of the users may never have come in, or of the connections of
	// scenario Requests never have got a good answer. Default "0.01".
	// +kubebuilder:default="0.01"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="maxFailed must be a share from \"0\" to \"1\", for example \"0.01\""
	// +optional
	MaxFailed string `json:"maxFailed,omitempty"`

	// maxClientDelay is how late k6 itself may begin 99 % of the steps, at most: a k6 that waits for CPU measures its own
	// queue. Over it the run is Errored; its times say nothing then, its counts still stand. At most 10m. Default 100ms.
	// +kubebuilder:default="100ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) <= duration('10m')",message="maxClientDelay must be a duration of at most 10m with a unit, for example 100ms"
	// +optional
	MaxClientDelay *metav1.Duration `json:"maxClientDelay,omitempty"`

	// maxLost is the number of returns within the TTL that did not bring the state back, at most. Not looked at with adapter None.
	// Default: none, so that minRecovered alone decides.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxLost *int64 `json:"maxLost,omitempty"`

	// maxRestarts is the number of the fleet's pods that may restart during the run, or be replaced by others, at most. Those that an
	// event replaces do not count. Not looked at with target.url. Default 0.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRestarts *int32 `json:"maxRestarts,omitempty"`

	// minCollections is how often garbage must have been collected in the fleet for each user during a run, at least. A run that is sound otherwise
	// and has fewer says nothing about settings of the garbage collector, such as beam.fullsweepAfter, and is Errored: a process must have been
	// through clearly more collections than that setting says, so 40 for 20. Collections of all processes count, so take hundreds of users at least.
	// Needs the agent. Not looked at in variants with server. From 1 to 65535. Default: none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MinCollections *int32 `json:"minCollections,omitempty"`

	// p99 are limits for the time within which 99 % of a kind of step are done, counted from when the step was to begin. A limit does
	// not hold when the p99 is over it for certain: of few steps some may be slow by chance. A request or message that came to no good end counts
	// as over any limit, and so does a request of a rate that was never sent. Default: none.
	// +optional
	P99 *BenchmarkDurations `json:"p99,omitempty"`

	// against are limits for all other variants as factors of what the baseline (matrix.baseline) has under the same load, for example
	// {memory: "0.8", cpu: "1.1"}: at least a fifth less memory, for at most a tenth more CPU time. They are judged when all runs are over.
	// What is over its limit makes the benchmark Failed, with both numbers; what cannot be compared makes it Errored. Default: none.
	// +optional
	Against *BenchmarkFactors `json:"against,omitempty"`
}

// BenchmarkDurations are limits for the durations that k6 measures, each a duration with a unit.
//
// +kubebuilder:validation:XValidation:rule="[has(self.firstRender) ? self.firstRender : '1s', has(self.join) ? self.join : '1s', has(self.stash) ? self.stash : '1s', has(self.reconnect) ? self.reconnect : '1s', has(self.rejoin) ? self.rejoin : '1s', has(self.lateRejoin) ? self.lateRejoin : '1s', has(self.reconnectDuring) ? self.reconnectDuring : '1s', has(self.reconnectOutside) ? self.reconnectOutside : '1s', has(self.request) ? self.request : '1s', has(self.delivery) ? self.delivery : '1s'].all(d, d.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(d) > duration('0s'))",message="thresholds.p99: each limit must be a duration above 0 with a unit, for example 250ms"
type BenchmarkDurations struct {
	// firstRender: first visit, from the request for the page to the joined, rendered view.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	FirstRender *metav1.Duration `json:"firstRender,omitempty"`

	// join: the part of it from the join message to its reply; with scenario Rooms from when a member was to come to the room's reply.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Join *metav1.Duration `json:"join,omitempty"`

	// stash: from an event to its acknowledged diff.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Stash *metav1.Duration `json:"stash,omitempty"`

	// reconnect: return, from when the user was to come to the joined, rendered view.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Reconnect *metav1.Duration `json:"reconnect,omitempty"`

	// rejoin: the part of it from the join message to its reply.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Rejoin *metav1.Duration `json:"rejoin,omitempty"`

	// lateRejoin: the same for returns after the TTL.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	LateRejoin *metav1.Duration `json:"lateRejoin,omitempty"`

	// reconnectDuring: as reconnect, of the returns that were to begin during an event. Needs spec.events.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	ReconnectDuring *metav1.Duration `json:"reconnectDuring,omitempty"`

	// reconnectOutside: as reconnect, of all other returns. Needs spec.events.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	ReconnectOutside *metav1.Duration `json:"reconnectOutside,omitempty"`

	// request: with scenario Requests, from when a request was sent, or with a rate was due, to its answer.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Request *metav1.Duration `json:"request,omitempty"`

	// delivery: with scenario Rooms, from when a message was sent to when the last member of the room had it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Delivery *metav1.Duration `json:"delivery,omitempty"`
}
