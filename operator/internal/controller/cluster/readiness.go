package cluster

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// What Ready hangs on, in the order in which the first that fails is told, with the status that each must have. One that is
// Unknown, because nobody can tell, does not count, and neither do those of uncounted.
var readyNeeds = []struct {
	kind   string
	status metav1.ConditionStatus
}{
	{v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue},
	{v1alpha1.ConditionProgressing, metav1.ConditionFalse},
	{v1alpha1.ConditionAvailable, metav1.ConditionTrue},
	{v1alpha1.ConditionClustered, metav1.ConditionTrue},
	{v1alpha1.ConditionStoreReady, metav1.ConditionTrue},
	{v1alpha1.ConditionAgentHealthy, metav1.ConditionTrue},
	{v1alpha1.ConditionStashesFit, metav1.ConditionTrue},
}

// uncounted are reasons that say nothing of the fleet as it is now: there is to be none, or a pod that is gone made too large a stash.
var uncounted = []string{v1alpha1.ReasonScaledToZero, v1alpha1.ReasonStashWasTooLarge}

// summary are the conditions that tools read which know nothing of fleets: kstatus, and with it Flux, Argo CD and `helm --wait`.
// They are made of the others.
func summary(conditions []metav1.Condition, stalled news) []metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllWell, Message: "the fleet is as its spec wants it",
	}
	for _, need := range readyNeeds {
		found := meta.FindStatusCondition(conditions, need.kind)
		if found == nil || found.Status == need.status || found.Status == metav1.ConditionUnknown || slices.Contains(uncounted, found.Reason) {
			continue
		}
		ready.Status, ready.Reason = metav1.ConditionFalse, found.Reason
		ready.Message = fmt.Sprintf("%s is %s: %s", found.Type, found.Status, found.Message)
		break
	}
	stuck := metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotStalled, Message: "nothing waits for somebody's help",
	}
	if stalled.reason != "" {
		stuck.Status, stuck.Reason, stuck.Message = metav1.ConditionTrue, stalled.reason, stalled.message
	}
	working := metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionFalse, Reason: ready.Reason, Message: "nothing is being changed"}
	if ready.Status == metav1.ConditionFalse && stuck.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonPaused {
		working.Status, working.Message = metav1.ConditionTrue, ready.Message
	}
	return []metav1.Condition{ready, working, stuck}
}
