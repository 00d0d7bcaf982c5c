package benchmark

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
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

// The runners tell when the load began, if the operator came late, but nobody can tell that it began before their test was made.
func TestLoadBegan(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 7, 1, 12, minute, 0, 0, time.UTC) }
	for name, c := range map[string]struct{ noticed, told, made, want time.Time }{
		"noticed at once":                     {at(2), at(3), at(1), at(2)},
		"noticed late":                        {at(5), at(2), at(1), at(2)},
		"no runner tells":                     {at(2), time.Time{}, at(1), at(2)},
		"a runner's clock is wrong":           {at(5), at(0), at(1), at(1)},
		"nobody noticed before it ended":      {at(0), time.Time{}, at(1), at(1)},
		"of a test of which nothing is known": {at(2), at(1), time.Time{}, at(1)},
	} {
		if got := loadBegan(c.noticed, c.told, c.made); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A pod that restarted while the load was there and the operator was not has restarted during the run.
func TestRestartThatTheOperatorMissed(t *testing.T) {
	space := suite.Namespace(t, api)
	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop"}}
	shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL, shop.Spec.Replicas = fleetImage, v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}, ptr.To[int32](1)
	suite.Must(t, api.Create(t.Context(), shop))
	fleetPod(t, newSet(t, shop, 0), "shop-0", "10.0.0.1")
	time.Sleep(time.Second) // a pod is ready a while after it was made
	serves(t, shop)
	b := newBenchmark(t, space, "missed", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}
	})
	run := testRunOf(t, b)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop-0"}}
	refresh(t, pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.Now()},
	}}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	operatorTime.Ahead.Add(int64(time.Minute))
	stage(t, run, "started")
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	for i := range 2 {
		endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80, 0))
	}
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictFailed || !strings.Contains(row.Message, "shop-0: container app ended with exit code 137, OOMKilled") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
}
