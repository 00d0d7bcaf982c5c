package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	left, err := r.remove(ctx, p)
	if err != nil {
		return err
	}
	if left != "" {
		return p.wait("%s is over: what it made is being removed%s", p.row.Name, left)
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

// remove stops the test of the run and removes its fleet, if that is the benchmark's own. It says what is left, to be added to a sentence; empty when
// everything is gone, the pods included: those that still stop would take from what the next run measures.
func (r *Reconciler) remove(ctx context.Context, p *pass) (left string, err error) {
	objects, hasFleet, err := r.madeFor(ctx, p)
	if err != nil {
		return "", err
	}
	for _, object := range objects {
		found, err := r.delete(ctx, object)
		if err != nil {
			return "", err
		}
		if found {
			left = cmp.Or(left, ": "+object.GetName())
		}
	}
	pods, err := r.podsLeft(ctx, p, hasFleet)
	if len(pods) > 0 {
		left = stopping(pods)
	}
	switch servers := p.run.Server != nil || p.benchmark.Spec.Proxy != nil; {
	case left == "":
	case servers: // nobody tells when a part of a server is gone
		p.DueIn(time.Second)
	case len(pods) == 0: // nor when a NetworkPolicy is
		p.DueIn(lookAgain)
	}
	return left, err
}

// madeFor are the objects of the run that are to be deleted, and whether the pods of a fleet of its name are its own.
func (r *Reconciler) madeFor(ctx context.Context, p *pass) (objects []client.Object, hasFleet bool, err error) {
	// Asked of the API server, not of the cache, which may not know yet what was made a moment ago.
	meta := metav1.ObjectMeta{Namespace: p.benchmark.Namespace, Name: p.row.Runner}
	objects = []client.Object{&batchv1.Job{ObjectMeta: meta}, testRun(meta)}
	if r.Namespace != "" {
		objects = append(objects, &networkingv1.NetworkPolicy{ObjectMeta: meta})
	}
	if p.benchmark.Spec.Target.Template != nil {
		fleet := &v1alpha1.LiveStashCluster{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.benchmark.Namespace, Name: p.row.Name}, fleet)
		if client.IgnoreNotFound(err) != nil {
			return nil, false, fmt.Errorf("looking up LiveStashCluster %s: %w", p.row.Name, err)
		}
		// The pods of a fleet that is gone may still stop; those of somebody else's stay.
		hasFleet = err != nil || metav1.IsControlledBy(fleet, p.benchmark)
		if err == nil && hasFleet {
			objects = append(objects, fleet)
		}
	}
	servers, err := r.ownServers(ctx, p)
	return append(objects, servers...), hasFleet, err
}

// stopping says which pod is waited for, and where it is: on a node that is gone it would be for ever.
func stopping(pods []corev1.Pod) string {
	first := slices.MinFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	text := fmt.Sprintf(": pod %s", first.Name)
	if node := first.Spec.NodeName; node != "" {
		text += " on node " + node
	}
	if more := len(pods) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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

// podsLeft are the pods of the run that are still there, those of its fleet where it is the benchmark's own.
func (r *Reconciler) podsLeft(ctx context.Context, p *pass, hasFleet bool) ([]corev1.Pod, error) {
	pods, namespace := &corev1.PodList{}, client.InNamespace(p.benchmark.Namespace)
	if err := r.Tests.List(ctx, pods, namespace, client.MatchingLabels{runner.TestLabel: p.row.Runner}); err != nil {
		return nil, fmt.Errorf("listing runners: %w", err)
	}
	left := pods.Items
	for _, server := range []string{p.row.Name, rival.ProxyName(p.row.Name)} {
		pods = &corev1.PodList{}
		if err := r.Tests.List(ctx, pods, namespace, client.MatchingLabels{rival.ServerLabel: server}); err != nil {
			return nil, fmt.Errorf("listing the pods of server %s: %w", server, err)
		}
		left = append(left, pods.Items...)
	}
	if hasFleet {
		pods = &corev1.PodList{}
		// The cache leaves out where a fleet's pods are.
		if err := r.Live.List(ctx, pods, namespace, client.MatchingLabels{render.ClusterLabel: p.row.Name}); err != nil {
			return nil, fmt.Errorf("listing the fleet's pods: %w", err)
		}
		left = append(left, pods.Items...)
	}
	return left, nil
}

// since is how long ago it was first asked about what.
func (r *Reconciler) since(asked *sync.Map, what any) time.Duration {
	first, _ := asked.LoadOrStore(what, r.Clock.Now())
	return r.Clock.Since(first.(time.Time))
}
