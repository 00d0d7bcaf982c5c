package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// patience is how long a pod that runs may be unable to keep users before nobody waits for it any longer.
	patience = 5 * time.Minute
	// goneAfter is how long after its grace period a pod that is still there has lost its node.
	goneAfter = time.Minute
)

// member is a pod of the fleet's StatefulSet, and what its agent says.
type member struct {
	*corev1.Pod
	ordinal int32
	// agentPort is the pod's own, which may be another than the spec's. 0: the pod has no agent.
	agentPort int32
	answer    observe.Answer
	// updated is whether it was made from the template that is wanted now.
	updated bool
}

// membersOf are those of the pods that the StatefulSet made, in the order of their ordinals.
func membersOf(pods []corev1.Pod, set *appsv1.StatefulSet, answers map[types.UID]observe.Answer) []member {
	var members []member
	for i := range pods {
		pod := &pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.UID != set.UID {
			continue
		}
		m := member{Pod: pod, ordinal: ordinal(pod.Name), agentPort: portOf(pod, fleet.AgentPort), answer: answers[pod.UID]}
		if podReady(pod) && !m.answer.Serves {
			// It was asked while it started, and may be silent then. It is asked anew at the end of this pass.
			m.answer.Err, m.answer.Since = nil, time.Time{}
		}
		m.updated = m.revision() == set.Status.UpdateRevision
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return members
}

// revision names the template that the pod was made from.
func (m *member) revision() string { return m.Labels[appsv1.StatefulSetRevisionLabel] }

// ordinal is the number at the end of a pod's name.
func ordinal(pod string) int32 {
	number, err := strconv.ParseInt(pod[strings.LastIndexByte(pod, '-')+1:], 10, 32)
	if err != nil {
		return -1
	}
	return int32(number)
}

// portOf is the port of that name of a pod's application. 0: there is none.
func portOf(pod *corev1.Pod, name string) int32 {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if container.Name == fleet.AppContainer && port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// wait is what the wait for the pod is remembered by: another pod of its name is waited for anew, and so is its end.
func (m *member) wait() string {
	if m.terminating() {
		return string(m.UID) + " stops"
	}
	return string(m.UID)
}

func (m *member) terminating() bool { return !m.DeletionTimestamp.IsZero() }

// lost is whether the pod's node does not answer any more: the pod should have stopped long ago. The time is the one for which this
// operator has seen it stop. By the deletion's timestamp, which is the API server's, every pod that drains would be lost to an operator
// whose clock is ahead, and the next one would go before this one's stashes are safe.
func (o *observation) lost(m *member) bool {
	return m.terminating() && o.waited[m.wait()] > m.mayStopFor()
}

// mayStopFor is how long the pod may take to stop before its node is taken to be lost.
func (m *member) mayStopFor() time.Duration {
	return time.Duration(ptr.Deref(m.DeletionGracePeriodSeconds, 0))*time.Second + goneAfter
}

// broken says why the pod does not get on by itself, when nothing of the application runs in it: nobody's state is in there. Also of
// one that is stopping, or it would be taken for a pod that holds state.
func (m *member) broken() string {
	if app := appStatus(m.Pod); app != nil && app.State.Waiting == nil && app.State.Terminated == nil {
		return ""
	}
	return lastingTrouble(m.Pod)
}

// roomless is whether no node takes the pod.
func (m *member) roomless() bool {
	return m.Spec.NodeName == "" && slices.ContainsFunc(m.Status.Conditions, unschedulable)
}

// unstarted is whether nothing of the application has run in the pod yet.
func (m *member) unstarted() bool {
	if app := appStatus(m.Pod); app != nil {
		return app.State.Waiting != nil
	}
	return !podReady(m.Pod)
}

// restarts is whether the application is told to stop in a pod that stays. That is the first that is to be known of a liveness probe that
// fails: the kubelet counts its failures in events alone, and a restart is in the status when it is over.
func (m *member) restarts() bool {
	return m.agentPort != 0 && m.answer.Err == nil && m.answer.Status.Draining && !m.terminating()
}

// unable says why a pod cannot keep its users' state now, nor take that of others, as the rest of a sentence that begins with
// its name. Empty: it can.
func (o *observation) unable(c *v1alpha1.LiveStashCluster, m *member) string {
	switch {
	case o.lost(m):
		return "should have stopped long ago, and its node does not say that it has"
	case m.terminating():
		return "is stopping"
	case m.restarts():
		return "was told to stop, and nobody has deleted it: a probe that fails has its container started anew (spec.probes.liveness, spec.probes.startup), " + seePod(m.Pod)
	case !podReady(m.Pod):
		return o.unready(c, m)
	case m.agentPort == 0:
		return ""
	case m.answer.Err != nil:
		return "does not answer: " + m.answer.Err.Error()
	case m.answer.At.IsZero():
		return "has not told yet how it is"
	}
	status := m.answer.Status
	missing := missingPods(m.answer, o.ready)
	switch {
	case !status.Ready:
		return "says: " + status.Reason
	case !status.Store.Ready:
		return "has no store: " + status.Store.Reason
	case store.For(c).Home() == store.Elsewhere:
		return "" // users are kept elsewhere: peers need not see each other
	case len(missing) > 0:
		return "does not see " + few(missing)
	case status.Peers.Connected < o.agents-1: // one whose DNS tells of nobody misses nobody
		return fmt.Sprintf("sees only %d of %d peers", status.Peers.Connected, o.agents-1)
	}
	return ""
}

// missingPods are those of the pods that the one who answered does not see. DNS also names pods that are gone for a while, and
// those that do not run yet: whom nobody can see is nobody's loss.
func missingPods(a observe.Answer, pods map[string]bool) []string {
	var missing []string
	for _, node := range a.Status.Peers.MissingNodes {
		if pod := podOf(node); pods[pod] {
			missing = append(missing, pod)
		}
	}
	if unnamed := a.Status.Peers.Missing - len(a.Status.Peers.MissingNodes); unnamed > 0 {
		missing = append(missing, fmt.Sprintf("%d more", unnamed))
	}
	return missing
}

// podOf is the pod in a BEAM node name: <app>@<pod>.<service>...
func podOf(node string) string {
	_, host, _ := strings.Cut(node, "@")
	pod, _, _ := strings.Cut(host, ".")
	return cmp.Or(pod, node)
}

// readySince is since when the pod serves.
func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// justReady is whether the pod serves only since a moment ago. To an operator whose clock is behind the kubelet's, no pod would ever be ready
// for long: from settling on, such a difference does not count.
func (m *member) justReady(now time.Time) bool {
	since := now.Sub(readySince(m.Pod))
	return -settling < since && since < settling
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
