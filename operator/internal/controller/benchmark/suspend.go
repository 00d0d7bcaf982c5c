package benchmark

import (
	"context"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// checkSuspended stops the run that is under way, and holds the next one back. A run that was judged already is cleaned up
// all the same.
func (r *Reconciler) checkSuspended(ctx context.Context, p *pass) error {
	status := &p.benchmark.Status
	if !p.benchmark.Spec.Suspend {
		if status.Phase == v1alpha1.BenchmarkSuspended {
			status.Phase = v1alpha1.BenchmarkPending
		}
		return nil
	}
	if p.row == nil {
		return nil
	}
	status.Phase = v1alpha1.BenchmarkSuspended
	if p.row.Phase != v1alpha1.RunPending {
		left, err := r.remove(ctx, p)
		if err != nil {
			return err
		}
		if left != "" {
			return p.wait("spec.suspend is true: run %s is being stopped%s", p.row.Name, left)
		}
		if p.row.Phase == v1alpha1.RunCooling {
			p.row.Phase = v1alpha1.RunFinished
		} else {
			p.row.Phase, p.row.StartedAt, p.row.LoadStartedAt = v1alpha1.RunPending, nil, nil
		}
	}
	return p.wait("spec.suspend is true: set it to false to go on")
}
