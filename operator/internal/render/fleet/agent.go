package fleet

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// agentVolume holds the agent's code and the list of peers, for the application's container to read.
	agentVolume = "livestash"
	agentDir    = "/livestash"

	// InitContainer brings the agent, and waits for Redis before: until then it answers for the agent.
	InitContainer  = "livestash-init"
	probeContainer = "livestash-probe"

	// syncTimeout is how long a booting node waits for peers that do not answer.
	syncTimeout = 3 * time.Second
	// stopTime is what is left for the virtual machine to stop when the drain is over.
	stopTime = 7 * time.Second
	// plainGracePeriod is Kubernetes' own, for pods without the agent.
	plainGracePeriod = 30 * time.Second
)

// agentVolumes are those that the application has because of the agent.
var agentVolumes = []string{agentVolume, crashVolume}

// AgentContainers are those beside the application that serve the agent.
var AgentContainers = []string{InitContainer, probeContainer}

// agentFlags load the agent into a release that knows nothing of it. A release in embedded mode loads no module on
// demand, so the agent's is loaded by hand; without the file the application boots all the same.
const agentFlags = "-args_file " + agentDir + "/vm.args -pa " + agentDir + "/ebin " +
	"-eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]."

// withAgent adds the agent to the pods' spec.
func withAgent(spec *corev1.PodSpec, c *v1alpha1.LiveStashCluster, in render.Inputs) {
	app := &spec.Containers[0]
	app.Ports = append(app.Ports, corev1.ContainerPort{Name: AgentPort, ContainerPort: c.Spec.Agent.Port, Protocol: corev1.ProtocolTCP})
	app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: agentVolume, MountPath: agentDir, ReadOnly: true})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name:         agentVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	probe := agentProbe(c, in)
	if dumps := c.Spec.BEAM.CrashDumps; dumps != nil {
		spec.Volumes = append(spec.Volumes, withCrashDumps(app, &probe, dumps))
	}
	spec.InitContainers = append(spec.InitContainers, agentInit(c, in))
	spec.Containers = append(spec.Containers, probe)
}

// agentEnvironment is what the agent reads besides the rest of the contract.
func agentEnvironment(c *v1alpha1.LiveStashCluster, in render.Inputs) []corev1.EnvVar {
	drain := c.Spec.Drain
	keepBytes := ptr.Deref(drain.KeepBytes, resource.Quantity{})
	variables := []corev1.EnvVar{
		peersQuery(c, in),
		render.Value("LIVESTASH_AGENT_PORT", strconv.Itoa(int(c.Spec.Agent.Port))),
		milliseconds("LIVESTASH_READY_GRACE_MS", c.Spec.Agent.ReadyGrace),
		milliseconds("LIVESTASH_DRAIN_ENDPOINT_WAIT_MS", drain.EndpointWait),
		render.Value("LIVESTASH_DRAIN_BATCH_SIZE", strconv.Itoa(int(drain.BatchSize))),
		milliseconds("LIVESTASH_DRAIN_BATCH_INTERVAL_MS", drain.BatchInterval),
		milliseconds("LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS", drain.CloseTimeout),
		milliseconds("LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS", drain.HandOffTimeout),
		milliseconds("LIVESTASH_DRAIN_KEEP_FOR_MS", drain.KeepFor),
		render.Value("LIVESTASH_DRAIN_KEEP_BYTES", strconv.FormatInt(keepBytes.Value(), 10)),
	}
	return append(variables, shadowEnvironment(c)...)
}

// shadowEnvironment says what the agents copy. Nothing where nobody asked for copies, so that no pod is replaced for it.
func shadowEnvironment(c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	if !c.ShadowEnabled() {
		return nil
	}
	shadow := c.Spec.Shadow
	maxBytes := ptr.Deref(shadow.MaxBytes, resource.Quantity{})
	return []corev1.EnvVar{
		render.Value("LIVESTASH_SHADOW_COPIES", strconv.Itoa(int(shadow.Copies))),
		milliseconds("LIVESTASH_SHADOW_INTERVAL_MS", shadow.Interval),
		render.Value("LIVESTASH_SHADOW_MAX_BYTES", strconv.FormatInt(maxBytes.Value(), 10)),
		// So that a stash and its copy are not lost with one machine. Kubernetes copies a node's zone to its pods from 1.35
		// on; before that it is empty.
		fromField("LIVESTASH_MACHINE", "spec.nodeName"),
		fromField("LIVESTASH_ZONE", "metadata.labels['"+corev1.LabelTopologyZone+"']"),
	}
}

// peersQuery is what DNS is asked for the peers. Not under the name that applications of `mix phx.new` read: dns_cluster, which they have,
// would look for nodes by their IP addresses, and find none.
func peersQuery(c *v1alpha1.LiveStashCluster, in render.Inputs) corev1.EnvVar {
	return render.Value("LIVESTASH_PEERS_QUERY", render.ServiceHost(c, in, render.HeadlessName(c)))
}

// agentInit copies the agent's code into the pod and writes the list of peers, which a node must know before its
// applications start.
func agentInit(c *v1alpha1.LiveStashCluster, in render.Inputs) corev1.Container {
	container := agentHelper(c, in, InitContainer, "install")
	// For Redis, it waits until the login is accepted.
	container.Env = append(container.Env, variablesOfSecrets(c, store.For(c).Env(c))...)
	container.VolumeMounts = append(container.VolumeMounts, redis.CertificateMounts(c)...)
	container.VolumeMounts = append(container.VolumeMounts, secretMounts(c)...)
	return container
}

// agentProbe keeps the list of peers up to date, and answers the readiness probe: with the agent's word, or, when no agent
// answers, with whether the application's port is open. So a broken agent never makes a serving pod unready.
func agentProbe(c *v1alpha1.LiveStashCluster, in render.Inputs) corev1.Container {
	container := agentHelper(c, in, probeContainer, "serve")
	// It gets a SIGTERM too, and loses it as well when the pod is told to stop while its containers start.
	container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/podagent", "stopping", "--dir", agentDir}},
	}}
	container.Ports = []corev1.ContainerPort{{Name: "agent-probe", ContainerPort: probePort(c), Protocol: corev1.ProtocolTCP}}
	return container
}

func agentHelper(c *v1alpha1.LiveStashCluster, in render.Inputs, name, command string) corev1.Container {
	container := corev1.Container{
		Name:    name,
		Image:   in.AgentImage,
		Command: []string{"/podagent", command, "--dir", agentDir},
		Env: []corev1.EnvVar{
			fromField("POD_NAME", "metadata.name"),
			render.Value("RELEASE_NODE", NodeName(c, in, "$(POD_NAME)")),
			render.Value("LIBCLUSTER_APP", c.Name),
			peersQuery(c, in),
			render.Value("PORT", strconv.Itoa(int(c.Spec.HTTP.Port))),
			render.Value("LIVESTASH_AGENT_PORT", strconv.Itoa(int(c.Spec.Agent.Port))),
			render.Value("LIVESTASH_NET_TICKTIME", strconv.FormatInt(int64(netTickTime(c)/time.Second), 10)),
			render.Value("LIVESTASH_SYNC_TIMEOUT_MS", strconv.FormatInt(syncTimeout.Milliseconds(), 10)),
		},
		// So that pods are admitted where a quota wants requests and limits, and a leak would stay in here.
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
		},
		SecurityContext: render.LockedDown(),
		VolumeMounts:    []corev1.VolumeMount{{Name: agentVolume, MountPath: agentDir}},
		// It ends with a sentence when it cannot do its work, for example because its port is taken.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if path := c.Spec.HTTP.ReadinessPath; path != "" {
		container.Env = append(container.Env, render.Value("LIVESTASH_READINESS_PATH", path))
	}
	if prevent := preventOverlappingPartitions(c); prevent != nil {
		container.Env = append(container.Env, render.Value("LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS", strconv.FormatBool(*prevent)))
	}
	return container
}

// preventOverlappingPartitions is nil where Erlang is left to itself. Where each stash is on one pod, every pod must reach all it can.
func preventOverlappingPartitions(c *v1alpha1.LiveStashCluster) *bool {
	own := c.Spec.Clustering.PreventOverlappingPartitions
	if own == nil && store.For(c).Home() == store.OnePod {
		return new(false)
	}
	return own
}

func netTickTime(c *v1alpha1.LiveStashCluster) time.Duration {
	if own := c.Spec.Clustering.NetTickTime; own != nil {
		return own.Duration
	}
	return store.For(c).NetTickTime(c)
}

// probePort answers the kubelet's readiness probe.
func probePort(c *v1alpha1.LiveStashCluster) int32 { return c.Spec.Agent.Port + 1 }

// agentReadiness asks often: a rollout waits for it.
func agentReadiness(c *v1alpha1.LiveStashCluster) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(probePort(c))}},
		PeriodSeconds:    1,
		FailureThreshold: 2,
		TimeoutSeconds:   3,
	}
}

// gracePeriodSeconds is after how long the kubelet kills a pod that was told to stop: long enough for every step of the drain. Where stashes
// are elsewhere the last step gives them more time, and a pod may also wait for another one to come.
func gracePeriodSeconds(c *v1alpha1.LiveStashCluster) int64 {
	drain := c.Spec.Drain
	var grace time.Duration
	switch {
	case drain.GracePeriod != nil:
		grace = drain.GracePeriod.Duration
	case !c.AgentEnabled():
		grace = plainGracePeriod
	default:
		grace = duration(drain.EndpointWait) + duration(drain.CloseTimeout) + duration(drain.HandOffTimeout) + stopTime
	}
	return int64(math.Ceil(grace.Seconds()))
}

func milliseconds(name string, of *metav1.Duration) corev1.EnvVar {
	return render.Value(name, strconv.FormatInt(duration(of).Milliseconds(), 10))
}

func duration(of *metav1.Duration) time.Duration {
	return ptr.Deref(of, metav1.Duration{}).Duration
}
