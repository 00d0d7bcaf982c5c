package v1alpha1

// BenchmarkTarget is what the users connect to: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.template), has(self.clusterRef), has(self.url)].filter(set, set).size() == 1",message="set exactly one of target.template (a fresh LiveStashCluster for each run), target.clusterRef (one that exists) and target.url"
type BenchmarkTarget struct {
	// template is a fleet that is made anew for each run and removed after it, so that nothing that is left over from one
	// run colours the next.
	// +optional
	Template *BenchmarkTemplate `json:"template,omitempty"`

	// clusterRef is a LiveStashCluster in the namespace of the LiveStashBenchmark. One that is not there, or not ready, is awaited
	// until the run's deadline; one that is deleted in the middle of a run ends it. Its adapter and TTL must be those of the
	// runs: runs with others are Errored.
	// +optional
	ClusterRef *BenchmarkClusterReference `json:"clusterRef,omitempty"`

	// url is any server that answers as the workloads do: http:// or https://, a host, a port if needed, no path. The
	// adapter and TTL of the matrix are believed, and nothing is sampled during the runs.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^ \\t\\n/?#,{}\"]+$')",message="url must be http:// or https:// with a host, a port if needed, and no path, for example http://shop.example.com:4000"
	// +kubebuilder:validation:XValidation:rule="!self.matches(':[^]/@]*$') || self.matches(':([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$')",message="url must have a port from 1 to 65535, or none, for example http://shop.example.com:4000"
	// +optional
	URL string `json:"url,omitempty"`
}

// BenchmarkTemplate is the fleet of a run.
type BenchmarkTemplate struct {
	// spec is that of a LiveStashCluster, see `kubectl explain livestashcluster.spec`, without adapter and ttl, which
	// come from the run. It is tried with a dry run before the first run: what the API server refuses makes the benchmark
	// Errored, with its sentence, and nothing is started.
	// +required
	Spec BenchmarkClusterSpec `json:"spec"`
}

// BenchmarkClusterSpec is the spec of a LiveStashCluster. The fields named here are those that are checked when the
// LiveStashBenchmark is applied; every other field is kept as it is.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.adapter) && !has(self.ttl)",message="target.template.spec must not set adapter or ttl: they come from the matrix, one fleet for each adapter and TTL"
// +kubebuilder:validation:XValidation:rule="!has(self.paused)",message="target.template.spec must not set paused: a fleet that nobody makes cannot be measured"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name == 'STASH_PAYLOAD_KEYS' || e.name == 'STASH_PAYLOAD_ON_PAGE')",message="target.template.spec.env must not set STASH_PAYLOAD_KEYS or STASH_PAYLOAD_ON_PAGE: set spec.payload of the LiveStashBenchmark, which the report names"
type BenchmarkClusterSpec struct {
	// image is the container image of an Elixir release that answers as the workloads do.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Image string `json:"image"`

	// replicas is the number of pods. Default 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000",message="target.template.spec.replicas must be from 1 to 1000: without a pod there is nothing to measure"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// env are further environment variables of the application's container.
	// +kubebuilder:validation:MaxItems=255
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []BenchmarkEnvVar `json:"env,omitempty"`

	// adapter is refused: it comes from the matrix.
	// +optional
	Adapter *string `json:"adapter,omitempty"`

	// ttl is refused: it comes from the matrix.
	// +optional
	TTL *string `json:"ttl,omitempty"`

	// paused is refused: a fleet that nobody makes cannot be measured.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// raw is the spec as the user wrote it, unknown fields included.
	raw []byte `json:"-"`
}

// BenchmarkEnvVar is an environment variable, as in a Pod. Only its name is checked when the LiveStashBenchmark is applied.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BenchmarkEnvVar struct {
	// name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// BenchmarkClusterReference names a LiveStashCluster in the namespace of the LiveStashBenchmark.
type BenchmarkClusterReference struct {
	// name of the LiveStashCluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +required
	Name string `json:"name"`
}
