package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

// updateStatus writes what is seen of the fleet, and how the pass ended, when either has changed.
func (r *Reconciler) updateStatus(ctx context.Context, p *pass, outcome error) error {
	before := p.cluster.DeepCopy()
	p.drained = r.drains.take(client.ObjectKeyFromObject(p.cluster), p.cluster.CreationTimestamp.Time, p.seen.statefulSet.UID)
	p.cluster.Status = statusOf(p, outcome)
	again := r.returns.count(client.ObjectKeyFromObject(p.cluster), &p.cluster.Status, &p.seen)
	if p.rolls() {
		again = countAgain
	}
	if again > 0 {
		p.DueIn(again)
	}
	if turn := p.seen.turn(); turn > 0 {
		p.DueIn(turn)
	}
	if wait := r.counts.wait(before, p.cluster, p.seen.now); wait > 0 {
		p.DueIn(wait)
		p.cluster.Status = before.Status
	}
	if !equality.Semantic.DeepEqual(before.Status, p.cluster.Status) {
		written, err := reconcile.WriteStatus(ctx, r.Client, before, p.cluster)
		if !written {
			r.drains.add(client.ObjectKeyFromObject(p.cluster), p.drained...)
			return client.IgnoreNotFound(err)
		}
		r.tellTransitions(before, p.cluster)
		r.tellRotation(before, p.cluster)
		r.tellReturns(before, p.cluster)
	}
	r.tellDrained(p.cluster, p.drained)
	return nil
}

// statusOf is the status of a LiveStashCluster, from its spec, its last status and the pass.
func statusOf(p *pass, outcome error) v1alpha1.LiveStashClusterStatus {
	c, set := p.cluster, p.seen.statefulSet.Status
	status := *c.Status.DeepCopy()
	status.ObservedGeneration = c.Generation
	status.Selector = labels.SelectorFromSet(render.SelectorLabels(c)).String()
	// An autoscaler must not see the pod that is there for a rollout only.
	desired := c.DesiredReplicas()
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = min(set.Replicas, desired), min(set.ReadyReplicas, desired), min(set.UpdatedReplicas, desired)
	status.PodsReady = fmt.Sprintf("%d/%d", status.ReadyReplicas, desired)
	status.LargestStash = largestStash(c, &p.seen, p.drained)
	if p.seen.heard() || len(status.Pods) == 0 {
		status.Pods, status.Stashes = podStatuses(c, &p.seen)
		if largest := status.LargestStash; largest != nil && largest.PodGone != nil {
			p.DueIn(carriedUntil(c, largest).Sub(p.seen.now))
		}
		setAgentConditions(&status.Conditions, c, &p.seen, status.LargestStash)
	}
	history(&status, p.turn())
	status.Redis, status.PodMonitor, status.Certificate = p.redis, p.podMonitor, p.certificate
	status.Cookie = p.tellCookie(c.Status.Cookie)
	p.upgrade.tell(&status, c)
	setConditions(&status.Conditions, c, []metav1.Condition{available(p), progressing(p, outcome), rolloutSafe(c), reconcileSucceeded(outcome)})
	if condition := placed(p, outcome); condition.Type != "" {
		setConditions(&status.Conditions, c, []metav1.Condition{condition})
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionPlaced)
	}
	setConditions(&status.Conditions, c, summary(status.Conditions, stalled(p, outcome)))
	return status
}

func setConditions(conditions *[]metav1.Condition, c *v1alpha1.LiveStashCluster, now []metav1.Condition) {
	for _, condition := range now {
		condition.ObservedGeneration, condition.Message = c.Generation, reconcile.Shortened(condition.Message, reconcile.MostMessage)
		meta.SetStatusCondition(conditions, condition)
	}
}

// turn is what the history is told.
func (p *pass) turn() turn {
	now := turn{returns: counted(p.seen.members), reports: p.drained, now: p.seen.now}
	if p.seen.settled() {
		now.revision, now.before = p.seen.statefulSet.Status.UpdateRevision, p.seen.statefulSet.Status.CurrentRevision
		now.complete = p.plan.Phase == rollout.Complete && len(p.seen.waited) == 0
		now.rejected = p.rejected()
	}
	return now
}

// available: at most one pod is away, as a rollout or a node drain takes them.
func available(p *pass) metav1.Condition {
	desired, ready := p.cluster.DesiredReplicas(), p.seen.statefulSet.Status.ReadyReplicas
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

// phaseReasons are the reasons of condition Progressing in the phases of a rollout.
var phaseReasons = map[rollout.Phase]string{
	rollout.Pending:  v1alpha1.ReasonRollingOut,
	rollout.Scaling:  v1alpha1.ReasonScaling,
	rollout.Surging:  v1alpha1.ReasonSurging,
	rollout.Rolling:  v1alpha1.ReasonRollingOut,
	rollout.Moving:   v1alpha1.ReasonLeavingNode,
	rollout.Trying:   v1alpha1.ReasonCanaryRunning,
	rollout.Paused:   v1alpha1.ReasonPaused,
	rollout.Withheld: v1alpha1.ReasonBeforeRunning,
	rollout.Stuck:    v1alpha1.ReasonRolloutStuck,
	rollout.Complete: v1alpha1.ReasonWaitingForPods,
}

// progressing: pods are being made, replaced or removed.
func progressing(p *pass, outcome error) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue}
	desired, observed := p.cluster.DesiredReplicas(), p.seen.statefulSet.Status
	condition.Reason = phaseReasons[p.plan.Phase]
	hindrance := p.hindrance()
	switch {
	case p.seen.statefulSet.UID == "" && outcome != nil:
		condition.Status = metav1.ConditionFalse
		condition.Reason, condition.Message = reconcile.ReasonAndMessage(outcome)
	case hindrance.reason != "":
		condition.Reason, condition.Message = hindrance.reason, hindrance.message
	case p.plan.Phase == rollout.Complete && !p.seen.settled():
		// This pass may have begun a rollout: whoever waits for the new spec must not be told of the pods as they were.
		condition.Reason, condition.Message = v1alpha1.ReasonRollingOut, "the StatefulSet has changed, and its controller has not acted on that yet"
	case p.plan.Phase == rollout.Complete && observed.ReadyReplicas >= desired && observed.Replicas == desired:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonComplete, podsReady(observed.ReadyReplicas, desired)
	case p.plan.Phase == rollout.Complete:
		condition.Message = because(podsReady(observed.ReadyReplicas, desired), p.seen.firstUnable(p.cluster))
	case p.moves():
		condition.Message = placed(p, outcome).Message
	case p.plan.Phase == rollout.Scaling:
		condition.Message = because(fmt.Sprintf("%d pods of %d", observed.Replicas, desired), p.plan.Waiting)
	default:
		condition.Message = because(fmt.Sprintf("%d of %d pods have the new template", observed.UpdatedReplicas, p.seen.replicas()), p.plan.Waiting)
		if p.plan.Forgoes {
			condition.Message += "; there is no room for an additional pod, and it goes on without"
		}
	}
	return condition
}

// hindrance is what a rollout waits for that is not in its plan. Without a reason, nothing.
func (p *pass) hindrance() news {
	trouble, _ := p.trouble()
	switch {
	case p.before.failed:
		return news{reason: v1alpha1.ReasonBeforeFailed, message: p.before.message}
	case p.before.withheld && trouble == "" && p.refusal == "":
		return news{reason: v1alpha1.ReasonBeforeRunning, message: p.before.message}
	case p.storeChanging() && !p.before.withheld:
		return news{reason: v1alpha1.ReasonStoreChanging, message: fmt.Sprintf(
			"spec.redis names another store: every pod stops before the first one with it starts, and the stashes in the old store are left behind; waiting for %s", few(p.oldStorePods))}
	case p.refusal != "":
		return news{reason: v1alpha1.ReasonPodNotMade, message: p.refusal}
	case p.rejected() != "":
		return news{reason: v1alpha1.ReasonRolledBack, message: rolledBack(p)}
	case trouble != "":
		return news{reason: v1alpha1.ReasonPodFailing, message: trouble}
	case p.seen.statefulSet.UID == "":
		return news{reason: v1alpha1.ReasonWaitingForPods, message: "there is no StatefulSet yet"}
	}
	return news{}
}

// rejected says why the wanted template was rejected. Empty: it was not.
func (p *pass) rejected() string { return p.seen.verdict(p.cluster, p.desired()).rejected }

// rolledBack says how far the fleet has gone back to the template before, and what to do.
func rolledBack(p *pass) string {
	const next = "; it is not tried again until the spec changes, or `kubectl rollout restart`"
	if left := p.seen.statefulSet.Status.UpdatedReplicas; left > 0 {
		return because(fmt.Sprintf("going back to the template before, %d pods still have the new one: %s", left, p.rejected()), p.plan.Waiting)
	}
	return "the fleet went back to the template before: " + p.rejected() + next
}

// because is what is done, and what it waits for.
func because(doing, waiting string) string {
	if waiting == "" {
		return doing
	}
	return doing + "; " + waiting
}

// passing are the reasons of problems that most often pass by themselves.
var passing = []string{v1alpha1.ReasonPaused, v1alpha1.ReasonCertificateMissing, v1alpha1.ReasonCookieWaits, v1alpha1.ReasonRedisPasswordWaits,
	v1alpha1.ReasonRedisCertificateWaits, v1alpha1.ReasonRedisHandOverWaits}

// stalled says what somebody has to do something about. Without a reason, nothing: what is wrong with a pod may pass, as when a
// node is being added, and is given a minute for it.
func stalled(p *pass, outcome error) news {
	var known *reconcile.Problem
	var taken *apply.ConflictError
	trouble, waited := p.trouble()
	switch {
	case errors.As(outcome, &known) && !slices.Contains(passing, known.Reason), errors.As(outcome, &taken):
		reason, message := reconcile.ReasonAndMessage(outcome)
		return news{reason: reason, message: message}
	case p.before.failed:
		return news{reason: v1alpha1.ReasonBeforeFailed, message: p.before.message}
	case p.plan.Phase == rollout.Stuck:
		return news{reason: v1alpha1.ReasonRolloutStuck, message: p.plan.Waiting}
	case p.rejected() != "":
		return news{reason: v1alpha1.ReasonRolledBack, message: rolledBack(p)}
	case p.refusal != "":
		return news{reason: v1alpha1.ReasonPodNotMade, message: p.refusal}
	case trouble != "" && waited >= soon:
		return news{reason: v1alpha1.ReasonPodFailing, message: trouble}
	}
	return news{}
}

// rolloutSafe: a rollout loses no stash, as far as the spec is concerned.
func rolloutSafe(c *v1alpha1.LiveStashCluster) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionRolloutSafe, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPeersTakeOver,
		Message: "pods are replaced one at a time, and others keep their users",
	}
	reason, cost := v1alpha1.ReasonNoPeer, losesStashes(c)
	if cost == "" {
		reason, cost = v1alpha1.ReasonTTLTooShort, outlivesStashes(c)
	}
	if cost != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, cost
	}
	return condition
}

// reconcileSucceeded: the fleet's objects are as the spec wants them.
func reconcileSucceeded(outcome error) metav1.Condition {
	condition := metav1.Condition{
		Type:    v1alpha1.ConditionReconcileSucceeded,
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonReconciled,
		Message: "every object is as wanted",
	}
	if outcome != nil {
		condition.Status = metav1.ConditionFalse
		condition.Reason, condition.Message = reconcile.ReasonAndMessage(outcome)
	}
	return condition
}

func podsReady(ready, desired int32) string {
	return fmt.Sprintf("%d of %d pods ready", min(ready, desired), desired)
}
