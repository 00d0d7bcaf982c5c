package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// advice says what to do about a container that waits. What others say of it is not repeated, unless it is known to have no value of
// an environment variable in it: container runtimes quote those.
func advice(pod *corev1.Pod, container corev1.ContainerStatus) string {
	switch waiting := container.State.Waiting; waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return fmt.Sprintf("the image %s cannot be had: check %s and spec.imagePullSecrets", container.Image, imageField(pod, container.Name))
	case "CrashLoopBackOff":
		return crashAdvice(pod, container)
	case "CreateContainerConfigError":
		if namesAndUsers.MatchString(waiting.Message) {
			return waiting.Message
		}
		return seePod(pod)
	default:
		return startAdvice(pod, waiting.Message)
	}
}

// crashAdvice says what to do about a container that was started again and again.
func crashAdvice(pod *corev1.Pod, container corev1.ContainerStatus) string {
	ended := container.LastTerminationState.Terminated
	switch {
	case neverStarted(ended):
		return startAdvice(pod, ended.Message)
	case ended != nil && ended.Reason == "OOMKilled" && container.Name == fleet.AppContainer:
		return "it took more memory than it may, and the kernel ended it, which leaves no crash dump: raise spec.resources.limits.memory"
	case ended != nil && container.Name == fleet.AppContainer && slices.Contains(stopCodes, ended.ExitCode):
		return fmt.Sprintf("it ended with exit code %d, which is no crash: a probe that fails has it stopped (spec.probes.liveness, spec.probes.startup), "+
			"or its command is no server; %s", ended.ExitCode, seePod(pod))
	}
	return fmt.Sprintf("see `kubectl logs -n %s %s -c %s --previous`", pod.Namespace, pod.Name, container.Name)
}

// stopCodes are the exit codes of a program that ends when it is asked to, and of one that SIGKILL or SIGTERM ends.
var stopCodes = []int32{0, 128 + 9, 128 + 15}

// namesAndUsers is what the kubelet says of objects and keys that are missing, and of users that may not run. There are no values in that.
var namesAndUsers = regexp.MustCompile(`^((configmap|secret) "[^"]*" not found|couldn't find key \S+ in (ConfigMap|Secret) \S+|container has runAsNonRoot and .*|container's runAsUser breaks non-root policy.*)$`)

// neverStarted is whether the container runtime could not even start a container that ended.
func neverStarted(ended *corev1.ContainerStateTerminated) bool {
	return ended != nil && slices.Contains([]string{"StartError", "ContainerCannotRun"}, ended.Reason)
}

// startAdvice says why a runtime could not start a container, if its words are known.
func startAdvice(pod *corev1.Pod, said string) string {
	switch {
	case strings.Contains(said, "exec format error"):
		return "its image is made for another kind of processor: check spec.image"
	case strings.Contains(said, "exec") && strings.Contains(said, "permission denied"):
		return "the user that it runs as may not execute its command: mend the image, or set runAsUser in spec.podTemplate.spec"
	case strings.Contains(said, "executable file not found"), strings.Contains(said, "exec") && strings.Contains(said, "no such file or directory"):
		return "its command is not in the image: check spec.image, and the command in spec.podTemplate.spec"
	}
	return seePod(pod)
}

func seePod(pod *corev1.Pod) string {
	return fmt.Sprintf("see `kubectl describe pod -n %s %s`", pod.Namespace, pod.Name)
}

// imageField is where the image of a container is set.
func imageField(pod *corev1.Pod, container string) string {
	switch {
	case pod.Labels[render.ComponentLabel] == render.RedisComponent && container == redis.ServerContainer:
		return "spec.redis.managed.image, without it the operator's flag --redis-image,"
	case pod.Labels[render.ComponentLabel] == render.RedisComponent && container == redis.ExporterContainer:
		return "spec.redis.managed.exporter.image, without it the operator's flag --redis-exporter-image,"
	case pod.Labels[render.ComponentLabel] == render.RedisComponent:
		return "spec.redis.operator"
	case container == fleet.AppContainer:
		return "spec.image"
	case slices.Contains(fleet.AgentContainers, container):
		return "the operator's flag --agent-image"
	}
	return "spec.podTemplate.spec"
}
