package cluster

import (
	"context"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/livestash-dev/livestash/operator/internal/alike"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

const (
	// podClusterIndex finds the pods of a LiveStashCluster.
	podClusterIndex = "cluster"
	// podNodeIndex finds the pods of a node, emptiedIndex the nodes that are to be emptied.
	podNodeIndex, emptiedIndex = "node", "emptied"
)

// CacheOptions restricts the cache to the objects of fleets and leaves out what the operator does not read. Of Secrets only the
// metadata is cached: see secretMetadata. Those that users name are not in it: see package named.
func CacheOptions() cache.Options {
	exists, err := labels.NewRequirement(render.ClusterLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label's name is a constant
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*exists)}
	return cache.Options{
		DefaultTransform: alike.Transform(cache.TransformStripManagedFields(), nil),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.StatefulSet{}:           ours,
			&batchv1.Job{}:                  ours,
			&corev1.PersistentVolumeClaim{}: ours,
			&corev1.Pod{}:                   {Label: ours.Label, Transform: alike.Transform(slimPods, firstOwner)},
			&corev1.Node{}:                  {Transform: slimNode},
			&corev1.Secret{}:                {Label: ours.Label, Transform: alike.Transform(slimMetadata, nil)},
			&corev1.ConfigMap{}:             ours,
			&corev1.Service{}:               ours,
			&corev1.ServiceAccount{}:        ours,
			&networkingv1.NetworkPolicy{}:   ours,
			&policyv1.PodDisruptionBudget{}: ours,
		},
	}
}

// slimMetadata drops the annotations of others from metadata: the one that `kubectl apply` makes holds a Secret's values.
func slimMetadata(object any) (any, error) {
	metadata, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	metadata.ManagedFields = nil
	maps.DeleteFunc(metadata.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, "livestash.dev/") })
	return metadata, nil
}

// firstOwner is whose pod this is: the pods of one StatefulSet have more in common than any two.
func firstOwner(pod client.Object) string {
	if owners := pod.GetOwnerReferences(); len(owners) > 0 {
		return string(owners[0].UID)
	}
	return ""
}

func slimPods(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return slimPod(pod), nil
	}
	return object, nil
}

// slimPod drops from a pod what the operator does not read: pods are most of what the cache holds.
func slimPod(pod *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		CreationTimestamp:          pod.CreationTimestamp,
		OwnerReferences:            pod.OwnerReferences,
		Name:                       pod.Name,
		Namespace:                  pod.Namespace,
		UID:                        pod.UID,
		ResourceVersion:            pod.ResourceVersion,
		DeletionTimestamp:          pod.DeletionTimestamp,
		DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		Labels:                     only(pod.Labels, appsv1.StatefulSetRevisionLabel, render.ClusterLabel, render.ComponentLabel, redis.RoleLabel),
		Annotations:                only(pod.Annotations, fleet.StoreAnnotation),
	}}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady || unschedulable(condition) {
			slim.Status.Conditions = append(slim.Status.Conditions, condition)
		}
	}
	for _, container := range pod.Spec.Containers {
		if container.Name == fleet.AppContainer {
			slim.Spec.Containers = []corev1.Container{{Name: container.Name, Ports: container.Ports, Env: fleet.CookieVariable(container.Env)}}
		}
	}
	slim.Spec.NodeName = pod.Spec.NodeName
	slim.Spec.SchedulerName = unseenBy(pod)
	slim.Status.PodIP, slim.Status.Reason = pod.Status.PodIP, pod.Status.Reason
	slim.Status.InitContainerStatuses = slimContainers(pod.Status.InitContainerStatuses, podReady(pod))
	slim.Status.ContainerStatuses = slimContainers(pod.Status.ContainerStatuses, podReady(pod))
	return slim
}

// only are the entries of these names. Nil when there are none.
func only(all map[string]string, names ...string) map[string]string {
	var some map[string]string
	for _, name := range names {
		if value, found := all[name]; found {
			if some == nil {
				some = map[string]string{}
			}
			some[name] = value
		}
	}
	return some
}

// slimContainers are the states of what waits, of what waits for the store, and of the application, unless it runs in a pod that serves:
// nobody asks then.
func slimContainers(statuses []corev1.ContainerStatus, serves bool) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for _, status := range statuses {
		isApp := status.Name == fleet.AppContainer
		kept := corev1.ContainerStatus{Name: status.Name}
		if waiting := status.State.Waiting; waiting != nil {
			kept.Image, kept.State.Waiting = status.Image, waiting
			kept.LastTerminationState.Terminated = slimEnd(status.LastTerminationState.Terminated)
		}
		if isApp {
			kept.State.Terminated = status.State.Terminated
			kept.RestartCount = status.RestartCount
		}
		if !serves && (isApp || status.Name == fleet.InitContainer) {
			kept.Started, kept.State.Running = status.Started, status.State.Running
		}
		if kept.State != (corev1.ContainerState{}) || kept.RestartCount > 0 || isApp && !serves {
			slim = append(slim, kept)
		}
	}
	return slim
}

// slimEnd is how a container ended that waits for its next start. Only a runtime's words are looked at.
func slimEnd(ended *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if ended == nil {
		return nil
	}
	slim := &corev1.ContainerStateTerminated{Reason: ended.Reason, ExitCode: ended.ExitCode}
	if neverStarted(ended) {
		slim.Message = ended.Message
	}
	return slim
}

// SetupWithManager registers the reconciler with its watches. concurrency is how many LiveStashClusters are reconciled
// at once.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrency int) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podClusterIndex, clusterName)
	if err != nil {
		return err
	}
	err = mgr.GetFieldIndexer().IndexField(context.Background(), &appsv1.StatefulSet{}, upgradingIndex, beingUpgraded)
	if err != nil {
		return err
	}
	fleets := ctrl.NewControllerManagedBy(mgr).
		Named("livestashcluster").
		For(&v1alpha1.LiveStashCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// By label, not by owner: those that redis-operator makes for the fleet are its own.
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		Owns(&batchv1.Job{}).
		Watches(&appsv1.StatefulSet{}, r.turnEnded()).
		Owns(&corev1.ConfigMap{}).
		// By label: one that outlives its fleet has no owner.
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		Owns(&corev1.Service{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(notOnlyStatus())).
		WatchesMetadata(secretMetadataObject(), handler.EnqueueRequestsFromMapFunc(clusterOf)).
		WatchesRawSource(source.Channel(r.Named.Changed, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(clusterOf), builder.WithPredicates(podNewsChanged())).
		Watches(&corev1.Pod{}, handler.Funcs{DeleteFunc: r.podGone}).
		Watches(&v1alpha1.LiveStashCluster{}, handler.Funcs{DeleteFunc: r.clusterGone}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency, RateLimiter: reconcile.Backoff()})
	if r.SeesNodes {
		if err := indexNodes(mgr.GetFieldIndexer()); err != nil {
			return err
		}
		fleets = fleets.
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.fleetsOf), builder.WithPredicates(nodeNewsChanged())).
			Watches(&corev1.Node{}, r.rouseStacked(), builder.WithPredicates(nodeNewsChanged()))
	}
	if r.News != nil {
		fleets = fleets.WatchesRawSource(source.Channel(r.News, &handler.EnqueueRequestForObject{}))
	}
	return fleets.Complete(r)
}

// notOnlyStatus leaves out changes of the status alone.
func notOnlyStatus() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

func clusterName(object client.Object) []string {
	return []string{object.GetLabels()[render.ClusterLabel]}
}

// podGone keeps the last words of a pod for the next pass.
func (r *Reconciler) podGone(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	pod := e.Object.(*corev1.Pod)
	owner := metav1.GetControllerOf(pod)
	if report, found := drainReport(pod); found && owner != nil && owner.Kind == "StatefulSet" && owner.Name == pod.Labels[render.ClusterLabel] {
		for _, request := range clusterOf(ctx, pod) {
			r.drains.add(request.NamespacedName, drained{pod: pod.Name, set: owner.UID, made: pod.CreationTimestamp.Time, report: report})
			queue.Add(request)
		}
	}
}

// clusterGone says what ends with a LiveStashCluster that was deleted.
func (r *Reconciler) clusterGone(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	cluster := e.Object.(*v1alpha1.LiveStashCluster)
	r.drains.take(client.ObjectKeyFromObject(cluster), time.Time{}, "")
	r.counts.forget(cluster.UID)
	r.tellLoss(cluster, "the LiveStashCluster was deleted")
}

// clusterOf is the LiveStashCluster that an object says it belongs to.
func clusterOf(_ context.Context, object client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: types.NamespacedName{
		Namespace: object.GetNamespace(),
		Name:      object.GetLabels()[render.ClusterLabel],
	}}}
}

// podNewsChanged lets through what the StatefulSet's status does not tell: that a pod got into trouble or out of it, and
// that its agent may have something else to say.
func podNewsChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return true },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || podTrouble(before) != podTrouble(after) || podReady(before) != podReady(after) ||
				lastWord(before) != lastWord(after) || before.Labels[redis.RoleLabel] != after.Labels[redis.RoleLabel] || before.Status.PodIP != after.Status.PodIP
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
