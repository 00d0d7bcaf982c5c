package cluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// shadowsCurrent: other pods hold copies of all stashes, as they were a moment ago.
func shadowsCurrent(seen *observation) metav1.Condition {
	var refused, alone, late []string
	for i := range seen.members {
		m := &seen.members[i]
		shadow := m.answer.Status.Shadow
		switch {
		case m.answer.Err != nil, m.answer.At.IsZero(), m.terminating(), shadow == nil:
		case shadow.Refused:
			refused = append(refused, m.Name)
		case shadow.Holders == 0 && shadow.LagSeconds >= agentclient.LateSeconds:
			alone = append(alone, m.Name)
		case shadow.LagSeconds >= agentclient.LateSeconds:
			late = append(late, m.Name)
		}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionShadowsCurrent, Status: metav1.ConditionFalse}
	switch {
	case len(refused) > 0:
		condition.Reason = v1alpha1.ReasonCopiesRefused
		condition.Message = fmt.Sprintf("other pods have no room for copies of stashes of %s, which are lost if that pod is killed: raise spec.shadow.maxBytes, "+
			"and resources.limits.memory with it, or have more pods", few(refused))
	case len(alone) > 0:
		condition.Reason = v1alpha1.ReasonNobodyHolds
		condition.Message = fmt.Sprintf("no other pod holds copies of the stashes of %s: a fleet needs two pods with spec.shadow, which see each other", few(alone))
	case len(late) > 0:
		condition.Reason = v1alpha1.ReasonCopiesLate
		condition.Message = fmt.Sprintf("stashes of %s have waited %d s or longer to be copied: the pods have too little CPU, or the network between them is slow", few(late), agentclient.LateSeconds)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonCopiesCurrent
		condition.Message = "other pods hold copies of all stashes"
	}
	return condition
}
