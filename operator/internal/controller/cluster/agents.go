package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// What agents know cannot be watched. A fleet at rest is asked seldom, one that changes often.
	restingResync  = 30 * time.Second
	changingResync = 5 * time.Second

	// agentTimeout bounds the wait for an agent that does not answer, and so a pass over its fleet.
	agentTimeout = 2 * time.Second
)

// Agents asks the agent of a pod.
type Agents interface {
	Status(ctx context.Context, podIP string, port int32) (agentclient.Status, error)
}

// answer is what the agent of one pod said.
type answer struct {
	pod    *corev1.Pod
	status agentclient.Status
	// err says why there is no status.
	err error
}

// askAgents asks the agents of all pods that run, at the same time. The answers are in the order of the pods' ordinals.
func (r *Reconciler) askAgents(ctx context.Context, c *v1alpha1.LiveStashCluster, pods []corev1.Pod) []answer {
	if !c.AgentEnabled() {
		return nil
	}
	var answers []answer
	for i := range pods {
		if pods[i].Status.PodIP != "" {
			answers = append(answers, answer{pod: &pods[i]})
		}
	}
	slices.SortFunc(answers, func(a, b answer) int { return cmp.Compare(ordinal(a.pod.Name), ordinal(b.pod.Name)) })

	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for i := range answers {
		asked.Go(func() {
			answers[i].status, answers[i].err = r.Agents.Status(ctx, answers[i].pod.Status.PodIP, c.Spec.Agent.Port)
		})
	}
	asked.Wait()
	return answers
}

// ordinal is the number at the end of a pod's name.
func ordinal(pod string) int {
	number, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		return -1
	}
	return number
}

// nodes is status.nodes.
func nodes(answers []answer) []v1alpha1.NodeStatus {
	var all []v1alpha1.NodeStatus
	for _, a := range answers {
		node := v1alpha1.NodeStatus{Pod: a.pod.Name}
		if a.err != nil {
			node.Problem = a.err.Error()
		} else {
			node.Ready, node.Draining, node.Problem = a.status.Ready, a.status.Draining, a.status.Reason
			node.Stashes, node.StashBytes = a.status.Stashes, a.status.StashBytes
			node.AgentVersion = a.status.Version
			for _, missing := range a.status.Peers.MissingNodes {
				node.Missing = append(node.Missing, podOf(missing))
			}
		}
		all = append(all, node)
	}
	return all
}

// podOf is the pod in a BEAM node name: <app>@<pod>.<service>...
func podOf(node string) string {
	_, host, _ := strings.Cut(node, "@")
	pod, _, _ := strings.Cut(host, ".")
	return cmp.Or(pod, node)
}

// stashes is status.stashes.
func stashes(home store.Home, nodes []v1alpha1.NodeStatus) int64 {
	var sum, most int64
	for _, node := range nodes {
		sum += node.Stashes
		most = max(most, node.Stashes)
	}
	if home == store.EveryPod {
		return most
	}
	return sum
}

// setAgentConditions sets the conditions that only the agents can tell.
func setAgentConditions(conditions *[]metav1.Condition, c *v1alpha1.LiveStashCluster, seen observation) {
	answers := seen.answers
	told := []metav1.Condition{clustered(c, answers), storeReady(c, seen), agentHealthy(answers)}
	limit := store.For(c).LargestStash()
	if limit > 0 {
		told = append(told, stashesFit(answers, limit))
	} else {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStashesFit)
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
		condition.ObservedGeneration = c.Generation
		meta.SetStatusCondition(conditions, condition)
	}
}

// clustered: every BEAM node sees every other.
func clustered(c *v1alpha1.LiveStashCluster, answers []answer) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionClustered, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNodesMissing}
	desired := int(c.DesiredReplicas())
	var gaps []string
	connected := 0
	for _, a := range answers {
		switch {
		case a.err != nil:
			gaps = append(gaps, a.pod.Name+" does not tell")
		case a.status.Peers.Missing > 0:
			gaps = append(gaps, a.pod.Name+" misses "+missing(a.status.Peers))
		case a.status.Peers.Connected < desired-1:
			gaps = append(gaps, fmt.Sprintf("%s sees %d of %d peers", a.pod.Name, a.status.Peers.Connected, desired-1))
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

// missing names the pods that one does not see; the agent names only the first of many.
func missing(peers agentclient.Peers) string {
	pods := make([]string, 0, len(peers.MissingNodes))
	for _, node := range peers.MissingNodes {
		pods = append(pods, podOf(node))
	}
	names := strings.Join(pods, ", ")
	if more := peers.Missing - len(pods); more > 0 {
		return fmt.Sprintf("%s and %d more", names, more)
	}
	return names
}

// agentHealthy: the agent answers on every pod that serves. One that is starting or stopping may be silent.
func agentHealthy(answers []answer) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionAgentHealthy, Status: metav1.ConditionFalse}
	var silent []string
	for _, a := range answers {
		if a.err != nil && podReady(a.pod) && a.pod.DeletionTimestamp.IsZero() {
			silent = append(silent, fmt.Sprintf("%s: %v", a.pod.Name, a.err))
			condition.Reason = cmp.Or(condition.Reason, agentReason(a.err))
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

// stashesFit: no stash seen is too large for a browser to bring it back.
func stashesFit(answers []answer, limit int64) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionStashesFit, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStashesSmall,
		Message: fmt.Sprintf("no stash seen has more than %d bytes", limit),
	}
	for _, a := range answers {
		if a.err == nil && a.status.LargestStashBytes > limit {
			condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonStashTooLarge
			condition.Message = fmt.Sprintf("%s made a stash of %d bytes: a browser sends it in the URL of its WebSocket, and servers refuse "+
				"request lines of 10,000 bytes, so that user cannot reconnect at all: stash fewer assigns, or use another adapter",
				a.pod.Name, a.status.LargestStashBytes)
			break
		}
	}
	return condition
}

// few are the first of some sentences: a message must stay readable, and below 32 KiB.
func few(sentences []string) string {
	const most = 5
	if len(sentences) <= most {
		return strings.Join(sentences, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(sentences[:most], "; "), len(sentences)-most)
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// resync is when the agents are asked again. Zero: never, because there are none.
func resync(c *v1alpha1.LiveStashCluster, answers []answer) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	for _, kind := range []string{v1alpha1.ConditionClustered, v1alpha1.ConditionStoreReady, v1alpha1.ConditionAgentHealthy} {
		if !meta.IsStatusConditionTrue(c.Status.Conditions, kind) {
			return changingResync
		}
	}
	if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionProgressing) {
		return changingResync
	}
	return restingResync
}

// drainReport is the last word of a pod that was told to stop, or nothing.
func drainReport(pod *corev1.Pod) (agentclient.Report, bool) {
	for _, container := range pod.Status.ContainerStatuses {
		if container.Name == fleet.AppContainer && container.State.Terminated != nil {
			return agentclient.ParseReport([]byte(container.State.Terminated.Message))
		}
	}
	return agentclient.Report{}, false
}
