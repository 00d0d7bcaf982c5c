package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// RedisSpec is the store of adapter Redis: one of managed, operator and external. Default managed.
//
// A change to another store, for example from managed to external, stops every pod before the first one with the new store
// starts, so that no user meets an old stash again. Stashes are not carried over: the change waits for spec.acceptLossOf.
//
// +kubebuilder:validation:XValidation:rule="[has(self.managed), has(self.operator), has(self.external)].filter(set, set).size() <= 1",message="redis must have at most one of managed (a Redis server that this operator runs), operator (one that redis-operator runs) and external (one of your own): remove the others; without any of them it is managed"
type RedisSpec struct {
	// managed is one Redis server that this operator runs.
	// +optional
	Managed *ManagedRedis `json:"managed,omitempty"`

	// operator is Redis run by OT redis-operator (redis.redis.opstreelabs.in/v1beta2), which must be installed.
	// +optional
	Operator *OperatedRedis `json:"operator,omitempty"`

	// external is a Redis server that somebody else runs.
	// +optional
	External *ExternalRedis `json:"external,omitempty"`
}

// ManagedRedis is one Redis server that this operator runs, for this fleet alone. With persistence, a restart of it keeps
// every stash; without, so do a crash of the server and a change of what is set here, because another server takes over first, but a pod that is deleted
// loses all of them. While it is away nothing can be stashed and no stash be given back; the pods go on serving.
type ManagedRedis struct {
	// image of a Redis server, or of one that speaks like it, such as Valkey. It must have redis-server, redis-cli and sh.
	// Without persistence it must know FAILOVER, as Redis 6.2 and Valkey do. Default: that of the operator's flag --redis-image, docker.io/valkey/valkey.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="image must be the reference of a Redis or Valkey image in ASCII and without spaces"
	// +optional
	Image string `json:"image,omitempty"`

	// memory is the container's memory request and limit, at least 64Mi. Redis may fill three quarters of it (maxmemory);
	// then it drops the stashes that would expire first. Without persistence, less than the stashes take waits until it is enough. Default 512Mi.
	// +kubebuilder:default="512Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="memory must be a quantity, for example 512Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="memory must be at least 64Mi: Redis needs some of it for itself"
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`

	// persistence keeps the stashes on a volume, so that they outlive a restart of Redis. Default none.
	// +optional
	Persistence *RedisPersistence `json:"persistence,omitempty"`

	// password is where the password comes from with which the fleet logs in. It has up to 512 printable ASCII characters
	// and no space. A changed one reaches Redis first, then rolls the fleet; Redis does not restart. To have a generated
	// one changed, delete the Secret <name>-redis. Default: generated.
	// +optional
	Password *SecretSource `json:"password,omitempty"`

	// tls encrypts what is sent to Redis, and between two of its servers, with a certificate that the operator makes and renews. The
	// application must check it against the file in LIVE_STASH_REDIS_CACERTFILE, and a Redis image of your own must have been built with
	// TLS. It is chosen once: it cannot be switched on or off in a Redis that there is. Default: without TLS.
	// +optional
	TLS *RedisTLS `json:"tls,omitempty"`

	// exporter serves Redis' metrics to a Prometheus.
	// +kubebuilder:default={}
	// +optional
	Exporter RedisExporter `json:"exporter,omitempty"`

	RedisScheduling `json:",inline"`
}

// RedisScheduling is where the pods of Redis may run.
type RedisScheduling struct {
	// nodeSelector are labels that a node must have. Default none.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are taints of nodes that do not matter. Default none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// priorityClassName is the pods' PriorityClass. Default: Kubernetes' own.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="priorityClassName must be the name of a PriorityClass: a-z, 0-9, '-' and '.'"
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// RedisPersistence keeps stashes on a volume, in an append-only file that is written to disk every second: a restart loses
// nothing, a crash up to a second. The volume is deleted with the LiveStashCluster (see spec.whenDeleted), and when persistence is removed.
// Removing it loses all stashes, and so does adding it to a Redis that has served: both wait for spec.acceptLossOf: Redis.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storageClassName cannot change, because the volume exists: remove persistence, wait until Redis runs without it, and add it again with the other class; the stashes are lost by that",fieldPath=".storageClassName"
type RedisPersistence struct {
	// size of the volume. It may grow where the StorageClass allows it; where it does not, the volume stays as it is, and
	// ReconcileSucceeded says so. A size that the volume has not reached may be taken back. The append-only file takes up to
	// twice the memory. Default 1Gi.
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+]?[0-9.]*[1-9][0-9.]*([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="size must be a quantity above 0, for example 2Gi"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the StorageClass of the volume. Default: the cluster's default class, which must exist.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="storageClassName must be the name of a StorageClass: a-z, 0-9, '-' and '.'"
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// RedisExporter is redis_exporter beside Redis, on port 9121.
type RedisExporter struct {
	// enabled runs it. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// image of redis_exporter. Default: that of the operator's flag --redis-exporter-image, docker.io/oliver006/redis_exporter.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="image must be the reference of a redis_exporter image in ASCII and without spaces"
	// +optional
	Image string `json:"image,omitempty"`
}

// OperatedRedis is Redis run by OT redis-operator.
//
// +kubebuilder:validation:XValidation:rule="has(self.image)",message="image is needed: name the image of the Redis servers, of a version without known holes, for example of quay.io/opstree/redis",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="self.mode == 'Standalone' || has(self.sentinelImage)",message="sentinelImage is needed with mode Replication: name the image of the Sentinels, for example of quay.io/opstree/redis-sentinel",fieldPath=".sentinelImage"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Standalone' || !has(self.replicas)",message="replicas is only read with mode Replication: remove it, or set mode to Replication",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode cannot change, because the stashes would be lost in silence: set spec.redis to another store first, or make a new LiveStashCluster",fieldPath=".mode"
// +kubebuilder:validation:XValidation:rule="has(self.persistence) == has(oldSelf.persistence)",message="persistence cannot be added or removed, because redis-operator cannot do it either: set spec.redis to another store first, or make a new LiveStashCluster",fieldPath=".persistence"
// +kubebuilder:validation:XValidation:rule="!has(self.persistence) || !has(oldSelf.persistence) || string(self.persistence.size).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self.persistence.size)) || string(oldSelf.persistence.size).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(oldSelf.persistence.size)) || quantity(string(self.persistence.size)).compareTo(quantity(string(oldSelf.persistence.size))) >= 0",message="persistence.size cannot become smaller, because volumes can only grow: leave it, set spec.redis to another store, or make a new LiveStashCluster",fieldPath=".persistence.size"
type OperatedRedis struct {
	// mode is Standalone, one Redis server, or Replication, a master with replicas and Sentinels that make a replica the
	// master when the master is gone. Default Replication.
	// +kubebuilder:default=Replication
	// +optional
	Mode OperatedRedisMode `json:"mode,omitempty"`

	// replicas is the number of Redis servers with mode Replication, the master among them, and of Sentinels. At least 3:
	// with two and no volume, redis-operator was seen to make a master that came back empty the master again, and all was
	// lost. Default 3.
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:XValidation:rule="self >= 3",message="replicas must be at least 3: with two, a failover was seen to lose every stash; use mode Standalone for a single server"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image of the Redis servers, for example of quay.io/opstree/redis. It must suit the redis-operator that is installed. There is no
	// default: you choose a version, and renew it when holes in it become known.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="image must be the reference of a Redis image in ASCII and without spaces"
	// +optional
	Image string `json:"image,omitempty"`

	// sentinelImage is the image of the Sentinels, for example of quay.io/opstree/redis-sentinel. Needed with mode Replication, no default.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="sentinelImage must be the reference of a Redis image in ASCII and without spaces"
	// +optional
	SentinelImage string `json:"sentinelImage,omitempty"`

	// memory is each Redis server's memory request and limit, at least 64Mi; three quarters of it may be filled. Default
	// 512Mi.
	// +kubebuilder:default="512Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="memory must be a quantity, for example 512Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="memory must be at least 64Mi: Redis needs some of it for itself"
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`

	// persistence gives each Redis server a volume. Default none.
	// +optional
	Persistence *RedisPersistence `json:"persistence,omitempty"`

	RedisScheduling `json:",inline"`
}

// OperatedRedisMode is the kind of Redis that redis-operator is asked for.
//
// +kubebuilder:validation:Enum=Standalone;Replication
type OperatedRedisMode string

// The modes.
const (
	// RedisStandalone: one server.
	RedisStandalone OperatedRedisMode = "Standalone"
	// RedisReplication: a master, its replicas and Sentinels.
	RedisReplication OperatedRedisMode = "Replication"
)

// ExternalRedis is a Redis server that somebody else runs, named by a URL in a Secret or by its parts. It must not be a
// Redis Cluster, whose redirections LiveStash does not follow.
//
// +kubebuilder:validation:XValidation:rule="has(self.urlSecretRef) != has(self.host)",message="external must have exactly one of urlSecretRef (a Secret with the whole URL) and host: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.urlSecretRef) || !(has(self.port) || has(self.database) || has(self.username) || has(self.passwordSecretRef) || has(self.tls))",message="port, database, username, passwordSecretRef and tls are only read with host: write them into the URL of urlSecretRef, or use host"
// +kubebuilder:validation:XValidation:rule="!has(self.username) || has(self.passwordSecretRef)",message="username needs passwordSecretRef: name the Secret with that user's password"
// +kubebuilder:validation:XValidation:rule="!has(self.host) || !has(self.caSecretRef) || (has(self.tls) && self.tls.enabled)",message="caSecretRef is only read with tls.enabled: true: set it, or remove caSecretRef"
type ExternalRedis struct {
	// urlSecretRef is the Secret key that holds the URL, redis://[[user]:password@]host[:port][/database], or rediss://
	// for TLS, without a line break at its end. Characters of the password that a URL may not have are percent-encoded. A
	// changed value rolls the fleet.
	// +optional
	URLSecretRef *SecretKeyReference `json:"urlSecretRef,omitempty"`

	// host is the server's DNS name or address.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$') || self.matches('^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$')",message="host must be a DNS name or an address alone, for example redis.example.com: the port, the user and the database have fields of their own"
	// +optional
	Host string `json:"host,omitempty"`

	// port is the server's port. Default 6379.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`

	// database is the number of the database. Default 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Database *int32 `json:"database,omitempty"`

	// username is the user of Redis' access control lists. Default: the default user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Username string `json:"username,omitempty"`

	// passwordSecretRef is the Secret key that holds the password, as it is. A changed value rolls the fleet. Default: no
	// password.
	// +optional
	PasswordSecretRef *SecretKeyReference `json:"passwordSecretRef,omitempty"`

	// tls is how the connection is encrypted. With urlSecretRef the URL says it.
	// +optional
	TLS *RedisTLS `json:"tls,omitempty"`

	// caSecretRef is the Secret key that holds the certificates, in PEM, of the authorities that the server's certificate is
	// checked against (LIVE_STASH_REDIS_CACERTFILE). A changed value rolls the fleet. Default: the application's own,
	// commonly those of the image or of the library castore.
	// +optional
	CASecretRef *SecretKeyReference `json:"caSecretRef,omitempty"`
}

// RedisTLS is how the connection to a Redis is encrypted.
type RedisTLS struct {
	// enabled connects over TLS (rediss://). Default false.
	// +kubebuilder:default=false
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// RedisStatus is the Redis that the pods use.
type RedisStatus struct {
	// mode is Managed, Operator or External.
	// +required
	Mode RedisMode `json:"mode"`

	// address is where it is: host:port.
	// +optional
	Address string `json:"address,omitempty"`

	// operatorVersion is that of the operator that made the template of its pod, when this operator runs it: see spec.upgrade.
	// +optional
	OperatorVersion string `json:"operatorVersion,omitempty"`

	// server is the pod that has the stashes, with mode Managed and without persistence. When it is to be replaced, another one
	// takes over its stashes first.
	// +optional
	Server *RedisServer `json:"server,omitempty"`

	// volumeSize is the size that the volume has, with mode Managed and persistence.
	// +optional
	VolumeSize *resource.Quantity `json:"volumeSize,omitempty"`
}

// RedisServer is a pod that has stashes in its memory.
type RedisServer struct {
	// pod is its name.
	// +required
	Pod string `json:"pod"`

	// uid is the pod's: another one of this name has come up empty.
	// +required
	UID types.UID `json:"uid"`

	// stashes is how many it had when it was last asked, about a minute ago at most.
	// +optional
	Stashes int64 `json:"stashes,omitempty"`
}

// RedisMode is who runs Redis.
//
// +kubebuilder:validation:Enum=Managed;Operator;External
type RedisMode string

// The modes.
const (
	// RedisModeManaged: this operator.
	RedisModeManaged RedisMode = "Managed"
	// RedisModeOperator: OT redis-operator.
	RedisModeOperator RedisMode = "Operator"
	// RedisModeExternal: somebody else.
	RedisModeExternal RedisMode = "External"
)
