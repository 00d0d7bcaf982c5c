package cluster

import (
	"context"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// checkPaused ends the pass before anything is written for a paused LiveStashCluster.
func (r *Reconciler) checkPaused(_ context.Context, p *pass) error {
	if !p.cluster.Spec.Paused {
		return nil
	}
	return &reconcile.Problem{
		Reason:  v1alpha1.ReasonPaused,
		Message: "spec.paused is true: nothing is changed until it is removed or set to false",
		Watched: true,
	}
}
