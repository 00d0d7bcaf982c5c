package benchmark

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// takeTurn waits while another benchmark is on the same target: two at once would measure each other. Who runs goes on; of
// those who wait, the oldest is next.
func (r *Reconciler) takeTurn(ctx context.Context, p *pass) error {
	b := p.benchmark
	if b.Status.Phase == v1alpha1.BenchmarkRunning {
		return nil
	}
	r.turns.Lock()
	defer r.turns.Unlock()
	all := &v1alpha1.LiveStashBenchmarkList{}
	if err := r.List(ctx, all, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing LiveStashBenchmarks: %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.UID != b.UID && sameTarget(b, other) && before(other, b) {
			b.Status.Phase = v1alpha1.BenchmarkWaiting
			return p.wait("waiting for LiveStashBenchmark %s, which is on the same target", other.Name)
		}
	}
	// Told at once, so that the next one who looks sees it.
	unturned := b.DeepCopy()
	b.Status.Phase = v1alpha1.BenchmarkRunning
	return r.writeStatus(ctx, unturned, b)
}

// sameTarget is whether two benchmarks of one namespace load the same servers. Fresh fleets are each benchmark's own. Of a URL the
// benchmarks of other namespaces do not count: anybody could name it, hold the others up, and be told their names.
func sameTarget(a, b *v1alpha1.LiveStashBenchmark) bool {
	switch {
	case a.Namespace != b.Namespace:
		return false
	case a.Spec.Target.URL != "":
		return strings.TrimSuffix(a.Spec.Target.URL, "/") == strings.TrimSuffix(b.Spec.Target.URL, "/")
	case a.Spec.Target.ClusterRef != nil && b.Spec.Target.ClusterRef != nil:
		return a.Spec.Target.ClusterRef.Name == b.Spec.Target.ClusterRef.Name
	}
	return false
}

// before is whether other has the target, or is to have it, before b.
func before(other, b *v1alpha1.LiveStashBenchmark) bool {
	if other.Status.Phase == v1alpha1.BenchmarkFinished || !other.DeletionTimestamp.IsZero() {
		return false
	}
	if other.Status.Phase == v1alpha1.BenchmarkRunning || underWay(other) {
		return true
	}
	if other.Spec.Suspend {
		return false
	}
	age := other.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	return age < 0 || age == 0 && client.ObjectKeyFromObject(other).String() < client.ObjectKeyFromObject(b).String()
}

// underWay is whether a run's objects are still there, which is so for a while after spec.suspend.
func underWay(b *v1alpha1.LiveStashBenchmark) bool {
	return slices.ContainsFunc(b.Status.Runs, func(row v1alpha1.BenchmarkRunStatus) bool {
		return row.Phase != v1alpha1.RunPending && row.Phase != v1alpha1.RunFinished && row.Phase != ""
	})
}
