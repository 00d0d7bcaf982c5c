package fleet

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const (
	// beforeDeadline is that of spec.rollout.before, unless it says so.
	beforeDeadline = 10 * time.Minute
	// beyondDeadline is how much later the Job ends than its first pod, which has half of that to stop. A pod that ends by its own
	// deadline is kept, and its log with it.
	beyondDeadline = time.Minute
)

// Before is what spec.rollout.before comes to for one template.
type Before struct {
	// Template is the digest of what the user gives the application: with another one there is something to run for.
	Template string
	// Attempt is the digest of that and of what is to run: with another one it is worth another try.
	Attempt string

	pod     corev1.PodTemplateSpec
	cluster *v1alpha1.LiveStashCluster
}

// BeforeRollout tells what runs before pods get the template that the LiveStashCluster wants. It is made also when nothing is to
// run: its digest is noted then. An error is a *render.SpecError: it speaks to the user.
func BeforeRollout(c *v1alpha1.LiveStashCluster, in render.Inputs) (*Before, error) {
	template, err := podTemplate(c, in)
	if err != nil {
		return nil, err
	}
	before := &Before{pod: commandPod(template, c), cluster: c}
	// Of the spec, not of what is rendered from it: another operator may render something else, and that is nothing to migrate for.
	spec := &c.Spec
	before.Template = digestOf(spec.Image, spec.Env, spec.EnvFrom, spec.PodTemplate, in.SecretsDigest, in.ConfigDigest)
	before.Attempt = digestOf(before.Template, c.Spec.Rollout.Before)
	return before, nil
}

func digestOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // types of the API can be encoded: they came that way
	}
	return render.Digest(string(text))
}

// Job runs spec.rollout.before, which must be there, for the template.
func (b *Before) Job() *batchv1.Job {
	c, spec := b.cluster, b.cluster.Spec.Rollout.Before
	deadline := beforeDeadline
	if spec.Deadline != nil {
		deadline = spec.Deadline.Duration
	}
	meta := render.ObjectMeta(c, BeforeName(c))
	meta.Labels[render.ComponentLabel] = render.BeforeComponent
	meta.Annotations = map[string]string{TemplateAnnotation: b.Template, AttemptAnnotation: b.Attempt}
	meta.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(c)}

	pod := *b.pod.DeepCopy()
	pod.Spec.ActiveDeadlineSeconds = seconds(deadline)
	app := &pod.Spec.Containers[0]
	app.Command, app.Args = spec.Command, spec.Args
	app.Env = withVariables(app.Env, spec.Env)
	if spec.Resources != nil {
		app.Resources = *spec.Resources
	}
	return &batchv1.Job{
		TypeMeta:   render.JobType,
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			Template:              pod,
			BackoffLimit:          ptr.To(spec.Retries),
			ActiveDeadlineSeconds: seconds(deadline + beyondDeadline),
			// The next try begins when the last one has ended, not when it was told to.
			PodReplacementPolicy: ptr.To(batchv1.Failed),
		},
	}
}

func seconds(of time.Duration) *int64 { return ptr.To(int64(math.Ceil(of.Seconds()))) }

// commandPod is a pod that runs a command where the application would run: with its environment, volumes and rights, but it is no
// node, has no agent, serves nobody, and does not wait for sidecars to end.
func commandPod(template corev1.PodTemplateSpec, c *v1alpha1.LiveStashCluster) corev1.PodTemplateSpec {
	pod := *template.DeepCopy()
	pod.Labels = maps.Clone(pod.Labels)
	pod.Labels[render.ComponentLabel] = render.BeforeComponent
	maps.DeleteFunc(pod.Annotations, func(name, _ string) bool { return strings.HasPrefix(name, "livestash.dev/") })

	spec := &pod.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.TerminationGracePeriodSeconds = nil
	spec.TopologySpreadConstraints = nil
	if spec.Affinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: spec.Affinity.NodeAffinity} // the others are about the fleet's pods
	}
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(one corev1.Container) bool { return one.Name == InitContainer })
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(one corev1.Volume) bool { return slices.Contains(agentVolumes, one.Name) })

	app := spec.Containers[0]
	app.Env = commandEnvironment(app.Env, c)
	app.VolumeMounts = slices.DeleteFunc(app.VolumeMounts, func(one corev1.VolumeMount) bool { return slices.Contains(agentVolumes, one.Name) })
	app.Ports, app.StartupProbe, app.ReadinessProbe, app.LivenessProbe, app.Lifecycle = nil, nil, nil, nil, nil
	// The kubelet tells the last lines of its log in the pod's status.
	app.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	spec.Containers = []corev1.Container{app}
	return pod
}

// commandEnvironment is the application's without what makes it a node, lets it serve, or is the agent's.
func commandEnvironment(env []corev1.EnvVar, c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	env = slices.DeleteFunc(env, func(one corev1.EnvVar) bool {
		return slices.Contains([]string{"PHX_SERVER", "RELEASE_NODE"}, one.Name) || strings.HasPrefix(one.Name, "LIVESTASH_")
	})
	if c.Spec.BEAM.CrashDumps != nil {
		env = withVariables(env, []corev1.EnvVar{render.Value(crashDumpVariable, scratchDir+crashDump)})
	}
	return withVariables(env, []corev1.EnvVar{
		render.Value("RELEASE_DISTRIBUTION", "none"),
		render.Value("ERL_AFLAGS", joined(machineFlags(c), c.Spec.BEAM.ExtraFlags)),
	})
}

// withVariables are the variables with others set, in their place or at the end.
func withVariables(env, others []corev1.EnvVar) []corev1.EnvVar {
	env = slices.Clone(env)
	for _, other := range others {
		at := slices.IndexFunc(env, func(one corev1.EnvVar) bool { return one.Name == other.Name })
		if at < 0 {
			env = append(env, other)
			continue
		}
		env[at] = other
	}
	return env
}
