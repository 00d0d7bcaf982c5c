package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/controller/fresh"
	"github.com/livestash-dev/livestash/operator/internal/fleet"
	"github.com/livestash-dev/livestash/operator/internal/stash"
)

// updateStatus writes what is seen of the fleet, and how the pass ended, when either has changed.
func (r *Reconciler) updateStatus(ctx context.Context, p *pass, outcome error) error {
	seen, err := r.observe(ctx, p, outcome)
	if err != nil {
		return err
	}
	before := p.cluster.DeepCopy()
	p.cluster.Status = statusOf(p.cluster, seen)
	p.dueIn(resync(p.cluster, seen.answers))
	if !equality.Semantic.DeepEqual(before.Status, p.cluster.Status) {
		err = r.Status().Patch(ctx, p.cluster, client.MergeFrom(before), fieldOwner)
		if err != nil {
			r.drains.add(client.ObjectKeyFromObject(p.cluster), seen.drained...)
			return client.IgnoreNotFound(fmt.Errorf("writing the status: %w", err))
		}
		r.tellTransitions(before, p.cluster)
		err = fresh.Await(ctx, r.Client, p.cluster, &v1alpha1.LiveStashCluster{})
	}
	r.tellDrained(p.cluster, seen.drained)
	return err
}

// observation is what a status is made of.
type observation struct {
	// statefulSet is nil while there is none.
	statefulSet *appsv1.StatefulSet
	// trouble says why a pod does not get on; empty when all do.
	trouble string
	// store is what is seen of the adapter's store apart from what the agents say.
	store storeObservation
	// podMonitor is the name of the PodMonitor that there is.
	podMonitor string
	// answers are what the agents said.
	answers []answer
	// drained are the last words of pods that are gone.
	drained []drained
	// outcome is how the pass ended.
	outcome error
	// now is the time.
	now time.Time
}

func (r *Reconciler) observe(ctx context.Context, p *pass, outcome error) (observation, error) {
	seen := observation{statefulSet: p.statefulSet, podMonitor: p.podMonitor, outcome: outcome, now: time.Now()}
	if seen.statefulSet == nil {
		cached := &appsv1.StatefulSet{}
		err := r.Get(ctx, client.ObjectKeyFromObject(p.cluster), cached)
		if client.IgnoreNotFound(err) != nil {
			return seen, fmt.Errorf("looking up the StatefulSet: %w", err)
		}
		if err == nil && metav1.IsControlledBy(cached, p.cluster) {
			seen.statefulSet = cached
		}
	}

	pods, err := r.pods(ctx, p.cluster)
	if err != nil {
		return seen, err
	}
	seen.trouble = firstTrouble(pods)
	seen.store, err = r.observeStore(ctx, p)
	if err != nil {
		return seen, err
	}
	seen.answers = r.askAgents(ctx, p.cluster, pods)
	seen.drained = r.drains.take(client.ObjectKeyFromObject(p.cluster))
	return seen, nil
}

// statusOf is the status of a LiveStashCluster, from its spec, its last status and what is seen now.
func statusOf(c *v1alpha1.LiveStashCluster, seen observation) v1alpha1.LiveStashClusterStatus {
	status := *c.Status.DeepCopy()
	status.ObservedGeneration = c.Generation
	status.Selector = labels.SelectorFromSet(fleet.SelectorLabels(c)).String()
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = 0, 0, 0
	if seen.statefulSet != nil {
		status.Replicas = seen.statefulSet.Status.Replicas
		status.ReadyReplicas = seen.statefulSet.Status.ReadyReplicas
		status.UpdatedReplicas = seen.statefulSet.Status.UpdatedReplicas
	}
	status.Nodes = nodes(seen.answers)
	status.Stashes = stashes(stash.For(c).Home(), status.Nodes)
	status.LastRollout = lastRollout(status.LastRollout, seen.statefulSet, seen.drained, seen.now)
	status.Redis = redisStatus(c, seen.store)
	status.PodMonitor = seen.podMonitor
	setAgentConditions(&status.Conditions, c, seen)
	for _, condition := range []metav1.Condition{available(c, seen), progressing(c, seen), reconcileSucceeded(seen)} {
		condition.ObservedGeneration = c.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// available: at most one pod is away.
func available(c *v1alpha1.LiveStashCluster, seen observation) metav1.Condition {
	desired, ready := c.DesiredReplicas(), int32(0)
	if seen.statefulSet != nil {
		ready = seen.statefulSet.Status.ReadyReplicas
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Message: podsReady(ready, desired)}
	switch {
	case desired == 0:
		condition.Reason = v1alpha1.ReasonScaledToZero
		condition.Message = "spec.replicas is 0: nothing serves"
	case ready >= desired:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllReady
	case ready >= max(1, desired-1):
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonEnoughReady
	default:
		condition.Reason = v1alpha1.ReasonTooFewReady
	}
	return condition
}

// progressing: pods are being made, replaced or removed.
func progressing(c *v1alpha1.LiveStashCluster, seen observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue}
	desired, set := c.DesiredReplicas(), seen.statefulSet
	if set == nil {
		condition.Reason, condition.Message = v1alpha1.ReasonWaitingForPods, "there is no StatefulSet yet"
		if seen.outcome != nil {
			condition.Status = metav1.ConditionFalse
			condition.Reason, condition.Message = reasonAndMessage(seen.outcome)
		}
		return condition
	}

	observed := set.Status
	switch {
	case seen.store.changing:
		condition.Reason = v1alpha1.ReasonStoreChanging
		condition.Message = "spec.redis names another store: every pod stops before the first one with it starts; the stashes in the old store are left behind"
	case set.Generation != observed.ObservedGeneration && observed.ObservedGeneration != 0:
		condition.Reason, condition.Message = v1alpha1.ReasonRollingOut, "the new pod template or number of replicas is not acted on yet"
	case observed.Replicas != desired:
		condition.Reason, condition.Message = v1alpha1.ReasonScaling, fmt.Sprintf("%d pods of %d", observed.Replicas, desired)
	case observed.UpdatedReplicas < desired || observed.CurrentRevision != observed.UpdateRevision:
		condition.Reason, condition.Message = v1alpha1.ReasonRollingOut, fmt.Sprintf("%d of %d pods have the new template", observed.UpdatedReplicas, desired)
	case observed.ReadyReplicas < desired:
		condition.Reason, condition.Message = v1alpha1.ReasonWaitingForPods, podsReady(observed.ReadyReplicas, desired)
	default:
		condition.Status = metav1.ConditionFalse
		condition.Reason, condition.Message = v1alpha1.ReasonComplete, podsReady(observed.ReadyReplicas, desired)
		return condition
	}
	if seen.trouble != "" {
		condition.Reason, condition.Message = v1alpha1.ReasonPodFailing, seen.trouble
	}
	return condition
}

// reconcileSucceeded: the fleet's objects are as the spec wants them.
func reconcileSucceeded(seen observation) metav1.Condition {
	condition := metav1.Condition{
		Type:    v1alpha1.ConditionReconcileSucceeded,
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonReconciled,
		Message: "every object is as wanted",
	}
	if seen.outcome != nil {
		condition.Status = metav1.ConditionFalse
		condition.Reason, condition.Message = reasonAndMessage(seen.outcome)
	}
	return condition
}

func reasonAndMessage(err error) (reason, message string) {
	var known *problem
	if errors.As(err, &known) {
		return known.reason, known.message
	}
	var taken *apply.ConflictError
	if errors.As(err, &taken) {
		return v1alpha1.ReasonNameConflict, taken.Error()
	}
	return v1alpha1.ReasonAPIError, err.Error()
}

func podsReady(ready, desired int32) string {
	return fmt.Sprintf("%d of %d pods ready", ready, desired)
}
