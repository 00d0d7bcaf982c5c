package v1alpha1

// BenchmarkVariant is one of those that a matrix compares: a fleet with an adapter, and with what else sets it apart.
type BenchmarkVariant struct {
	// name of the variant in status, report and comparisons, for example fullsweep-20. At most 30 characters, only a-z, 0-9 and '-', starting
	// with a letter.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="name of a variant must be at most 30 characters, only a-z, 0-9 and '-', starting with a letter, for example fullsweep-20"
	// +required
	Name string `json:"name"`

	// adapter of its fleet. Default None: without LiveStash.
	// +kubebuilder:default=None
	// +optional
	Adapter Adapter `json:"adapter,omitempty"`

	// patch is what its fleet has otherwise than target.template.spec, for example {beam: {fullsweepAfter: 20}}. Needs target.template.
	// The report has it, too: no secrets in it. Default: nothing.
	// +optional
	Patch *BenchmarkPatch `json:"patch,omitempty"`
}

// BenchmarkPatch is a part of the spec of a LiveStashCluster. Its fields take the place of those of target.template.spec: objects are merged
// field by field, env by the names of the variables, other lists are replaced. It is tried with a dry run before the first run, as the
// template is.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!has(self.adapter) && !has(self.ttl)",message="patch must not set adapter or ttl: adapter stands beside patch, and ttl comes from matrix.runs"
// +kubebuilder:validation:XValidation:rule="!has(self.paused)",message="patch must not set paused: a fleet that nobody makes cannot be measured"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name == 'STASH_PAYLOAD_KEYS' || e.name == 'STASH_PAYLOAD_ON_PAGE')",message="patch.env must not set STASH_PAYLOAD_KEYS or STASH_PAYLOAD_ON_PAGE: what is stashed must be the same for all variants, so set spec.payload"
type BenchmarkPatch struct {
	// image is another container image of the application. Default: that of the template.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`

	// replicas is another number of pods. Default: that of the template.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000",message="patch.replicas must be from 1 to 1000: without a pod there is nothing to measure"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// env are further environment variables of the application's container, and other values of the template's.
	// +kubebuilder:validation:MaxItems=255
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []BenchmarkEnvVar `json:"env,omitempty"`

	// adapter is refused: it stands beside patch.
	// +optional
	Adapter *string `json:"adapter,omitempty"`

	// ttl is refused: it comes from matrix.runs.
	// +optional
	TTL *string `json:"ttl,omitempty"`

	// paused is refused: a fleet that nobody makes cannot be measured.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// raw is the patch as the user wrote it, unknown fields included.
	raw []byte `json:"-"`
}
