package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// failing are the reasons, given by the kubelet for a container that waits, that do not pass without somebody's help.
var failing = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}

// pods are the fleet's own, as the cache has them; not those of its Redis.
func (r *Reconciler) pods(ctx context.Context, c *v1alpha1.LiveStashCluster) ([]corev1.Pod, error) {
	return r.podsOf(ctx, c, render.FleetComponent)
}

func (r *Reconciler) podsOf(ctx context.Context, c *v1alpha1.LiveStashCluster, component string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingFields{podClusterIndex: c.Name})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.Labels[render.ComponentLabel] != component }), nil
}

// firstTrouble says why one of the pods does not get on; empty when all do.
func firstTrouble(pods []corev1.Pod) string {
	for i := range pods {
		if trouble := podTrouble(&pods[i]); trouble != "" {
			return trouble
		}
	}
	return ""
}

// podTrouble says why a pod does not get on; empty when it does. The scheduler's words are told as they are. The kubelet's are not: they
// may quote the value of a variable, and have counters that would cause a write each. See advice for the few that are.
func podTrouble(pod *corev1.Pod) string {
	if !pod.DeletionTimestamp.IsZero() {
		return ""
	}
	return lastingTrouble(pod)
}

// lastingTrouble is that of a pod which may have been told to stop.
func lastingTrouble(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if unschedulable(condition) {
			return fmt.Sprintf("pod %s cannot be scheduled: %s", pod.Name, condition.Message)
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting := container.State.Waiting
		if waiting == nil || !slices.Contains(failing, waiting.Reason) {
			continue
		}
		return fmt.Sprintf("pod %s, container %s: %s; %s", pod.Name, container.Name, waiting.Reason, advice(pod, container))
	}
	return ""
}

// appStatus is what the kubelet says of the application's container. Nil: nothing yet.
func appStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	return containerStatus(pod.Status.ContainerStatuses, fleet.AppContainer)
}

func containerStatus(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// terminated is how the application, or the command before a rollout, ended. Nil: it has not.
func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if app := appStatus(pod); app != nil {
		return app.State.Terminated
	}
	return nil
}

func unschedulable(condition corev1.PodCondition) bool {
	return condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
}
