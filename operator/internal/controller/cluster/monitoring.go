package cluster

import (
	"context"
	"fmt"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=podmonitors,verbs=get;list;watch;create;patch;delete

// ensurePodMonitor makes Prometheus find the pods, or no longer. Trouble with it is told when everything else is done: a
// fleet that nobody watches is better than none.
func (r *Reconciler) ensurePodMonitor(ctx context.Context, p *pass) error {
	wanted := fleet.PodMonitor(p.cluster)
	if wanted == nil {
		return r.removePodMonitor(ctx, p)
	}
	there, err := r.ensureOfOthersKind(ctx, p, wanted, &reconcile.Problem{
		Reason: v1alpha1.ReasonPodMonitorMissing,
		Message: fmt.Sprintf("spec.monitoring.podMonitor needs prometheus-operator, and this cluster does not serve %s %s: install prometheus-operator or kube-prometheus-stack, or set enabled to false",
			fleet.PodMonitorKind.GroupVersion(), fleet.PodMonitorKind.Kind),
		Watched: true,
	})
	if err != nil {
		return err
	}
	p.podMonitor = ""
	if there {
		p.podMonitor = wanted.GetName()
	}
	return nil
}

// removePodMonitor deletes the PodMonitor that the status tells of, so that a fleet without one costs no request.
func (r *Reconciler) removePodMonitor(ctx context.Context, p *pass) error {
	if p.podMonitor == "" {
		return nil
	}
	if _, err := r.removeOfOthersKind(ctx, p.cluster, fleet.PodMonitorKind, p.podMonitor); err != nil {
		return err
	}
	p.podMonitor = ""
	return nil
}
