package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// restarts are the pods of the fleet, of its own Redis, and of the proxy in front of it, that are not what they were when k6 began, each in words. What they say of
// themselves is enough for that, so an operator that was away meanwhile has missed nothing. Read from the API server: the cache leaves
// out when containers ended.
func (r *Reconciler) restarts(ctx context.Context, p *pass) ([]string, error) {
	noticed := cmp.Or(p.row.LoadStartedAt, p.row.StartedAt)
	if p.cluster == nil && p.server == nil || noticed == nil {
		return nil, nil
	}
	var places []client.MatchingLabels
	wanted := 0
	expect := func(label, name string, pods int32) {
		places, wanted = append(places, client.MatchingLabels{label: name}), wanted+int(pods)
	}
	if p.server != nil {
		expect(rival.ServerLabel, p.server.Name, p.run.Server.Replicas)
	} else {
		expect(render.ClusterLabel, p.cluster.Name, p.cluster.DesiredReplicas())
	}
	if p.benchmark.Spec.Proxy != nil {
		expect(rival.ServerLabel, rival.ProxyName(p.row.Name), 1)
	}
	var all []corev1.Pod
	for _, labels := range places {
		pods := &corev1.PodList{}
		if err := r.Live.List(ctx, pods, client.InNamespace(p.benchmark.Namespace), labels); err != nil {
			return nil, fmt.Errorf("listing the target's pods: %w", err)
		}
		all = append(all, pods.Items...)
	}
	return restartedSince(all, wanted, loadBegan(noticed.Time, loadtest.Began(ends(p.seen)), p.seen.MadeAt), p.row.Events), nil
}

// loadBegan is when the load began. An operator that was away notices that late, and then the runners know better. What they say is by clocks of
// their own, or of a script of the user's own, so it is not before their test was made: the target was ready by then.
func loadBegan(noticed, told, made time.Time) time.Time {
	if !told.IsZero() && told.Before(noticed) {
		noticed = told
	}
	if noticed.Before(made) {
		return made
	}
	return noticed
}

// restartedSince are those of a fleet's pods that were made, or had a container end, at that time or later, in the order of their names,
// and how many are missing at all. Pods that were made during an event are what the event was about.
func restartedSince(pods []corev1.Pod, replicas int, since time.Time, events []v1alpha1.BenchmarkEventStatus) []string {
	var all []string
	for i := range pods {
		pod := &pods[i]
		switch pod.Labels[render.ComponentLabel] {
		case render.FleetComponent:
			replicas--
		case render.RedisComponent:
		default:
			if pod.Labels[rival.ServerLabel] == "" {
				continue
			}
			replicas--
		}
		planned := madeDuring(events, pod.CreationTimestamp.Time)
		if !planned && !pod.CreationTimestamp.Time.Before(since) {
			all = append(all, pod.Name+": another pod took its place")
			continue
		}
		if why := endedSince(pod, since); why != "" {
			all = append(all, pod.Name+": "+why)
		}
	}
	slices.Sort(all)
	if replicas > 0 {
		all = append(all, fmt.Sprintf("%d missing", replicas))
	}
	return all
}

// endedSince says which container of the pod ended since then, and how. Empty: none did.
func endedSince(pod *corev1.Pod, since time.Time) string {
	for _, container := range pod.Status.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{container.State.Terminated, container.LastTerminationState.Terminated} {
			if ended != nil && !ended.FinishedAt.Time.Before(since) {
				return fmt.Sprintf("container %s ended with exit code %d, %s", container.Name, ended.ExitCode, cmp.Or(ended.Reason, "reason unknown"))
			}
		}
	}
	return ""
}
