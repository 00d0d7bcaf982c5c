package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Numbers of stashes always change. They are written once a minute, and with everything else that changes. What else changes
// without a word in a condition but its message waits a few seconds, so that a fleet whose pods come one by one is not written for
// each.
func TestCountsWait(t *testing.T) {
	status := func(stashes int64, ready bool) *v1alpha1.LiveStashCluster {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.UID, cluster.Status.Stashes = "shop", stashes
		cluster.Status.Pods = []v1alpha1.PodStatus{{Name: "shop-0", Stashes: stashes, Ready: ready}}
		cluster.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: "TooFewReady", Message: "0 of 3 pods ready"}}
		return cluster
	}
	with := func(change func(*v1alpha1.LiveStashClusterStatus)) *v1alpha1.LiveStashCluster {
		cluster := status(5, false)
		change(&cluster.Status)
		return cluster
	}
	steps := []struct {
		what          string
		before, after *v1alpha1.LiveStashCluster
		at, want      time.Duration
	}{
		{"the first time", status(0, true), status(1, true), 0, 0},
		{"a moment later", status(1, true), status(2, true), time.Second, countsEvery - time.Second},
		{"with a pod", status(1, true), status(3, false), 2 * time.Second, detailsEvery - 2*time.Second},
		{"with a pod, later", status(1, true), status(3, false), 6 * time.Second, 0},
		{"after that", status(3, false), status(4, false), 32 * time.Second, countsEvery - 26*time.Second},
		{"no change", status(3, false), status(3, false), 33 * time.Second, 0},
		{"a minute later", status(3, false), status(5, false), 66 * time.Second, 0},
		{"and again", status(5, false), status(6, false), 67 * time.Second, countsEvery - time.Second},
		{"numbers of pods", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = 3, 2, 1 }),
			67 * time.Second, detailsEvery - time.Second},
		{"a stash that is larger", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.LargestStash = &v1alpha1.LargestStash{Bytes: 9} }),
			67 * time.Second, countsEvery - time.Second},
		{"a condition's message", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Conditions[0].Message = "1 of 3 pods ready" }),
			67 * time.Second, detailsEvery - time.Second},
		{"a condition's reason", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Conditions[0].Reason = "EnoughReady" }),
			67 * time.Second, detailsEvery - time.Second},
		{"the pods' revision", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Revision = "shop-2" }), 67 * time.Second, detailsEvery - time.Second},
		{"a condition", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Conditions[0].Status = metav1.ConditionTrue }),
			67 * time.Second, 0},
		{"the spec", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.ObservedGeneration = 2 }), 67 * time.Second, 0},
		{"a rollout", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.Rollouts = []v1alpha1.RolloutStatus{{Lost: 1}} }),
			67 * time.Second, 0},
		{"one whose pod is gone", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) {
			s.LargestStash = &v1alpha1.LargestStash{Bytes: 9, PodGone: &metav1.Time{}}
		}), 67 * time.Second, 0},
		{"a stash near the limit", status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionStashesFit, Reason: v1alpha1.ReasonStashNearLimit})
		}), 67 * time.Second, 0},
	}
	counts := &counts{}
	for _, step := range steps {
		if got := counts.wait(step.before, step.after, said.Add(step.at)); got != step.want {
			t.Errorf("%s: it waits for %s, want %s", step.what, got, step.want)
		}
	}
	born, more := status(5, false), with(func(s *v1alpha1.LiveStashClusterStatus) { s.ReadyReplicas = 1 })
	born.CreationTimestamp = metav1.NewTime(said.Add(60 * time.Second))
	more.CreationTimestamp = born.CreationTimestamp
	if got := counts.wait(born, more, said.Add(68*time.Second)); got != firstDetails-time.Second {
		t.Errorf("the numbers of a new fleet wait for %s, want %s", got, firstDetails-time.Second)
	}
	counts.forget("shop")
	if got := counts.wait(status(5, false), status(6, false), said.Add(68*time.Second)); got != 0 {
		t.Errorf("it waits for %s after it was forgotten", got)
	}
}
