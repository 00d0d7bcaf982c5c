package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(fleet.PodMonitorKind)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: p.podMonitor}, live)
	if err == nil && metav1.IsControlledBy(live, p.cluster) {
		err = r.Delete(ctx, live)
	}
	if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("removing PodMonitor %s: %w", p.podMonitor, err)
	}
	p.podMonitor = ""
	return nil
}
