package cluster

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// waiting is a pod whose application does not start.
func waiting(reason string) corev1.PodStatus { return waitingIn("app", reason, "because") }

// waitingIn is one with a container that waits for that reason, of which the kubelet says that.
func waitingIn(container, reason, says string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: container, Image: "img", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: says}},
	}}}
}

// restarting is one whose container was ended for that reason, and waits for its next start.
func restarting(reason, says string) corev1.PodStatus {
	status := endedWith(reason, 128)
	status.ContainerStatuses[0].LastTerminationState.Terminated.Message = says
	return status
}

func endedWith(reason string, code int32) corev1.PodStatus {
	status := waiting("CrashLoopBackOff")
	status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}
	return status
}

func TestPodTrouble(t *testing.T) {
	cases := map[string]struct {
		status   corev1.PodStatus
		deleting bool
		want     string
	}{
		"starting":      {waiting("ContainerCreating"), false, ""},
		"no image":      {waiting("ImagePullBackOff"), false, "pod shop-0, container app: ImagePullBackOff; the image img cannot be had: check spec.image and spec.imagePullSecrets"},
		"crashing":      {waiting("CrashLoopBackOff"), false, "pod shop-0, container app: CrashLoopBackOff; see `kubectl logs -n web shop-0 -c app --previous`"},
		"going anyway":  {waiting("CrashLoopBackOff"), true, ""},
		"unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable, Message: "no room"}}}, false, "pod shop-0 cannot be scheduled: no room"},
		"no key": {waitingIn("app", "CreateContainerConfigError", `couldn't find key token in Secret web/payments`), false,
			"pod shop-0, container app: CreateContainerConfigError; couldn't find key token in Secret web/payments"},
		"no ConfigMap": {waitingIn("app", "CreateContainerConfigError", `configmap "settings" not found`), false,
			`pod shop-0, container app: CreateContainerConfigError; configmap "settings" not found`},
		"no command": {waitingIn("app", "RunContainerError", `OCI runtime create failed: exec: "/app/bin/shopp": stat /app/bin/shopp: no such file or directory: unknown`), false,
			"pod shop-0, container app: RunContainerError; its command is not in the image: check spec.image, and the command in spec.podTemplate.spec"},
		"no command, again": {restarting("StartError", `exec: "shopp": executable file not found in $PATH`), false,
			"pod shop-0, container app: CrashLoopBackOff; its command is not in the image: check spec.image, and the command in spec.podTemplate.spec"},
		"no program": {restarting("StartError", `exec /app/bin/shop: permission denied`), false,
			"pod shop-0, container app: CrashLoopBackOff; the user that it runs as may not execute its command: mend the image, or set runAsUser in spec.podTemplate.spec"},
		"another processor's": {restarting("StartError", "exec /app/bin/shop: exec format error"), false,
			"pod shop-0, container app: CrashLoopBackOff; its image is made for another kind of processor: check spec.image"},
		"stopped by a probe": {endedWith("Completed", 0), false,
			"pod shop-0, container app: CrashLoopBackOff; it ended with exit code 0, which is no crash: a probe that fails has it stopped (spec.probes.liveness, spec.probes.startup), or its command is no server; see `kubectl describe pod -n web shop-0`"},
		"killed after a probe": {endedWith("Error", 137), false,
			"pod shop-0, container app: CrashLoopBackOff; it ended with exit code 137, which is no crash: a probe that fails has it stopped (spec.probes.liveness, spec.probes.startup), or its command is no server; see `kubectl describe pod -n web shop-0`"},
		"too little memory": {endedWith("OOMKilled", 137), false,
			"pod shop-0, container app: CrashLoopBackOff; it took more memory than it may, and the kernel ended it, which leaves no crash dump: raise spec.resources.limits.memory"},
		"crashing, with a last word": {restarting("Error", "no such file or directory"), false,
			"pod shop-0, container app: CrashLoopBackOff; see `kubectl logs -n web shop-0 -c app --previous`"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-0"}, Status: c.status}
			if c.deleting {
				pod.DeletionTimestamp = ptr.To(metav1.Now())
			}
			if got := podTrouble(pod); got != c.want {
				t.Errorf("podTrouble = %q, want %q", got, c.want)
			}
			if got := podTrouble(slimPod(pod)); got != c.want {
				t.Errorf("of what the cache holds, podTrouble = %q, want %q", got, c.want)
			}
		})
	}
}

// A container runtime that refuses an environment quotes it, and the kubelet hands that on.
func TestPodTroubleTellsNoValues(t *testing.T) {
	const said = "failed to create containerd task: environment variable \"SECRET_KEY_BASE=s3cret\\x00\" must not contain NUL"
	for name, status := range map[string]corev1.PodStatus{
		"the configuration": waitingIn("app", "CreateContainerConfigError", said),
		"the container":     waitingIn("app", "CreateContainerError", said),
		"its start":         waitingIn("app", "RunContainerError", said),
		"its start, again":  restarting("StartError", said),
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-0"}, Status: status}
		got := podTrouble(pod)
		if strings.Contains(got, "s3cret") || !strings.Contains(got, "see `kubectl describe pod -n web shop-0`") {
			t.Errorf("%s: podTrouble = %q", name, got)
		}
	}
	pod := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", Message: said}},
	}}}}
	if got := failure(&batchv1.Job{}, []corev1.Pod{pod}); strings.Contains(got, "s3cret") {
		t.Errorf("before a rollout: %s", got)
	}
}

// Who reads which image cannot be had should look where it is set.
func TestImageAdvice(t *testing.T) {
	for container, c := range map[string]struct{ component, says string }{
		"app":            {render.FleetComponent, "check spec.image and spec.imagePullSecrets"},
		"livestash-init": {render.FleetComponent, "check the operator's flag --agent-image and spec.imagePullSecrets"},
		"log":            {render.FleetComponent, "check spec.podTemplate.spec and spec.imagePullSecrets"},
		"redis":          {render.RedisComponent, "check spec.redis.managed.image, without it the operator's flag --redis-image, and spec.imagePullSecrets"},
		"exporter":       {render.RedisComponent, "check spec.redis.managed.exporter.image, without it the operator's flag --redis-exporter-image, and spec.imagePullSecrets"},
		"shop-redis-op":  {render.RedisComponent, "check spec.redis.operator and spec.imagePullSecrets"},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "shop-0", Labels: map[string]string{render.ComponentLabel: c.component}},
			Status:     waitingIn(container, "ErrImagePull", ""),
		}
		if got := podTrouble(pod); !strings.HasSuffix(got, c.says) {
			t.Errorf("%s: podTrouble = %q, want one that says %q", container, got, c.says)
		}
	}
}
