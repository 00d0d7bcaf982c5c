package cluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// shadowsCurrent: other pods hold copies of all stashes, as they were a moment ago.
func shadowsCurrent(seen *observation) metav1.Condition {
	pods := map[string][]string{}
	for i := range seen.members {
		m := &seen.members[i]
		reason := notCopied(m)
		pods[reason] = append(pods[reason], m.Name)
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionShadowsCurrent, Status: metav1.ConditionFalse}
	switch {
	case pods[v1alpha1.ReasonCopiesRefused] != nil:
		condition.Reason = v1alpha1.ReasonCopiesRefused
		condition.Message = fmt.Sprintf("other pods have no room for copies of stashes of %s, which are lost if that pod is killed: raise spec.shadow.maxBytes, "+
			"and resources.limits.memory with it, or have more pods", few(pods[condition.Reason]))
	case pods[v1alpha1.ReasonNobodyHolds] != nil:
		condition.Reason = v1alpha1.ReasonNobodyHolds
		condition.Message = fmt.Sprintf("no other pod holds copies of the stashes of %s: a fleet needs two pods with spec.shadow, which see each other", few(pods[condition.Reason]))
	case pods[v1alpha1.ReasonCopiesLate] != nil:
		condition.Reason = v1alpha1.ReasonCopiesLate
		condition.Message = fmt.Sprintf("stashes of %s have waited %d s or longer to be copied: the pods have too little CPU, or the network between them is slow", few(pods[condition.Reason]), agentclient.LateSeconds)
	case pods[v1alpha1.ReasonNotCopiedYet] != nil:
		condition.Reason = v1alpha1.ReasonNotCopiedYet
		condition.Message = fmt.Sprintf("there are no copies of the stashes of %s, whose template is from before spec.shadow: they begin when the rollout has come to it", few(pods[condition.Reason]))
	case len(pods) == 1 && pods[v1alpha1.ReasonAgentUnreachable] != nil:
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAgentUnreachable
		condition.Message = "no agent tells of copies, see the condition AgentHealthy"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonCopiesCurrent
		condition.Message = "other pods hold copies of all stashes"
	}
	return condition
}

// notCopied is the reason why it cannot be said that others have copies of all the pod's stashes. Empty: they have, or it
// starts, or is about to hand them over.
func notCopied(m *member) string {
	shadow := m.answer.Status.Shadow
	switch {
	case m.terminating(), !podReady(m.Pod) && m.answer.At.IsZero():
		return ""
	case m.answer.Err != nil, m.answer.At.IsZero():
		return v1alpha1.ReasonAgentUnreachable
	case shadow == nil:
		return v1alpha1.ReasonNotCopiedYet
	case shadow.Refused:
		return v1alpha1.ReasonCopiesRefused
	case shadow.LagSeconds < agentclient.LateSeconds:
		return ""
	case shadow.Holders == 0:
		return v1alpha1.ReasonNobodyHolds
	}
	return v1alpha1.ReasonCopiesLate
}
