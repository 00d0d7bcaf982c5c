package benchmark

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// NewTestsCache makes the cache of what load tests are made of, and has the manager run it. It is not the manager's own, which
// holds the pods of fleets: a cache has one label per kind, and here it is another one.
func NewTestsCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	exists, err := labels.NewRequirement(runner.BenchmarkLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	tests, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme:               mgr.GetScheme(),
		Mapper:               mgr.GetRESTMapper(),
		DefaultNamespaces:    namespaces,
		DefaultLabelSelector: labels.NewSelector().Add(*exists),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, err
	}
	return tests, mgr.Add(tests)
}

// concurrency is how many LiveStashBenchmarks are reconciled at once. There are never many, and a pass takes no longer than an
// agent that does not answer.
const concurrency = 8

// SetupWithManager registers the reconciler with its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("livestashbenchmark").
		For(&v1alpha1.LiveStashBenchmark{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.LiveStashBenchmark{}, handler.EnqueueRequestsFromMapFunc(r.rivals), builder.WithPredicates(turnEnded())).
		Watches(&v1alpha1.LiveStashCluster{}, handler.EnqueueRequestsFromMapFunc(r.thoseWithTarget)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.thoseWithFleet), builder.WithPredicates(onlyDeletes())).
		WatchesRawSource(source.Kind(r.Tests, client.Object(&batchv1.Job{}), handler.EnqueueRequestsFromMapFunc(benchmarkOf))).
		WatchesRawSource(source.Kind(r.Tests, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(benchmarkOf))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, RateLimiter: reconcile.Backoff()}).
		Build(r)
	return err
}

// watchTestRuns begins to watch TestRuns, once: k6-operator may be installed long after this operator has started.
func (r *Reconciler) watchTestRuns() error {
	r.testRunsWatched.Lock()
	defer r.testRunsWatched.Unlock()
	if r.watchesTestRuns {
		return nil
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(runner.TestRunKind)
	err := r.controller.Watch(source.Kind(r.Tests, client.Object(kind), handler.EnqueueRequestsFromMapFunc(benchmarkOf)))
	r.watchesTestRuns = err == nil
	return err
}

// benchmarkOf is the benchmark that an object of a test says it belongs to.
func benchmarkOf(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{
		Namespace: object.GetNamespace(),
		Name:      object.GetLabels()[runner.BenchmarkLabel],
	}}}
}

// rivals are the benchmarks that may wait for this one's target.
func (r *Reconciler) rivals(ctx context.Context, object client.Object) []ctrl.Request {
	one := object.(*v1alpha1.LiveStashBenchmark)
	return r.those(ctx, one.Namespace, func(other *v1alpha1.LiveStashBenchmark) bool {
		return other.UID != one.UID && sameTarget(one, other)
	})
}

// thoseWithTarget are the benchmarks that measure a LiveStashCluster, or wait until it is ready or gone.
func (r *Reconciler) thoseWithTarget(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.those(ctx, cluster.GetNamespace(), func(b *v1alpha1.LiveStashBenchmark) bool {
		reference := b.Spec.Target.ClusterRef
		return reference != nil && reference.Name == cluster.GetName() || hasFleet(b, cluster.GetName())
	})
}

// thoseWithFleet are the benchmarks whose own fleet a pod belongs to.
func (r *Reconciler) thoseWithFleet(ctx context.Context, pod client.Object) []ctrl.Request {
	return r.those(ctx, pod.GetNamespace(), func(b *v1alpha1.LiveStashBenchmark) bool {
		return hasFleet(b, pod.GetLabels()[render.ClusterLabel])
	})
}

func hasFleet(b *v1alpha1.LiveStashBenchmark, name string) bool {
	if b.Spec.Target.Template == nil {
		return false
	}
	for _, row := range b.Status.Runs {
		if row.Name == name {
			return true
		}
	}
	return false
}

// those are the benchmarks of a namespace that are not over and match.
func (r *Reconciler) those(ctx context.Context, namespace string, match func(*v1alpha1.LiveStashBenchmark) bool) []ctrl.Request {
	all := &v1alpha1.LiveStashBenchmarkList{}
	if err := r.List(ctx, all, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing LiveStashBenchmarks")
		return nil
	}
	var requests []ctrl.Request
	for i := range all.Items {
		if b := &all.Items[i]; b.Status.FinishedAt == nil && match(b) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

// turnEnded lets through that a benchmark may have left its target to others.
func turnEnded() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.LiveStashBenchmark), e.ObjectNew.(*v1alpha1.LiveStashBenchmark)
			return before.Status.Phase != after.Status.Phase || underWay(before) != underWay(after)
		},
	}
}

func onlyDeletes() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
	}
}
