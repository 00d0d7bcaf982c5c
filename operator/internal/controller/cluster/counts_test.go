package cluster

import (
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Numbers of stashes always change. They are written once a minute, and with everything else that changes.
func TestCountsWait(t *testing.T) {
	status := func(stashes int64, ready bool) *v1alpha1.LiveStashCluster {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.UID, cluster.Status.Stashes = "shop", stashes
		cluster.Status.Pods = []v1alpha1.PodStatus{{Name: "shop-0", Stashes: stashes, Ready: ready}}
		return cluster
	}
	steps := []struct {
		what          string
		before, after *v1alpha1.LiveStashCluster
		at, want      time.Duration
	}{
		{"the first time", status(0, true), status(1, true), 0, 0},
		{"a moment later", status(1, true), status(2, true), time.Second, countsEvery - time.Second},
		{"with something else", status(1, true), status(3, false), 2 * time.Second, 0},
		{"after that", status(3, false), status(4, false), 32 * time.Second, countsEvery - 30*time.Second},
		{"no change", status(3, false), status(3, false), 33 * time.Second, 0},
		{"a minute later", status(3, false), status(5, false), 62 * time.Second, 0},
		{"and again", status(5, false), status(6, false), 63 * time.Second, countsEvery - time.Second},
	}
	counts := &counts{}
	for _, step := range steps {
		if got := counts.wait(step.before, step.after, said.Add(step.at)); got != step.want {
			t.Errorf("%s: it waits for %s, want %s", step.what, got, step.want)
		}
	}
	counts.forget("shop")
	if got := counts.wait(status(5, false), status(6, false), said.Add(64*time.Second)); got != 0 {
		t.Errorf("it waits for %s after it was forgotten", got)
	}
}
