package v1alpha1

// BenchmarkComparison is a report that was kept, and how much more than in it is allowed. Runs are compared with those of the same adapter,
// users and times.
//
// +kubebuilder:validation:XValidation:rule="has(self.benchmarkRef) != has(self.configMapRef)",message="set exactly one of compareWith.benchmarkRef (a LiveStashBenchmark that has finished) and compareWith.configMapRef (a report that was kept)"
type BenchmarkComparison struct {
	// benchmarkRef is a LiveStashBenchmark in the same namespace that has finished. Its report goes with it.
	// +optional
	BenchmarkRef *BenchmarkReference `json:"benchmarkRef,omitempty"`

	// configMapRef is a ConfigMap in the same namespace with the key report.json, as a LiveStashBenchmark leaves it: a copy of one that was
	// made elsewhere, or long ago.
	// +optional
	ConfigMapRef *ReportConfigMapReference `json:"configMapRef,omitempty"`

	// atMost are the limits, as factors of what the report has.
	// +required
	AtMost BenchmarkFactors `json:"atMost"`
}

// BenchmarkReference names a LiveStashBenchmark in the namespace of the object that names it.
type BenchmarkReference struct {
	// name of the LiveStashBenchmark.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +required
	Name string `json:"name"`
}

// ReportConfigMapReference names a ConfigMap that holds a report, in the namespace of the object that names it.
type ReportConfigMapReference struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// BenchmarkFactors are limits for figures as factors of those of another report, or of the baseline: with "1.1" a tenth more is allowed, with "0.9" it must be a
// tenth less. With five rounds and more on both sides (matrix.repeat) a limit does not hold when it is passed for certain, which is when
// the 95 % intervals of both means say so. With fewer, the means decide, and chance with them: allow for it.
//
// +kubebuilder:validation:XValidation:rule="has(self.memory) || has(self.cpu) || has(self.firstRender) || has(self.stash) || has(self.reconnect) || has(self.request) || has(self.delivery)",message="atMost, or against, names no limit: set one at least of memory, cpu, firstRender, stash, reconnect, request and delivery, for example {memory: \"1.1\"}"
// +kubebuilder:validation:XValidation:rule="[has(self.memory) ? self.memory : '1', has(self.cpu) ? self.cpu : '1', has(self.firstRender) ? self.firstRender : '1', has(self.stash) ? self.stash : '1', has(self.reconnect) ? self.reconnect : '1', has(self.request) ? self.request : '1', has(self.delivery) ? self.delivery : '1'].all(f, f.matches('^[0-9]{1,3}([.][0-9]{1,4})?$') && f.matches('[1-9]'))",message="atMost, or against: each limit must be a factor above 0 in quotes, for example \"1.1\" for a tenth more"
type BenchmarkFactors struct {
	// memory of the fleet's virtual machines together, at its peak; where a server is among the variants, that of all pods. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Memory string `json:"memory,omitempty"`

	// cpu is the CPU time that they took in a run. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	CPU string `json:"cpu,omitempty"`

	// firstRender is the time within which 95 % of the first visits were rendered. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	FirstRender string `json:"firstRender,omitempty"`

	// stash is the time within which 95 % of the stashes were acknowledged. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Stash string `json:"stash,omitempty"`

	// reconnect is the time within which 95 % of the returns were rendered. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Reconnect string `json:"reconnect,omitempty"`

	// request is the time within which 95 % of the requests were answered, with scenario Requests. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Request string `json:"request,omitempty"`

	// delivery is the time within which 95 % of the messages had reached their whole room, with scenario Rooms. Default: no limit.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Delivery string `json:"delivery,omitempty"`
}
