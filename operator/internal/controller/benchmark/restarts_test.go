package benchmark

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// A pod that crashed during the run has lost what its node kept, whatever the runners saw of it.
func TestRestartedSince(t *testing.T) {
	load := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name, component string, made time.Duration, statuses ...corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(load.Add(made)), Labels: map[string]string{render.ComponentLabel: component}},
			Status:     corev1.PodStatus{ContainerStatuses: statuses},
		}
	}
	ended := func(at time.Duration, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason, FinishedAt: metav1.NewTime(load.Add(at))}}
	}
	again := func(at time.Duration, reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "app", RestartCount: 1, LastTerminationState: ended(at, reason)}
	}
	const fleet = render.FleetComponent
	during := func(from, to time.Duration) []v1alpha1.BenchmarkEventStatus {
		return []v1alpha1.BenchmarkEventStatus{{StartedAt: ptr.To(metav1.NewTime(load.Add(from))), FinishedAt: ptr.To(metav1.NewTime(load.Add(to)))}}
	}
	cases := map[string]struct {
		pods     []corev1.Pod
		replicas int
		want     []string
		events   []v1alpha1.BenchmarkEventStatus
	}{
		"nothing happened":     {[]corev1.Pod{pod("shop-0", fleet, -time.Minute, corev1.ContainerStatus{Name: "app"})}, 1, nil, nil},
		"it restarted at boot": {[]corev1.Pod{pod("shop-0", fleet, -time.Minute, again(-time.Second, "Error"))}, 1, nil, nil},
		"it crashed and is back": {[]corev1.Pod{pod("shop-0", fleet, -time.Minute), pod("shop-1", fleet, -time.Minute, again(time.Second, "OOMKilled"))}, 2,
			[]string{"shop-1: container app ended with exit code 137, OOMKilled"}, nil},
		"it crashed and is not back": {[]corev1.Pod{pod("shop-0", fleet, -time.Minute, corev1.ContainerStatus{Name: "app", State: ended(time.Second, "")})}, 1,
			[]string{"shop-0: container app ended with exit code 137, reason unknown"}, nil},
		"it was replaced": {[]corev1.Pod{pod("shop-0", fleet, time.Second)}, 1, []string{"shop-0: another pod took its place"}, nil},
		"it is gone":      {[]corev1.Pod{pod("shop-0", fleet, -time.Minute)}, 3, []string{"2 missing"}, nil},
		"the fleet's own Redis restarted": {[]corev1.Pod{pod("shop-0", fleet, -time.Minute), pod("shop-redis-0", render.RedisComponent, -time.Minute, again(0, "Error"))}, 1,
			[]string{"shop-redis-0: container app ended with exit code 137, Error"}, nil},
		"a migration ran":      {[]corev1.Pod{pod("shop-0", fleet, -time.Minute), pod("shop-before-x", render.BeforeComponent, time.Second)}, 1, nil, nil},
		"an event replaced it": {[]corev1.Pod{pod("shop-0", fleet, time.Minute)}, 1, nil, during(time.Minute, 2*time.Minute)},
		"it was replaced after the event": {[]corev1.Pod{pod("shop-0", fleet, 3*time.Minute)}, 1,
			[]string{"shop-0: another pod took its place"}, during(time.Minute, 2*time.Minute)},
		"it crashed during the event, which ends no container of a pod that stays": {[]corev1.Pod{pod("shop-0", fleet, -time.Minute, again(90*time.Second, "Error"))}, 1,
			[]string{"shop-0: container app ended with exit code 137, Error"}, during(time.Minute, 2*time.Minute)},
		"what an event brought crashed": {[]corev1.Pod{pod("shop-0", fleet, time.Minute, again(3*time.Minute, "Error"))}, 1,
			[]string{"shop-0: container app ended with exit code 137, Error"}, during(time.Minute, 2*time.Minute)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, restartedSince(c.pods, c.replicas, load, c.events)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
