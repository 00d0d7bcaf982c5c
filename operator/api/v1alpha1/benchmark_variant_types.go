package v1alpha1

import corev1 "k8s.io/api/core/v1"

// BenchmarkVariant is one of those that a matrix compares: a fleet with an adapter, and with what else sets it apart; or another server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.server) || self.adapter == 'None' && !has(self.patch)",message="a variant with server is no fleet: remove its adapter and patch, or server"
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

	// server is what is measured in place of a fleet: a rival, such as the same chat in another language. It is made anew for each run and
	// removed after it, as a fleet is. Needs target.template, and scenario Requests or Rooms. Default: a fleet.
	// +optional
	Server *BenchmarkServer `json:"server,omitempty"`
}

// BenchmarkServer is a server that is no fleet, in pods that the operator makes for a run. They are where the pods of target.template would
// be: its imagePullPolicy, its imagePullSecrets, and the nodeSelector and tolerations of its podTemplate are theirs, too. They get no token
// for the API server.
//
// +kubebuilder:validation:XValidation:rule="!has(self.redis) || self.replicas == 1",message="server.redis is a Redis of each pod's own, so it needs replicas: 1: pods with a Redis each would not hear each other",fieldPath=".redis"
type BenchmarkServer struct {
	// image of the server. It must listen on PORT, and end at SIGTERM.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="server.image must be the reference of an image in ASCII and without spaces, for example ghcr.io/livestash-dev/livestash-rival-chat-go:0.1.0"
	// +required
	Image string `json:"image"`

	// port that it listens on, which it is told as PORT. A pod is ready when that port is open. Not 9568, where its usage is told. Default 4000.
	// +kubebuilder:default=4000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="self != 9568",message="server.port must not be 9568, where the pod tells what it uses: let the server listen on another one"
	// +optional
	Port int32 `json:"port,omitempty"`

	// protocol that its rooms speak, with scenario Rooms, which needs it. Phoenix: channels, as fleets. WebSocket: messages as they are, each
	// room at /rooms/<number>. ActionCable: actioncable-v1-json at /cable. Scenario Requests speaks HTTP, and has none.
	// +optional
	Protocol BenchmarkProtocol `json:"protocol,omitempty"`

	// replicas is the number of pods. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// redis runs a Redis beside the server, in its pod, which it is told as REDIS_URL. It keeps nothing on a disk. Default: none.
	// +optional
	Redis *BenchmarkServerRedis `json:"redis,omitempty"`

	// env are further environment variables. PORT and REDIS_URL are set from the fields above.
	// +kubebuilder:validation:MaxItems=255
	// +kubebuilder:validation:XValidation:rule="!self.exists(e, e.name in ['PORT', 'REDIS_URL'])",message="server.env must not set PORT or REDIS_URL: set server.port and server.redis"
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []BenchmarkServerVariable `json:"env,omitempty"`

	// resources are the requests and limits of the server's container. Default: those of target.template.spec.resources, so that both have as
	// much; without those requests of 100m of CPU and 128Mi of memory, and no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// runAsUser is the user, and the group, of all containers of the pod, whatever the image says: who counts what the server uses must be the
	// same user. Not 0. Default 65534, which is called nobody.
	// +kubebuilder:default=65534
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	RunAsUser int64 `json:"runAsUser,omitempty"`

	// rootFilesystem is ReadOnly, so that the server can write below /tmp alone, or Writable. Default ReadOnly.
	// +kubebuilder:default=ReadOnly
	// +optional
	RootFilesystem BenchmarkRootFilesystem `json:"rootFilesystem,omitempty"`
}

// BenchmarkServerRedis is the Redis of a server. There is nothing to set.
type BenchmarkServerRedis struct{}

// BenchmarkServerVariable is an environment variable with a fixed value.
type BenchmarkServerVariable struct {
	// name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// value of the variable. No secrets. Default: empty.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Value string `json:"value,omitempty"`
}

// BenchmarkProtocol is how members of a room talk to a server.
//
// +kubebuilder:validation:Enum=Phoenix;WebSocket;ActionCable
type BenchmarkProtocol string

// The protocols of rooms.
const (
	// ProtocolPhoenix: channels, version 2 of their serializer.
	ProtocolPhoenix BenchmarkProtocol = "Phoenix"
	// ProtocolWebSocket: messages as they are.
	ProtocolWebSocket BenchmarkProtocol = "WebSocket"
	// ProtocolActionCable: that of Rails.
	ProtocolActionCable BenchmarkProtocol = "ActionCable"
)

// BenchmarkRootFilesystem is whether a container may write to its root file system.
//
// +kubebuilder:validation:Enum=ReadOnly;Writable
type BenchmarkRootFilesystem string

// Whether a container may write to its root file system.
const (
	RootReadOnly BenchmarkRootFilesystem = "ReadOnly"
	RootWritable BenchmarkRootFilesystem = "Writable"
)

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
