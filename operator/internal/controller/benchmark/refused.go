package benchmark

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

const (
	// refusedAfter is after how long it is looked up why a pod is not made, and lookAgain how often.
	refusedAfter = 10 * time.Second
	lookAgain    = 10 * time.Second
)

// explainRefusals finds out why a runner's pod is not made: the run would wait for it until its deadline, and say nothing.
func (r *Reconciler) explainRefusals(ctx context.Context, p *pass) error {
	lacksPod := slices.ContainsFunc(p.seen.Runners, func(one runner.Process) bool { return one.State == runner.Absent })
	if p.row.Phase == v1alpha1.RunRunning || !lacksPod {
		return nil
	}
	if left := refusedAfter - r.Clock.Since(p.seen.MadeAt); left > 0 {
		p.DueIn(left)
		return nil
	}
	jobs := &batchv1.JobList{}
	if err := r.Tests.List(ctx, jobs, client.InNamespace(p.benchmark.Namespace), client.MatchingLabels{runner.TestLabel: p.row.Runner}); err != nil {
		return fmt.Errorf("listing the Jobs of test %s: %w", p.row.Runner, err)
	}
	var owners []types.UID
	for i := range jobs.Items {
		owners = append(owners, jobs.Items[i].UID)
	}
	p.DueIn(lookAgain)
	said, err := reconcile.RefusedPod(ctx, r.Live, p.benchmark.Namespace, "Job", time.Time{}, owners...)
	if said != "" {
		p.seen.Waiting = "a runner's pod is not made: " + said
	}
	return err
}
