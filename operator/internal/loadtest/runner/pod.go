package runner

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// environment is the scenario's, and what every runner is told besides.
func (t Test) environment() []corev1.EnvVar {
	env := append(slices.Clone(t.Env),
		corev1.EnvVar{Name: "RUNNERS", Value: strconv.Itoa(int(t.Runners))},
		corev1.EnvVar{Name: "SUMMARY", Value: "termination-log"},
	)
	if t.Prometheus != "" {
		env = append(env,
			corev1.EnvVar{Name: "K6_PROMETHEUS_RW_SERVER_URL", Value: t.Prometheus},
			corev1.EnvVar{Name: "K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM", Value: "true"},
			corev1.EnvVar{Name: "K6_PROMETHEUS_RW_PUSH_INTERVAL", Value: "1s"},
		)
	}
	// The image lets the heap of k6 grow to five times what is in use, so as to collect garbage less often. Near the limit of the pod it
	// must not: the rest is for what is not on the heap.
	if limit := t.Resources.Limits.Memory().Value(); limit > 0 {
		env = append(env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit/10*8, 10)})
	}
	return env
}

// output are the arguments of `k6 run` that make it send what it measures. All of it has the name of the test, also what k6 measures of itself: a
// Prometheus takes the series of two processes that nothing tells apart for one, and refuses all that comes along with a sample that is not its newest.
func (t Test) output() []string {
	if t.Prometheus == "" {
		return nil
	}
	return []string{"--out", "experimental-prometheus-rw", "--tag", "testid=" + t.Name}
}

func podSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot:   ptr.To(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurity() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// scratchVolume is the only place where a runner of ours may write, besides its termination message.
const scratchVolume = "scratch"

// runnerSecurity is containerSecurity, and no more to write to than the scratch volume, where that is known to do.
func (t Test) runnerSecurity() *corev1.SecurityContext {
	security := containerSecurity()
	if !t.ownFiles() {
		security.ReadOnlyRootFilesystem = ptr.To(true)
	}
	return security
}

// scratch is the volume with which a read-only root file system goes, and where it is. None without one.
func (t Test) scratch() ([]corev1.Volume, []corev1.VolumeMount) {
	if t.ownFiles() {
		return nil, nil
	}
	return []corev1.Volume{{Name: scratchVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		[]corev1.VolumeMount{{Name: scratchVolume, MountPath: "/tmp"}}
}

// process is what a runner's pod tells.
func process(number int, pod *corev1.Pod) Process {
	seen := Process{Number: number, State: Pending, Pod: pod.Name, IP: pod.Status.PodIP}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != container {
			continue
		}
		if ended := status.State.Terminated; ended != nil {
			seen.State, seen.ExitCode, seen.Reason, seen.Message = Ended, ended.ExitCode, ended.Reason, ended.Message
			return seen
		}
		if status.Ready {
			seen.State = Ready
		}
	}
	// Evicted or on a node that is gone: no container tells.
	if pod.Status.Phase == corev1.PodFailed || !pod.DeletionTimestamp.IsZero() {
		seen.State, seen.Reason, seen.Message = Lost, pod.Status.Reason, pod.Status.Message
	}
	seen.Trouble = Trouble(pod)
	return seen
}

// Trouble says why a pod does not start; empty when it may yet.
func Trouble(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return fmt.Sprintf("pod %s cannot be scheduled: %s", pod.Name, condition.Message)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Message != "" {
			return fmt.Sprintf("pod %s: %s: %s", pod.Name, waiting.Reason, waiting.Message)
		}
	}
	return ""
}
