package benchmark

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// cleanUp removes what a run has made once it is judged, and lets the machines cool down before the next one.
func (r *Reconciler) cleanUp(ctx context.Context, p *pass) error {
	if p.row == nil || p.row.Phase != v1alpha1.RunCooling {
		return nil
	}
	gone, err := r.remove(ctx, p)
	if err != nil {
		return err
	}
	if !gone {
		return p.wait("%s is over: what it made is being removed", p.row.Name)
	}
	last := p.row == &p.benchmark.Status.Runs[len(p.benchmark.Status.Runs)-1]
	if cooldown := loadtest.Cooldown(&p.benchmark.Spec); p.row.LoadStartedAt != nil && !last {
		if left := cooldown - r.since(&r.cooling, p.row.Runner); left > 0 {
			p.DueIn(left)
			return p.wait("%s is over: cooling down for %s", p.row.Name, cooldown)
		}
	}
	r.cooling.Delete(p.row.Runner)
	p.row.Phase = v1alpha1.RunFinished
	p.DueIn(0)
	return p.wait("%s is over", p.row.Name)
}

// remove stops the test of the run and removes its fleet, if that is the benchmark's own. It returns whether everything is
// gone, the pods included: those that still stop would take from what the next run measures.
func (r *Reconciler) remove(ctx context.Context, p *pass) (gone bool, err error) {
	// Asked of the API server, not of the cache, which may not know yet what was made a moment ago.
	meta := metav1.ObjectMeta{Namespace: p.benchmark.Namespace, Name: p.row.Runner}
	objects := []client.Object{&batchv1.Job{ObjectMeta: meta}, testRun(meta)}
	if r.Namespace != "" {
		objects = append(objects, &networkingv1.NetworkPolicy{ObjectMeta: meta})
	}
	if p.benchmark.Spec.Target.Template != nil {
		ours, err := r.ownFleet(ctx, p)
		if err != nil {
			return false, err
		}
		if ours != nil {
			objects = append(objects, ours)
		}
	}
	servers, err := r.ownServers(ctx, p)
	if err != nil {
		return false, err
	}
	objects = append(objects, servers...)
	left := 0
	for _, object := range objects {
		found, err := r.delete(ctx, object)
		if err != nil {
			return false, err
		}
		if found {
			left++
		}
	}
	pods, err := r.podsLeft(ctx, p)
	if (p.run.Server != nil || p.benchmark.Spec.Proxy != nil) && left+pods > 0 {
		p.DueIn(time.Second) // nobody tells when what a server is made of is gone
	}
	return left+pods == 0, err
}

// delete deletes an object, and returns whether it was there.
func (r *Reconciler) delete(ctx context.Context, object client.Object) (found bool, err error) {
	err = r.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	return true, nil
}

func testRun(meta metav1.ObjectMeta) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(runner.TestRunKind)
	object.SetNamespace(meta.Namespace)
	object.SetName(meta.Name)
	return object
}

// ownFleet is the fleet of the run, unless it is somebody else's.
func (r *Reconciler) ownFleet(ctx context.Context, p *pass) (*v1alpha1.LiveStashCluster, error) {
	cluster := &v1alpha1.LiveStashCluster{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.benchmark.Namespace, Name: p.row.Name}, cluster)
	if err != nil || !metav1.IsControlledBy(cluster, p.benchmark) {
		return nil, client.IgnoreNotFound(err)
	}
	return cluster, nil
}

// podsLeft is how many pods of the run are still there.
func (r *Reconciler) podsLeft(ctx context.Context, p *pass) (int, error) {
	pods, namespace := &corev1.PodList{}, client.InNamespace(p.benchmark.Namespace)
	if err := r.Tests.List(ctx, pods, namespace, client.MatchingLabels{runner.TestLabel: p.row.Runner}); err != nil {
		return 0, fmt.Errorf("listing runners: %w", err)
	}
	left := len(pods.Items)
	for _, server := range []string{p.row.Name, rival.ProxyName(p.row.Name)} {
		if err := r.Tests.List(ctx, pods, namespace, client.MatchingLabels{rival.ServerLabel: server}); err != nil {
			return 0, fmt.Errorf("listing the pods of server %s: %w", server, err)
		}
		left += len(pods.Items)
	}
	if p.benchmark.Spec.Target.Template != nil {
		if err := r.List(ctx, pods, namespace, client.MatchingLabels{render.ClusterLabel: p.row.Name}); err != nil {
			return 0, fmt.Errorf("listing the fleet's pods: %w", err)
		}
		left += len(pods.Items)
	}
	return left, nil
}

// since is how long ago it was first asked about what.
func (r *Reconciler) since(asked *sync.Map, what any) time.Duration {
	first, _ := asked.LoadOrStore(what, r.Clock.Now())
	return r.Clock.Since(first.(time.Time))
}
