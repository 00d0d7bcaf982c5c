package cluster

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/observe"
)

// A pod that is not ready for long has a cause, and most of them are in the spec.
func TestWhyUnready(t *testing.T) {
	running := []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	cases := map[string]struct {
		spec   v1alpha1.LiveStashClusterSpec
		waited time.Duration
		change func(*member)
		want   string
	}{
		"for a moment": {waited: tellAfter - 1, want: "is not ready"},
		"not made yet": {waited: tellAfter, change: func(m *member) { m.Status.ContainerStatuses = nil },
			want: "is not ready: its container has not started (see `kubectl describe pod -n web shop-0`)"},
		"no scheduler": {waited: tellAfter, change: func(m *member) { m.Status.ContainerStatuses, m.Spec.SchedulerName = nil, "nobody" },
			want: "is not ready: no scheduler named nobody has looked at it: run one, or correct schedulerName in spec.podTemplate.spec"},
		"on a node": {waited: tellAfter, change: func(m *member) { m.Spec.NodeName, m.Spec.SchedulerName = "node-1", "nobody" }, want: "is not ready"},
		"no release": {waited: tellAfter, change: func(m *member) { m.answer = observe.Answer{Err: errors.New("nobody listens")} },
			want: "is not ready: nobody listens"},
		"not asked yet": {waited: tellAfter, change: func(m *member) { m.answer = observe.Answer{} }, want: "is not ready"},
		"it boots": {waited: tellAfter, change: func(m *member) { m.answer.Status = agentclient.Status{Reason: "It boots."} },
			want: "is not ready: its agent says: It boots."},
		"a path that answers 404": {
			spec: v1alpha1.LiveStashClusterSpec{HTTP: v1alpha1.HTTPSpec{Port: 4000, ReadinessPath: "/healthz"}}, waited: tellAfter,
			want: "is not ready: the application does not answer GET /healthz on port 4000 with 2xx or 3xx (spec.http.readinessPath)"},
		"a path, without an agent": {
			spec: v1alpha1.LiveStashClusterSpec{HTTP: v1alpha1.HTTPSpec{Port: 4000, ReadinessPath: "/healthz"}}, waited: tellAfter,
			change: func(m *member) { m.agentPort, m.answer = 0, observe.Answer{} },
			want:   "is not ready: the application does not answer GET /healthz on port 4000 with 2xx or 3xx (spec.http.readinessPath)"},
		"a port, without an agent": {
			spec: v1alpha1.LiveStashClusterSpec{HTTP: v1alpha1.HTTPSpec{Port: 4000}}, waited: tellAfter,
			change: func(m *member) { m.agentPort, m.answer = 0, observe.Answer{} },
			want:   "is not ready: the application does not listen on port 4000 (spec.http.port)"},
		"a startup probe of the user's own": {
			spec: v1alpha1.LiveStashClusterSpec{Probes: &v1alpha1.ProbesSpec{Startup: &corev1.Probe{}}}, waited: tellAfter,
			change: func(m *member) {
				m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Started: ptr.To(false)}}
			},
			want: "is not ready: the probe of spec.probes.startup fails"},
		"a startup probe that succeeded": {
			spec: v1alpha1.LiveStashClusterSpec{Probes: &v1alpha1.ProbesSpec{Startup: &corev1.Probe{}}}, waited: tellAfter,
			change: func(m *member) {
				m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Started: ptr.To(true)}}
			},
			want: "is not ready"},
		"a probe of the user's own": {
			spec: v1alpha1.LiveStashClusterSpec{Probes: &v1alpha1.ProbesSpec{Readiness: &corev1.Probe{}}}, waited: tellAfter,
			want: "is not ready: the probe of spec.probes.readiness fails"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{Spec: c.spec}
			cluster.Spec.Adapter = v1alpha1.AdapterETS
			seen := fleetOf(2, func(m []member) {
				m[0].Namespace = "web"
				m[0].Status.Conditions, m[0].Status.ContainerStatuses = nil, running
				if c.change != nil {
					c.change(&m[0])
				}
			})
			seen.waited = map[string]time.Duration{"shop-0": c.waited}
			if got := seen.unable(cluster, &seen.members[0]); got != c.want {
				t.Errorf("shop-0 %q, want %q", got, c.want)
			}
			m := seen.members[0]
			m.Pod = slimPod(m.Pod)
			if got := seen.unable(cluster, &m); got != c.want {
				t.Errorf("of what the cache holds, shop-0 %q, want %q", got, c.want)
			}
		})
	}
}
