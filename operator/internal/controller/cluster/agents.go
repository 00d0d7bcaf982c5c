package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// mostPods is how many pods the status lists, mostText how many bytes what it says of one may have: an object must stay small.
	mostPods = 256
	mostText = 128
)

// podStatuses is status.pods, and stashes status.stashes.
func podStatuses(c *v1alpha1.LiveStashCluster, seen *observation) (pods []v1alpha1.PodStatus, stashes int64) {
	var most int64
	home := store.For(c).Home()
	for i := range seen.members {
		m := &seen.members[i]
		status := v1alpha1.PodStatus{Name: m.Name, Updated: m.updated, Ready: podReady(m.Pod), Problem: reconcile.Shortened(seen.unable(c, m), mostText)}
		if m.agentPort != 0 && m.answer.Err == nil {
			told := m.answer.Status
			if adapter, known := store.Named(told.Adapter); known {
				home = store.Of(adapter).Home() // which may still be the one before
			}
			status.Ready, status.Draining = status.Ready && told.Ready, told.Draining
			status.Stashes, status.MissingPeers = told.Stashes, int32(told.Peers.Missing) //nolint:gosec // bounded where it is read
		}
		stashes, most = stashes+status.Stashes, max(most, status.Stashes)
		pods = append(pods, status)
	}
	if home == store.EveryPod {
		stashes = most
	}
	if len(pods) > mostPods {
		slices.SortStableFunc(pods, func(a, b v1alpha1.PodStatus) int { return cmp.Compare(well(a), well(b)) })
		pods = pods[:mostPods]
	}
	return pods, stashes
}

// well orders pods that are not before those that are.
func well(pod v1alpha1.PodStatus) int {
	if pod.Problem != "" {
		return 0
	}
	return 1
}

// setAgentConditions sets the conditions that only the agents can tell.
func setAgentConditions(conditions *[]metav1.Condition, c *v1alpha1.LiveStashCluster, seen *observation, largest *v1alpha1.LargestStash) {
	told := []metav1.Condition{clustered(c, seen), storeReady(c, seen), agentHealthy(seen.members)}
	if store.For(c).LargestStash(c) > 0 {
		told = append(told, stashesFit(c, largest))
	} else {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStashesFit)
	}
	if c.ShadowEnabled() {
		told = append(told, shadowsCurrent(seen))
	} else {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionShadowsCurrent)
	}
	for _, condition := range told {
		switch {
		case !c.AgentEnabled():
			condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAgentDisabled
			condition.Message = "only the agent can tell: set spec.agent.enabled to true"
		case c.DesiredReplicas() == 0:
			condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonScaledToZero
			condition.Message = "spec.replicas is 0: there is nobody to tell"
		}
		setConditions(conditions, c, []metav1.Condition{condition})
	}
}

// clustered: every BEAM node sees every other.
func clustered(c *v1alpha1.LiveStashCluster, seen *observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionClustered, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNodesMissing}
	desired := int(c.DesiredReplicas())
	var gaps []string
	connected := 0
	for i := range seen.members {
		m := &seen.members[i]
		peers := m.answer.Status.Peers
		missing := missingPods(m.answer, seen.names)
		switch {
		case m.answer.Err != nil:
			gaps = append(gaps, m.Name+" does not tell")
		case m.answer.At.IsZero(), m.terminating():
		case len(missing) > 0:
			gaps = append(gaps, m.Name+" misses "+few(missing))
		case peers.Connected < desired-1:
			gaps = append(gaps, fmt.Sprintf("%s sees %d of %d peers", m.Name, peers.Connected, desired-1))
		default:
			connected++
		}
	}
	switch {
	case len(gaps) > 0:
		condition.Message = few(gaps)
	case connected < desired:
		condition.Message = fmt.Sprintf("%d of %d nodes are up", connected, desired)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllConnected
		condition.Message = fmt.Sprintf("each of %d nodes sees every other", desired)
	}
	return condition
}

// agentHealthy: the agent answers on every pod that serves. One that is starting or stopping may be silent.
func agentHealthy(members []member) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionAgentHealthy, Status: metav1.ConditionFalse}
	var silent []string
	for i := range members {
		m := &members[i]
		if m.answer.Err != nil && podReady(m.Pod) && !m.terminating() {
			silent = append(silent, fmt.Sprintf("%s: %v", m.Name, m.answer.Err))
			condition.Reason = cmp.Or(condition.Reason, agentReason(m.answer.Err))
		}
	}
	if len(silent) > 0 {
		condition.Message = few(silent) + " Without its agent a pod serves, but it does not drain and hands no stashes over."
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllAnswer
	condition.Message = "the agent answers on every pod that serves"
	return condition
}

func agentReason(err error) string {
	var foreign *agentclient.ForeignServerError
	var bad *agentclient.BadAnswerError
	switch {
	case errors.As(err, &foreign):
		return v1alpha1.ReasonAgentPortTaken
	case errors.As(err, &bad):
		return v1alpha1.ReasonAgentBadAnswer
	}
	return v1alpha1.ReasonAgentUnreachable
}

// few are the first of some sentences: a message must stay readable, and below 32 KiB.
func few(sentences []string) string {
	const most = 5
	if len(sentences) <= most {
		return strings.Join(sentences, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(sentences[:most], "; "), len(sentences)-most)
}

// drainReport is the last word of a pod that was told to stop, or nothing.
func drainReport(pod *corev1.Pod) (agentclient.Report, bool) {
	ended := terminated(pod)
	if ended == nil {
		return agentclient.Report{}, false
	}
	return agentclient.ParseReport([]byte(ended.Message))
}
