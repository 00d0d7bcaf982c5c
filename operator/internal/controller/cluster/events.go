package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// news is an event to be made of a condition that changed. Without a reason there is nothing to tell.
type news struct {
	eventType, reason, message string
}

// tellTransitions makes an event of each change of the status that a user wants to know of.
func (r *Reconciler) tellTransitions(before, c *v1alpha1.LiveStashCluster) {
	if c.DesiredReplicas() == 0 && before.Status.ObservedGeneration != c.Status.ObservedGeneration {
		r.tellLoss(before, "spec.replicas is 0")
	}
	for _, now := range c.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, now.Type)
		if was == nil {
			was = &metav1.Condition{}
		}
		if was.Status == now.Status && was.Reason == now.Reason {
			continue
		}
		told := transition(*was, now)
		if comesAndGoes(now.Type) && !replaces(before) && !replaces(c) {
			told = comesOrGoes(*was, now, meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionAvailable))
		}
		if told.reason != "" {
			// The condition is named, because two may have one reason, and Kubernetes' client would take the second event for the first.
			r.Recorder.Eventf(c, nil, told.eventType, told.reason, now.Type, "%s", reconcile.Shortened(told.message, reconcile.MostNote))
		}
	}
}

// transition is what to tell of a condition that was was (empty: not known yet) and is now.
func transition(was, now metav1.Condition) news {
	switch now.Type {
	case v1alpha1.ConditionReconcileSucceeded:
		return reconcileTransition(was, now)
	case v1alpha1.ConditionProgressing:
		return progressTransition(was, now)
	case v1alpha1.ConditionAgentHealthy, v1alpha1.ConditionStashesFit, v1alpha1.ConditionShadowsCurrent, v1alpha1.ConditionRolloutSafe:
		if now.Status == metav1.ConditionFalse || now.Reason == v1alpha1.ReasonStashNearLimit {
			return news{corev1.EventTypeWarning, now.Reason, now.Message}
		}
	case v1alpha1.ConditionPlaced:
		if now.Reason != v1alpha1.ReasonNoOtherNode {
			return news{corev1.EventTypeNormal, now.Reason, now.Message}
		}
		return news{corev1.EventTypeWarning, now.Reason, now.Message}
	case v1alpha1.ConditionUpToDate:
		return upgradeTransition(now)
	case v1alpha1.ConditionAvailable:
		switch {
		case was.Status == metav1.ConditionTrue && now.Reason == v1alpha1.ReasonTooFewReady:
			return news{corev1.EventTypeWarning, now.Reason, now.Message}
		case was.Status != metav1.ConditionTrue && now.Status == metav1.ConditionTrue:
			return news{corev1.EventTypeNormal, now.Reason, "the fleet serves: " + now.Message}
		}
	}
	return news{}
}

// comesAndGoes: the condition is False whenever a pod starts.
func comesAndGoes(condition string) bool {
	return condition == v1alpha1.ConditionClustered || condition == v1alpha1.ConditionStoreReady
}

// replaces: pods are being made, replaced or removed as somebody wants it, so that some are missing.
func replaces(c *v1alpha1.LiveStashCluster) bool {
	progressing := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing)
	return progressing != nil && slices.Contains([]string{
		v1alpha1.ReasonRollingOut, v1alpha1.ReasonScaling, v1alpha1.ReasonSurging, v1alpha1.ReasonLeavingNode, v1alpha1.ReasonCanaryRunning,
		v1alpha1.ReasonStoreChanging,
	}, progressing.Reason)
}

// comesOrGoes tells that something is back only of a fleet that has lost it: one that did not serve before it was gone is coming up.
func comesOrGoes(was, now metav1.Condition, available *metav1.Condition) news {
	lost := available != nil && available.Status == metav1.ConditionTrue && !was.LastTransitionTime.Before(&available.LastTransitionTime)
	switch {
	case was.Status == metav1.ConditionTrue && now.Status == metav1.ConditionFalse:
		return news{corev1.EventTypeWarning, now.Reason, now.Message}
	case lost && was.Status == metav1.ConditionFalse && now.Status == metav1.ConditionTrue:
		return news{corev1.EventTypeNormal, now.Reason, now.Message}
	}
	return news{}
}

func reconcileTransition(was, now metav1.Condition) news {
	switch {
	case now.Reason == v1alpha1.ReasonPaused, now.Reason == v1alpha1.ReasonCookieWaits:
		return news{corev1.EventTypeNormal, now.Reason, now.Message}
	case now.Status == metav1.ConditionFalse:
		return news{corev1.EventTypeWarning, now.Reason, now.Message}
	case was.Reason == v1alpha1.ReasonPaused:
		return news{corev1.EventTypeNormal, v1alpha1.ReasonResumed, "spec.paused is gone: reconciling again"}
	}
	return news{}
}

func upgradeTransition(now metav1.Condition) news {
	switch now.Reason {
	case v1alpha1.ReasonUpgrading:
		return news{corev1.EventTypeNormal, now.Reason, now.Message}
	case v1alpha1.ReasonUpgradeHeldUp:
		return news{corev1.EventTypeWarning, now.Reason, now.Message}
	}
	return news{}
}

func progressTransition(was, now metav1.Condition) news {
	switch {
	case now.Reason == v1alpha1.ReasonPodFailing, now.Reason == v1alpha1.ReasonPodNotMade, now.Reason == v1alpha1.ReasonRolloutStuck,
		now.Reason == v1alpha1.ReasonBeforeFailed, now.Reason == v1alpha1.ReasonRolledBack:
		return news{corev1.EventTypeWarning, now.Reason, now.Message}
	case now.Reason == v1alpha1.ReasonComplete && was.Reason != "":
		return news{corev1.EventTypeNormal, now.Reason, now.Message}
	case now.Reason == v1alpha1.ReasonBeforeRunning:
		return news{corev1.EventTypeNormal, now.Reason, "spec.rollout.before must succeed before pods get the new template: " + now.Message}
	case now.Reason == v1alpha1.ReasonPaused, now.Reason == v1alpha1.ReasonCanaryRunning:
		return news{corev1.EventTypeNormal, now.Reason, now.Message}
	case now.Reason == v1alpha1.ReasonRollingOut && slices.Contains([]string{v1alpha1.ReasonComplete, v1alpha1.ReasonBeforeRunning}, was.Reason):
		return news{corev1.EventTypeNormal, now.Reason, "replacing pods: " + now.Message}
	}
	return news{}
}
