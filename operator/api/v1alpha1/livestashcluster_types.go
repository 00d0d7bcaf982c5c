package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// LiveStashCluster is a fleet of Phoenix LiveView pods that form one BEAM cluster and stash their users' state.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=lsc,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the fleet is as its spec wants it"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is, or what is in the way"
// +kubebuilder:printcolumn:name="Adapter",type=string,JSONPath=`.spec.adapter`,description="Where the state is stashed"
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.podsReady`,description="Pods that serve, of those asked for"
// +kubebuilder:printcolumn:name="Stashes",type=integer,JSONPath=`.status.stashes`,description="Stashes that the pods hold"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="TTL",type=string,priority=1,JSONPath=`.spec.ttl`,description="For how long a state can be given back: from the last connection on, with BrowserMemory from the last stash on"
// +kubebuilder:printcolumn:name="Operator",type=string,priority=1,JSONPath=`.status.operatorVersion`,description="Version of the operator that made the pods' template"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="The status in a sentence"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 45 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 45 characters, only a-z, 0-9 and '-', starting with a letter: it is part of pod DNS names and of BEAM node names, which end at 255 characters"
// +kubebuilder:validation:XValidation:rule="has(self.status) || self.metadata.name != 'default'",message="metadata.name must not be default: the fleet's ServiceAccount has that name, and default is the one of every other pod in the namespace: choose another name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 41 || !has(self.spec.redis) || !has(self.spec.redis.operator)",message="metadata.name must be at most 41 characters with spec.redis.operator: redis-operator makes longer names of it, and they end at 63"
// +kubebuilder:validation:XValidation:rule="has(self.status) || !has(self.spec.rollout.canary) || self.spec.rollout.canary.pods < (has(self.spec.replicas) && self.spec.replicas > 2 ? self.spec.replicas : 2)",message="rollout.canary.pods must be less than replicas (with one replica it is 1), or no pod of the template before would be left: choose fewer pods, or more replicas",fieldPath=".spec.rollout.canary"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.redis) && has(self.spec.redis.managed) && has(self.spec.redis.managed.persistence) && has(oldSelf.spec.redis) && has(oldSelf.spec.redis.managed) && has(oldSelf.spec.redis.managed.persistence)) || string(self.spec.redis.managed.persistence.size).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self.spec.redis.managed.persistence.size)) || string(oldSelf.spec.redis.managed.persistence.size).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(oldSelf.spec.redis.managed.persistence.size)) || quantity(string(self.spec.redis.managed.persistence.size)).compareTo(quantity(string(oldSelf.spec.redis.managed.persistence.size))) >= 0 || !has(self.status) || !has(self.status.redis) || !has(self.status.redis.volumeSize) || quantity(string(self.spec.redis.managed.persistence.size)).compareTo(quantity(string(self.status.redis.volumeSize))) >= 0",message="size cannot become smaller than the volume is (status.redis.volumeSize), because volumes can only grow: leave it, or remove persistence and add it again, by which the stashes are lost",fieldPath=".spec.redis.managed.persistence.size"
type LiveStashCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the fleet that is wanted.
	// +required
	Spec LiveStashClusterSpec `json:"spec"`
	// status is what the operator has seen of the fleet.
	// Before it has seen the object, observedGeneration is -1: else tools that wait by kstatus, such as Flux and Helm, would take an
	// object that nobody has looked at for done.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status LiveStashClusterStatus `json:"status,omitempty"`
}

// LiveStashClusterList is a list of LiveStashClusters.
//
// +kubebuilder:object:root=true
type LiveStashClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LiveStashCluster `json:"items"`
}

// LiveStashClusterSpec is the fleet that is wanted. Only image and adapter are required.
//
// +kubebuilder:validation:XValidation:rule="self.adapter != 'BrowserMemory' || !self.ttl.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') || duration(self.ttl) <= duration('24h')",message="ttl must be at most 24h with adapter BrowserMemory: the signed tokens it keeps in the browser end there",fieldPath=".ttl"
// +kubebuilder:validation:XValidation:rule="self.adapter == 'Redis' || !has(self.redis)",message="redis is only read with adapter Redis: remove spec.redis, or set adapter to Redis",fieldPath=".redis"
// +kubebuilder:validation:XValidation:rule="self.adapter == 'BrowserMemory' || !has(self.browserMemory)",message="browserMemory is only read with adapter BrowserMemory: remove spec.browserMemory, or set adapter to BrowserMemory",fieldPath=".browserMemory"
// +kubebuilder:validation:XValidation:rule="[self, oldSelf].exists(s, s.adapter != 'Redis' || (has(s.redis) && (has(s.redis.operator) || has(s.redis.external)))) || (has(self.redis) && has(self.redis.managed) && has(self.redis.managed.tls) && self.redis.managed.tls.enabled) == (has(oldSelf.redis) && has(oldSelf.redis.managed) && has(oldSelf.redis.managed.tls) && oldSelf.redis.managed.tls.enabled)",message="redis.managed.tls cannot be switched on or off in a Redis that there is, because pods and servers with and without TLS cannot talk to each other: make a new LiveStashCluster, or set spec.adapter or spec.redis to another store first, by which the stashes are lost",fieldPath=".redis"
// +kubebuilder:validation:XValidation:rule="self.adapter == 'ETS' || !has(self.shadow)",message="shadow is only read with adapter ETS, whose stashes are lost with a killed pod: remove spec.shadow, or set adapter to ETS",fieldPath=".shadow"
// +kubebuilder:validation:XValidation:rule="self.agent.enabled || !has(self.shadow) || !self.shadow.enabled",message="shadow.enabled needs the agents, which make the copies, and agent.enabled is false: enable the agent, or remove spec.shadow",fieldPath=".shadow"
// +kubebuilder:validation:XValidation:rule="self.http.port != 4369 && (self.http.port < self.clustering.distributionPort || self.http.port > self.clustering.distributionPort + 9)",message="http.port must not be 4369 (epmd) nor one of the ten ports that start at clustering.distributionPort (default 9100): choose another port, for example 4000",fieldPath=".http"
// +kubebuilder:validation:XValidation:rule="!self.agent.enabled || [self.agent.port, self.agent.port + 1].all(p, p != 4369 && p != self.http.port && (p < self.clustering.distributionPort || p > self.clustering.distributionPort + 9))",message="agent.port and the port after it must not be http.port, 4369 (epmd) nor one of the ten ports that start at clustering.distributionPort (default 9100): choose another agent.port; the default is 9568",fieldPath=".agent"
// +kubebuilder:validation:XValidation:rule="[self.drain.endpointWait, self.drain.batchInterval, self.drain.closeTimeout, self.drain.handOffTimeout].all(d, d.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(d) <= duration('1h'))",message="drain.endpointWait, batchInterval, closeTimeout and handOffTimeout must be durations of at most 1h with a unit, for example 500ms or 30s",fieldPath=".drain"
// +kubebuilder:validation:XValidation:rule="!self.agent.enabled || !has(self.drain.gracePeriod) || ![self.drain.endpointWait, self.drain.closeTimeout, self.drain.handOffTimeout, self.drain.gracePeriod].all(d, d.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$')) || duration(self.drain.gracePeriod) >= duration(self.drain.endpointWait) + duration(self.drain.closeTimeout) + duration(self.drain.handOffTimeout) + duration('7s')",messageExpression="'drain.gracePeriod of ' + self.drain.gracePeriod + ' is too short: endpointWait ' + self.drain.endpointWait + ' + closeTimeout ' + self.drain.closeTimeout + ' + handOffTimeout ' + self.drain.handOffTimeout + ' + 7s to stop; make gracePeriod at least that long, or another part shorter'",message="drain.gracePeriod must be at least endpointWait + closeTimeout + handOffTimeout + 7s",fieldPath=".drain"
// +kubebuilder:validation:XValidation:rule="self.clustering.tls == oldSelf.clustering.tls || (has(self.replicas) && self.replicas == 0) || (has(oldSelf.replicas) && oldSelf.replicas == 0)",message="clustering.tls cannot change while there are pods, because nodes with and without TLS, or of two issuers, cannot talk to each other: scale to 0 replicas first, or make a new LiveStashCluster",fieldPath=".clustering"
// +kubebuilder:validation:XValidation:rule="self.agent.enabled || !has(self.beam.crashDumps)",message="beam.crashDumps are kept by the agent's helper, and agent.enabled is false: set that to true, or remove beam.crashDumps",fieldPath=".beam.crashDumps"
// +kubebuilder:validation:XValidation:rule="!has(self.beam.crashDumps) || !has(self.env) || !self.env.exists(e, e.name in ['ERL_CRASH_DUMP', 'ERL_CRASH_DUMP_BYTES'])",message="env must not set ERL_CRASH_DUMP or ERL_CRASH_DUMP_BYTES with beam.crashDumps, which sets both: remove them from env",fieldPath=".env"
// +kubebuilder:validation:XValidation:rule="self.agent.enabled || !has(self.monitoring.podMonitor.enabled) || !self.monitoring.podMonitor.enabled",message="monitoring.podMonitor scrapes the agents, and agent.enabled is false: enable the agent, or remove monitoring.podMonitor",fieldPath=".monitoring"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout.canary) || (has(oldSelf.rollout.canary) && oldSelf.rollout.canary.pods == self.rollout.canary.pods) || self.rollout.canary.pods < (has(self.replicas) && self.replicas > 2 ? self.replicas : 2)",message="rollout.canary.pods must be less than replicas (with one replica it is 1), or no pod of the template before would be left: choose fewer pods, or more replicas",fieldPath=".rollout.canary"
// +kubebuilder:validation:XValidation:rule="!has(self.whenDeleted) || self.whenDeleted != 'Retain' || !has(self.redis) || !has(self.redis.operator) || !has(self.redis.operator.persistence)",message="whenDeleted cannot be Retain with redis.operator.persistence, because redis-operator deletes its volumes with the Redis: remove whenDeleted, or take redis.managed",fieldPath=".whenDeleted"
// +kubebuilder:validation:XValidation:rule="!has(self.secretKeyBaseGeneration) || !has(self.secretKeyBase) || !has(self.secretKeyBase.secretRef)",message="secretKeyBaseGeneration is for a SECRET_KEY_BASE that the operator generates: remove it; to change one of your own, change the Secret, or name another one in secretKeyBase.secretRef",fieldPath=".secretKeyBaseGeneration"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.secretKeyBaseGeneration) || (has(self.secretKeyBase) && has(self.secretKeyBase.secretRef)) || (has(self.secretKeyBaseGeneration) && self.secretKeyBaseGeneration >= oldSelf.secretKeyBaseGeneration)",message="secretKeyBaseGeneration can only grow, because values of before are gone: raise it to get another one, or leave it",fieldPath=".secretKeyBaseGeneration"
type LiveStashClusterSpec struct {
	// image is the container image of an Elixir release (`mix release`, for example one made by
	// `mix phx.gen.release --docker`). Its own command is run. Changing it rolls the fleet.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="image must be the reference of an Elixir release image in ASCII and without spaces, for example ghcr.io/acme/shop:1.4.2"
	// +required
	Image string `json:"image"`

	// imagePullPolicy says when the kubelet pulls the image: Always, IfNotPresent or Never.
	// Default: Kubernetes' own (Always for the tag latest, else IfNotPresent).
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets names the Secrets, in the namespace of the LiveStashCluster, with registry credentials.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// replicas is the number of pods, each one BEAM node. Default 2: with one pod there is no peer to come back to
	// while it restarts. 0 stops the fleet. `kubectl scale` and a HorizontalPodAutoscaler set it too.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// adapter is the LiveStash adapter that the application uses: where a user's state is stashed. ETS: in the memory of
	// the pod that served the user, from where peers fetch it. BrowserMemory: signed, in the user's browser. Redis: in a
	// Redis server. Mnesia: in the memory of every pod. None: nowhere, a baseline without LiveStash.
	// The application reads it from LIVE_STASH_ADAPTER.
	// +required
	Adapter Adapter `json:"adapter"`

	// ttl is for how long a user's state can be given back, as a duration with a unit ("90s", "5m", "1h"), rounded up to whole
	// seconds. From when on it counts depends on the adapter.
	// ETS, Mnesia, Redis: from when the page was last connected. A connected page renews its stash four times per ttl, so what is
	// left when it goes is between three quarters of ttl and all of it. A drain keeps the stashes of the sockets that it closes for longer:
	// see drain.keepFor.
	// BrowserMemory: from the user's last stash, also while the page is connected. Nothing renews it and no drain keeps it, so make ttl as
	// long as a session; at most 24h.
	// None: without effect.
	// From 1s to 720h. Default 5m, LiveStash's own.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="ttl must be a duration from 1s to 720h with a unit, for example 90s, 5m or 1h"
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// http is the web endpoint of the application.
	// +kubebuilder:default={}
	// +optional
	HTTP HTTPSpec `json:"http,omitempty"`

	// clustering is how the pods form one BEAM cluster.
	// +kubebuilder:default={}
	// +optional
	Clustering ClusteringSpec `json:"clustering,omitempty"`

	// agent is the part of the operator that runs inside the application's own Erlang virtual machine: it keeps the mesh,
	// drains on SIGTERM, hands stashes over to peers and answers probes. The image needs no change for it.
	// +kubebuilder:default={}
	// +optional
	Agent AgentSpec `json:"agent,omitempty"`

	// drain is how a pod that is told to stop moves its users to the other pods. The agent does it.
	// +kubebuilder:default={}
	// +optional
	Drain DrainSpec `json:"drain,omitempty"`

	// rollout is how pods are replaced when their template changes.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty"`

	// secretKeyBase is where SECRET_KEY_BASE comes from, with which Phoenix and LiveStash sign and encrypt. All pods
	// share it, and it must survive restarts: who loses it loses every session. At least 64 bytes of text without control characters,
	// such as a line break at its end. Another one costs every stash and every signed cookie, so it is held until acceptLossOf names the
	// adapter.
	// Default: generated once.
	// +optional
	SecretKeyBase *SecretSource `json:"secretKeyBase,omitempty"`

	// secretKeyBaseGeneration is raised to have another generated SECRET_KEY_BASE, for example because it leaked. That costs every stash,
	// and every cookie and token that was signed with the one before: users are logged out and begin anew. So nothing is changed until
	// acceptLossOf names the adapter, and condition ReconcileSucceeded says so (SecretKeyBaseChanged). Default 1.
	// +kubebuilder:validation:Minimum=1
	// +optional
	SecretKeyBaseGeneration *int32 `json:"secretKeyBaseGeneration,omitempty"`

	// secretsAs is how pods get SECRET_KEY_BASE and the URL of Redis, which has its password. Environment: as SECRET_KEY_BASE and
	// LIVE_STASH_REDIS_URL. Files: as files whose paths are in SECRET_KEY_BASE_FILE and LIVE_STASH_REDIS_URL_FILE, which the release has
	// to read: see docs/how-to/secrets.md; the two variables are then not set, so that programs which the application starts do not
	// inherit them. The cookie stays in RELEASE_COOKIE, from where the start script of a release takes it. Either way a changed value
	// takes effect in pods that start: it replaces them, one by one. Default Environment.
	// +optional
	SecretsAs SecretsAs `json:"secretsAs,omitempty"`

	// beam holds settings of the Erlang virtual machine.
	// +kubebuilder:default={}
	// +optional
	BEAM BEAMSpec `json:"beam,omitempty"`

	// redis is the store of adapter Redis; refused with any other. Default: a Redis server that this operator runs, without
	// persistence (managed).
	// +optional
	Redis *RedisSpec `json:"redis,omitempty"`

	// acceptLossOf names the adapter whose stashes may be lost. Three things wait for it: another store, another SECRET_KEY_BASE, and a new
	// Secret in place of a generated one that was deleted (SecretLost). Whatever leaves stashes
	// behind (another adapter, another Redis, a volume for a managed Redis that had none), or deletes the volume of a managed Redis
	// (its persistence is removed, or the Redis itself), is held until this names the adapter that is left: nothing is changed, and condition
	// ReconcileSucceeded says what would be lost (StoreChangeHeld). A change where nothing is at stake needs no word. Remove it when
	// the change is done, or the next one from that adapter is not held. Default: nothing may be lost.
	// +optional
	AcceptLossOf Adapter `json:"acceptLossOf,omitempty"`

	// browserMemory is what adapter BrowserMemory needs to know; refused with any other.
	// +optional
	BrowserMemory *BrowserMemorySpec `json:"browserMemory,omitempty"`

	// shadow are copies of stashes at other pods, for the case that a pod is killed; refused with any adapter but ETS. Default none.
	// +optional
	Shadow *ShadowSpec `json:"shadow,omitempty"`

	// probes replaces the operator's probes of the application's container.
	// +optional
	Probes *ProbesSpec `json:"probes,omitempty"`

	// disruptionBudget bounds how many pods a node drain may take at a time.
	// +kubebuilder:default={}
	// +optional
	DisruptionBudget DisruptionBudgetSpec `json:"disruptionBudget,omitempty"`

	// networkPolicy restricts who reaches the pods.
	// +kubebuilder:default={}
	// +optional
	NetworkPolicy NetworkPolicySpec `json:"networkPolicy,omitempty"`

	// monitoring is how a Prometheus in the cluster finds the fleet.
	// +kubebuilder:default={}
	// +optional
	Monitoring MonitoringSpec `json:"monitoring,omitempty"`

	// topologySpread says how strictly pods are spread over nodes and zones. ScheduleAnyway: when there is room. DoNotSchedule: a pod
	// that would break the spread over nodes stays pending; zones stay a preference. Disabled: not at all; your own constraints go to
	// podTemplate.spec.topologySpreadConstraints. Default ScheduleAnyway.
	// +kubebuilder:default=ScheduleAnyway
	// +optional
	TopologySpread TopologySpread `json:"topologySpread,omitempty"`

	// resources are the requests and limits of the application's container. Default none.
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || self.claims.size() == 0",message="resources must not have claims: set podTemplate.spec.resourceClaims, and resources.claims of the container app there"
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// env are further environment variables of the application's container. The variables of the operator's contract
	// (docs/reference/environment.md) are refused: each has a field of its own. So are flags of the Erlang virtual machine that name the
	// node, move its ports or evaluate code, in ERL_FLAGS and the like.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="!self.exists(e, e.name in ['LIVE_STASH_ADAPTER', 'LIVE_STASH_TTL', 'LIVE_STASH_REDIS_URL', 'LIVE_STASH_REDIS_URL_FILE', 'LIVE_STASH_REDIS_CACERTFILE', 'PORT', 'PHX_SERVER', 'PHX_HOST', 'SECRET_KEY_BASE', 'SECRET_KEY_BASE_FILE', 'RELEASE_COOKIE', 'RELEASE_DISTRIBUTION', 'RELEASE_NODE', 'RELEASE_TMP', 'LIBCLUSTER_SERVICE', 'LIBCLUSTER_NAMESPACE', 'LIBCLUSTER_APP', 'CLUSTER_DOMAIN', 'DNS_CLUSTER_QUERY', 'POD_NAME', 'POD_NAMESPACE', 'POD_IP', 'ERL_AFLAGS', 'ERL_FULLSWEEP_AFTER'] || e.name.startsWith('LIVESTASH_'))",message="env must not set a variable of the operator's contract (LIVE_STASH_*, LIVESTASH_*, PORT, PHX_SERVER, PHX_HOST, SECRET_KEY_BASE, SECRET_KEY_BASE_FILE, RELEASE_COOKIE, RELEASE_DISTRIBUTION, RELEASE_NODE, RELEASE_TMP, LIBCLUSTER_*, CLUSTER_DOMAIN, DNS_CLUSTER_QUERY, POD_*, ERL_AFLAGS, ERL_FULLSWEEP_AFTER): remove it and use the field of the spec that stands for it"
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// envFrom are ConfigMaps and Secrets whose keys become environment variables of the application's container.
	// A variable of the operator's contract wins over one from here.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(f, has(f.configMapRef) != has(f.secretRef))",message="envFrom: each entry must have exactly one of configMapRef and secretRef"
	// +kubebuilder:validation:XValidation:rule="self.all(f, (!has(f.configMapRef) || (has(f.configMapRef.name) && f.configMapRef.name != '')) && (!has(f.secretRef) || (has(f.secretRef.name) && f.secretRef.name != '')))",message="envFrom: each entry must have the name of a ConfigMap or Secret"
	// +listType=atomic
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// podTemplate is merged over the pods that the operator makes, as a strategic merge patch. The application's
	// container is named `app`. Identity (labels of the selector, host name, contract variables) cannot be changed.
	// +optional
	PodTemplate *PodTemplateOverride `json:"podTemplate,omitempty"`

	// serviceAccount is the identity of the pods: the ServiceAccount of the LiveStashCluster's name, which the operator makes and gives
	// no rights. Bind what the application needs to it.
	// +optional
	ServiceAccount ServiceAccountSpec `json:"serviceAccount,omitempty"`

	// upgrade is when the fleet's pods, and those of a Redis that the operator runs, get what a new version of the operator makes of the
	// same spec: the agent, Redis' image, every detail of the pods. WithNextRollout: with the next rollout of their own, when the spec
	// or a Secret that they read changes; the operator's upgrade touches nobody. Immediately: as soon as it is the fleet's turn, of
	// which the operator gives one at a time (its value upgrade.atOnce), each when the fleet before is Ready again; a Redis without a
	// volume loses all stashes by it. Default: the operator's own (its value upgrade.fleets), WithNextRollout unless it was changed.
	// +optional
	Upgrade UpgradePolicy `json:"upgrade,omitempty"`

	// whenDeleted is what becomes of that without which no session goes on, when the LiveStashCluster is deleted. Delete: it goes with
	// everything else. Retain: what stays is the Secret <name>-secrets (the generated SECRET_KEY_BASE and cookie), the volume of a
	// managed Redis (PersistentVolumeClaim <name>-redis-data) and, with TLS between nodes, the fleet's authority (Secret
	// <name>-distribution-ca). A LiveStashCluster of the same name in the same namespace takes them back: users who come back within the TTL have
	// their session, and with BrowserMemory and a Redis with a volume their state. What then becomes of them, that one's whenDeleted says.
	// A change is carried out when ReconcileSucceeded is True for it, and then for the next deletion; it restarts nothing. Nothing outlives a
	// namespace that is deleted. Volumes that redis-operator makes are refused here, because that operator deletes them. Default Delete.
	// +optional
	WhenDeleted DeletionPolicy `json:"whenDeleted,omitempty"`

	// paused stops the operator from changing anything for this LiveStashCluster; its status goes on. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// DeletionPolicy is what becomes of Secrets and volumes when the LiveStashCluster is deleted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The policies.
const (
	// DeletionDelete: they go with it.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionRetain: they stay, for another LiveStashCluster of its name.
	DeletionRetain DeletionPolicy = "Retain"
)

// Adapter is a LiveStash adapter: where a user's state is stashed.
//
// +kubebuilder:validation:Enum=ETS;BrowserMemory;Redis;Mnesia;None
type Adapter string

// The adapters.
const (
	// AdapterETS: in the memory of the pod that served the user; peers fetch it over Erlang distribution.
	AdapterETS Adapter = "ETS"
	// AdapterBrowserMemory: signed, in the user's browser.
	AdapterBrowserMemory Adapter = "BrowserMemory"
	// AdapterRedis: in a Redis server.
	AdapterRedis Adapter = "Redis"
	// AdapterMnesia: in the memory of every pod.
	AdapterMnesia Adapter = "Mnesia"
	// AdapterNone: nowhere. A baseline without LiveStash.
	AdapterNone Adapter = "None"
)

// HTTPSpec is the web endpoint of the application.
type HTTPSpec struct {
	// port is where the application listens (PORT). Default 4000.
	// +kubebuilder:default=4000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`

	// host is the public host name (PHX_HOST): Phoenix makes URLs with it and checks the origin of sockets against it.
	// It is a DNS name, or an IPv4 address, alone. Default: the DNS name of the client Service.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.])*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)?$')",message="host must be a DNS name alone, for example shop.example.com: leave out the scheme, the port and the path, and write a name with other letters than a-z in its xn-- form"
	// +optional
	Host string `json:"host,omitempty"`

	// readinessPath is a path that answers 2xx or 3xx when the application can serve, for example /healthz.
	// Default none: an open port counts as ready, because a Phoenix application has no such path unless it makes one.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[!-~]*)?$') && !self.contains('#')",message="readinessPath must start with '/', for example /healthz, and be printable ASCII without spaces and '#': percent-encode other characters"
	// +optional
	ReadinessPath string `json:"readinessPath,omitempty"`

	// service is the client Service, which load balancers and ingresses point at.
	// +kubebuilder:default={}
	// +optional
	Service ServiceSpec `json:"service,omitempty"`
}

// ServiceSpec is the client Service.
type ServiceSpec struct {
	// type is the Service's type. Default ClusterIP.
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`

	// port is the Service's port. Default 80.
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`

	// annotations are added to the Service, for example those that a cloud's load balancer reads.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SecretsAs is how pods get secret values.
//
// +kubebuilder:validation:Enum=Environment;Files
type SecretsAs string

// The ways to get secret values.
const (
	// SecretsAsEnvironment: as environment variables.
	SecretsAsEnvironment SecretsAs = "Environment"
	// SecretsAsFiles: as files, whose paths are in environment variables.
	SecretsAsFiles SecretsAs = "Files"
)

// SecretSource is where a secret value comes from: generated by the operator, or the user's own.
//
// +kubebuilder:validation:XValidation:rule="(has(self.generate) && self.generate) != has(self.secretRef)",message="set exactly one of generate: true (the operator makes the value once) and secretRef (your own Secret)"
type SecretSource struct {
	// generate asks for a value from the operating system's random source, made once and kept in the Secret
	// <name>-secrets.
	// +optional
	Generate *bool `json:"generate,omitempty"`

	// secretRef is the user's own Secret. A changed value rolls the fleet.
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
}

// SecretKeyReference is one key of a Secret in the namespace of the LiveStashCluster.
type SecretKeyReference struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// key in the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key"`
}

// BEAMSpec holds settings of the Erlang virtual machine.
type BEAMSpec struct {
	// fullsweepAfter is after how many minor garbage collections a process gets a full one (ERL_FULLSWEEP_AFTER).
	// The book Real-Time Phoenix advises 20 for applications with many idle sockets: less memory for a little CPU.
	// Default: unset, the BEAM's own 65535.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	FullsweepAfter *int32 `json:"fullsweepAfter,omitempty"`

	// busyWait lets idle schedulers spin before they sleep (+sbwt). It costs CPU time that a container with a CPU limit
	// is throttled for. Default false.
	// +optional
	BusyWait bool `json:"busyWait,omitempty"`

	// processLimit is the most processes a node may have (+P). Default 1048576, the BEAM's own since OTP 27: a LiveView
	// takes two or three.
	// +kubebuilder:default=1048576
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=134217727
	// +optional
	ProcessLimit int32 `json:"processLimit,omitempty"`

	// portLimit is the most ports, and so sockets, a node may have (+Q). Default 65536: the BEAM's own default follows
	// the open-files limit, which is a billion under some container runtimes, and costs gigabytes there.
	// +kubebuilder:default=65536
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=134217727
	// +optional
	PortLimit int32 `json:"portLimit,omitempty"`

	// crashDumps keeps what the virtual machine writes when it crashes, for `kubectl livestash crashdump`. A dump holds what was in memory:
	// secrets, and users' state. Needs the agent. Default: unset; then the last dump lies in /tmp of the pod's container, until another
	// crash or the pod's end.
	// +optional
	CrashDumps *CrashDumpsSpec `json:"crashDumps,omitempty"`

	// extraFlags are added to ERL_AFLAGS, after the operator's own. One line of printable ASCII; quotes must end, and there is no
	// escape character.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="!self.matches(r'(^|[\\x00- \\x22\\x27])-(name|sname|setcookie|remsh|eval|s|run|dist_listen|erl_epmd_port)([\\x00- \\x22\\x27]|$)|inet_dist_listen_m')",message="extraFlags must not set the node name, the cookie or the distribution port, which the operator sets (spec.clustering), nor evaluate code (-eval, -s, -run), which belongs in the release"
	// +kubebuilder:validation:XValidation:rule="self.matches(r'^([ !#-&(-\\x5b\\x5d-~]|\\x22[ !#-\\x5b\\x5d-~]*\\x22|\\x27[ -&(-\\x5b\\x5d-~]*\\x27)*$')",message="extraFlags must be one line of printable ASCII with no backslash and with quotes that end: write what needs more into the release's rel/vm.args.eex"
	// +optional
	ExtraFlags string `json:"extraFlags,omitempty"`
}

// CrashDumpsSpec is how many crash dumps a pod keeps, in a volume of its own that goes with the pod. It needs room on the node for one more
// than keep, each of maxSize.
type CrashDumpsSpec struct {
	// keep is how many dumps each pod keeps, the newest. From 1 to 20. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	Keep int32 `json:"keep,omitempty"`

	// maxSize is after how many bytes a dump is cut off (ERL_CRASH_DUMP_BYTES). The summary and the processes stand at its
	// beginning. From 1Mi to 64Gi. Default 256Mi.
	// +kubebuilder:default="256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')",message="maxSize must be a quantity, for example 256Mi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE].?[0-9]{3}|[0-9.]{41}') || !isQuantity(string(self)) || (quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Gi')) <= 0)",message="maxSize must be from 1Mi to 64Gi"
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
}

// ProbesSpec replaces the operator's probes. Each probe that is set here is used as it is. The port that it asks must be one of the pod's:
// spec.http.port, or one that is among the ports of a container in podTemplate.spec.
//
// +kubebuilder:validation:XValidation:rule="(has(self.startup) ? [self.startup] : []).all(p, [has(p.httpGet), has(p.tcpSocket), has(p.exec), has(p.grpc)].filter(set, set).size() == 1)",message="probes.startup must have exactly one of httpGet, tcpSocket, exec and grpc",fieldPath=".startup"
// +kubebuilder:validation:XValidation:rule="(has(self.readiness) ? [self.readiness] : []).all(p, [has(p.httpGet), has(p.tcpSocket), has(p.exec), has(p.grpc)].filter(set, set).size() == 1)",message="probes.readiness must have exactly one of httpGet, tcpSocket, exec and grpc",fieldPath=".readiness"
// +kubebuilder:validation:XValidation:rule="(has(self.liveness) ? [self.liveness] : []).all(p, [has(p.httpGet), has(p.tcpSocket), has(p.exec), has(p.grpc)].filter(set, set).size() == 1)",message="probes.liveness must have exactly one of httpGet, tcpSocket, exec and grpc",fieldPath=".liveness"
// +kubebuilder:validation:XValidation:rule="!has(self.startup) || !has(self.startup.successThreshold) || self.startup.successThreshold == 1",message="probes.startup.successThreshold must be 1: remove it",fieldPath=".startup"
// +kubebuilder:validation:XValidation:rule="!has(self.liveness) || !has(self.liveness.successThreshold) || self.liveness.successThreshold == 1",message="probes.liveness.successThreshold must be 1: remove it",fieldPath=".liveness"
// +kubebuilder:validation:XValidation:rule="!has(self.readiness) || !has(self.readiness.terminationGracePeriodSeconds)",message="probes.readiness must not set terminationGracePeriodSeconds: a pod that is not ready is not ended",fieldPath=".readiness"
// +kubebuilder:validation:XValidation:rule="!has(self.startup) || ((!has(self.startup.httpGet) || type(self.startup.httpGet.port) != int || (self.startup.httpGet.port >= 1 && self.startup.httpGet.port <= 65535)) && (!has(self.startup.tcpSocket) || type(self.startup.tcpSocket.port) != int || (self.startup.tcpSocket.port >= 1 && self.startup.tcpSocket.port <= 65535)))",message="probes.startup: a port must be from 1 to 65535, or the name of one",fieldPath=".startup"
// +kubebuilder:validation:XValidation:rule="!has(self.readiness) || ((!has(self.readiness.httpGet) || type(self.readiness.httpGet.port) != int || (self.readiness.httpGet.port >= 1 && self.readiness.httpGet.port <= 65535)) && (!has(self.readiness.tcpSocket) || type(self.readiness.tcpSocket.port) != int || (self.readiness.tcpSocket.port >= 1 && self.readiness.tcpSocket.port <= 65535)))",message="probes.readiness: a port must be from 1 to 65535, or the name of one",fieldPath=".readiness"
// +kubebuilder:validation:XValidation:rule="!has(self.liveness) || ((!has(self.liveness.httpGet) || type(self.liveness.httpGet.port) != int || (self.liveness.httpGet.port >= 1 && self.liveness.httpGet.port <= 65535)) && (!has(self.liveness.tcpSocket) || type(self.liveness.tcpSocket.port) != int || (self.liveness.tcpSocket.port >= 1 && self.liveness.tcpSocket.port <= 65535)))",message="probes.liveness: a port must be from 1 to 65535, or the name of one",fieldPath=".liveness"
type ProbesSpec struct {
	// startup gives the application time to boot. Default: the HTTP port accepts connections, tried every 2 seconds
	// for 2 minutes.
	// +optional
	Startup *corev1.Probe `json:"startup,omitempty"`

	// readiness decides whether the client Service sends connections, and whether a rollout goes on. Default, with the
	// agent: the HTTP port accepts connections, peers are connected, the adapter's store is loaded, the pod is not
	// draining, and http.readinessPath answers when it is set; every second, 2 failures. Without the agent: GET
	// http.readinessPath when it is set, else the HTTP port accepts connections; every 5 seconds, 2 failures.
	// +optional
	Readiness *corev1.Probe `json:"readiness,omitempty"`

	// liveness restarts a container that hangs. Default: the HTTP port accepts connections, every 10 seconds,
	// 6 failures: a restart loses state, so it must be the last resort.
	// +optional
	Liveness *corev1.Probe `json:"liveness,omitempty"`
}

// DisruptionBudgetSpec bounds how many pods a node drain may take at a time.
type DisruptionBudgetSpec struct {
	// enabled makes a PodDisruptionBudget. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// maxUnavailable is how many pods, or what share of them, may be away at once: a number, or a percentage in quotes. It
	// bounds evictions; a rollout takes one pod at a time in any case. With 1 replica, 1 means that no eviction
	// may take the only pod: the operator takes it off a node that is cordoned, when a second one has its users, if it may
	// see nodes and spec.rollout.surge is not Never. '100%' lets evictions take it at once. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number of pods from 0 on, or a percentage from 0% to 100% in quotes, for example 1 or '25%'"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// TopologySpread says how strictly pods are spread over nodes and zones.
//
// +kubebuilder:validation:Enum=ScheduleAnyway;DoNotSchedule;Disabled
type TopologySpread string

// The degrees of spreading.
const (
	// SpreadScheduleAnyway: spread when there is room.
	SpreadScheduleAnyway TopologySpread = "ScheduleAnyway"
	// SpreadDoNotSchedule: a pod that would break the spread over nodes stays pending. Zones stay a preference.
	SpreadDoNotSchedule TopologySpread = "DoNotSchedule"
	// SpreadDisabled: no constraint. Set your own in podTemplate.spec.topologySpreadConstraints.
	SpreadDisabled TopologySpread = "Disabled"
)
