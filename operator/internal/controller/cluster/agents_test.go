package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// saidByAgents is what the agents say, by the pods' addresses. Others do not answer.
type saidByAgents struct {
	mutex    sync.Mutex
	statuses map[string]agentclient.Status
}

func (s *saidByAgents) Status(_ context.Context, podIP string, port int32) (agentclient.Status, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	status, found := s.statuses[podIP]
	if !found {
		return status, &agentclient.UnreachableError{Port: port, Cause: errors.New("nobody is there")}
	}
	return status, nil
}

func (s *saidByAgents) say(podIP string, status agentclient.Status) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.statuses == nil {
		s.statuses = map[string]agentclient.Status{}
	}
	s.statuses[podIP] = status
}

func nodeName(pod string) string { return "shop@" + pod + ".shop-nodes.web.svc.cluster.local" }

// fleetOf are answers of as many pods, of which each sees all others, changed by change.
func fleetOf(size int, change func([]answer)) []answer {
	answers := make([]answer, size)
	for i := range answers {
		name := fmt.Sprintf("shop-%d", i)
		answers[i].pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}
		answers[i].status = agentclient.Status{Version: "0.1.0", Node: nodeName(name), Ready: true, Store: agentclient.Store{Ready: true}}
		answers[i].status.Peers = agentclient.Peers{Expected: size - 1, Connected: size - 1}
	}
	if change != nil {
		change(answers)
	}
	return answers
}

func TestAgentConditions(t *testing.T) {
	refused := &agentclient.UnreachableError{Port: 9568, Cause: errors.New("refused")}
	cases := map[string]struct {
		replicas int32
		change   func(*v1alpha1.LiveStashClusterSpec)
		answers  []answer
		// want is a condition's type to its status and reason, and says what its message must have.
		want map[string]string
		says map[string]string
	}{
		"all is well": {replicas: 3, answers: fleetOf(3, nil), want: map[string]string{
			"Clustered": "True AllConnected", "StoreReady": "True StoreAnswers", "AgentHealthy": "True AllAnswer", "StashesFit": "",
		}},
		"one misses another": {
			replicas: 3,
			answers: fleetOf(3, func(a []answer) {
				a[0].status.Peers = agentclient.Peers{Connected: 1, Missing: 1, MissingNodes: []string{nodeName("shop-2")}}
			}),
			want: map[string]string{"Clustered": "False NodesMissing", "StoreReady": "True StoreAnswers", "AgentHealthy": "True AllAnswer"},
			says: map[string]string{"Clustered": "shop-0 misses shop-2"},
		},
		"one misses more than it names": {
			replicas: 20,
			answers: fleetOf(20, func(a []answer) {
				a[0].status.Peers = agentclient.Peers{Connected: 5, Missing: 14, MissingNodes: []string{nodeName("shop-2"), nodeName("shop-3")}}
			}),
			want: map[string]string{"Clustered": "False NodesMissing"},
			says: map[string]string{"Clustered": "shop-0 misses shop-2, shop-3 and 12 more"},
		},
		"DNS tells too few": {
			replicas: 3,
			answers:  fleetOf(3, func(a []answer) { a[1].status.Peers = agentclient.Peers{} }),
			want:     map[string]string{"Clustered": "False NodesMissing"},
			says:     map[string]string{"Clustered": "shop-1 sees 0 of 2 peers"},
		},
		"a pod is away": {
			replicas: 3, answers: fleetOf(2, func(a []answer) {
				a[0].status.Peers.Connected = 2
				a[1].status.Peers.Connected = 2
			}),
			want: map[string]string{"Clustered": "False NodesMissing", "AgentHealthy": "True AllAnswer"},
			says: map[string]string{"Clustered": "2 of 3 nodes are up"},
		},
		"an agent gave up": {
			replicas: 2,
			answers:  fleetOf(2, func(a []answer) { a[1].err = refused }),
			want:     map[string]string{"Clustered": "False NodesMissing", "AgentHealthy": "False AgentUnreachable"},
			says:     map[string]string{"AgentHealthy": "shop-1: The agent on port 9568 cannot be reached", "Clustered": "shop-1 does not tell"},
		},
		"another server on its port": {
			replicas: 2,
			answers:  fleetOf(2, func(a []answer) { a[0].err = &agentclient.ForeignServerError{Port: 9568} }),
			want:     map[string]string{"AgentHealthy": "False AgentPortTaken"},
			says:     map[string]string{"AgentHealthy": "spec.agent.port"},
		},
		"a pod that starts is silent": {
			replicas: 2,
			answers:  fleetOf(2, func(a []answer) { a[1].err, a[1].pod.Status.Conditions = refused, nil }),
			want:     map[string]string{"AgentHealthy": "True AllAnswer"},
		},
		"a table is not loaded": {
			replicas: 2,
			change:   func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterMnesia },
			answers: fleetOf(2, func(a []answer) {
				a[1].status.Store = agentclient.Store{Reason: "The table is not loaded."}
			}),
			want: map[string]string{"StoreReady": "False StoreNotReady", "Clustered": "True AllConnected"},
			says: map[string]string{"StoreReady": "shop-1: The table is not loaded."},
		},
		"a stash too large for a browser": {
			replicas: 2,
			change:   func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory },
			answers:  fleetOf(2, func(a []answer) { a[1].status.LargestStashBytes = 12_345 }),
			want:     map[string]string{"StashesFit": "False StashTooLarge"},
			says:     map[string]string{"StashesFit": "shop-1 made a stash of 12345 bytes"},
		},
		"stashes that fit": {
			replicas: 2,
			change:   func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory },
			answers:  fleetOf(2, func(a []answer) { a[1].status.LargestStashBytes = 900 }),
			want:     map[string]string{"StashesFit": "True StashesSmall"},
		},
		"no agent": {
			replicas: 2, change: func(spec *v1alpha1.LiveStashClusterSpec) { spec.Agent.Enabled = ptr.To(false) },
			want: map[string]string{"Clustered": "Unknown AgentDisabled", "StoreReady": "Unknown AgentDisabled", "AgentHealthy": "Unknown AgentDisabled"},
		},
		"no pods wanted": {
			replicas: 0,
			want:     map[string]string{"Clustered": "Unknown ScaledToZero", "StoreReady": "Unknown ScaledToZero", "AgentHealthy": "Unknown ScaledToZero"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 3}}
			cluster.Spec = v1alpha1.LiveStashClusterSpec{Replicas: ptr.To(c.replicas), Adapter: v1alpha1.AdapterETS}
			if c.change != nil {
				c.change(&cluster.Spec)
			}
			var conditions []metav1.Condition
			setAgentConditions(&conditions, cluster, observation{answers: c.answers})
			for kind, want := range c.want {
				got, message := "", ""
				if found := meta.FindStatusCondition(conditions, kind); found != nil {
					got, message = string(found.Status)+" "+found.Reason, found.Message
				}
				if got != want || !strings.Contains(message, c.says[kind]) {
					t.Errorf("%s is %q (%s), want %q that says %q", kind, got, message, want, c.says[kind])
				}
			}
		})
	}
}

func TestStashesAreCountedOnce(t *testing.T) {
	nodes := []v1alpha1.NodeStatus{{Stashes: 10}, {Stashes: 12}, {Stashes: 0}}
	if got := stashes(store.OnePod, nodes); got != 22 {
		t.Errorf("stashes in one pod each: %d, want 22", got)
	}
	if got := stashes(store.EveryPod, nodes); got != 12 {
		t.Errorf("stashes in every pod: %d, want 12", got)
	}
}

func TestAgentsAreAskedSeldomWhenAllIsWell(t *testing.T) {
	settled := func(progressing metav1.ConditionStatus) *v1alpha1.LiveStashCluster {
		cluster := &v1alpha1.LiveStashCluster{}
		for _, kind := range []string{v1alpha1.ConditionClustered, v1alpha1.ConditionStoreReady, v1alpha1.ConditionAgentHealthy} {
			meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: progressing})
		return cluster
	}
	answers := fleetOf(2, nil)
	if got := resync(settled(metav1.ConditionFalse), answers); got != restingResync {
		t.Errorf("a fleet at rest is asked in %s", got)
	}
	if got := resync(settled(metav1.ConditionTrue), answers); got != changingResync {
		t.Errorf("a fleet in a rollout is asked in %s", got)
	}
	if got := resync(&v1alpha1.LiveStashCluster{}, answers); got != changingResync {
		t.Errorf("a fleet whose agents do not tell all is asked in %s", got)
	}
	if got := resync(settled(metav1.ConditionFalse), nil); got != 0 {
		t.Errorf("a fleet without agents is asked in %s", got)
	}
}

func TestLastRollout(t *testing.T) {
	start, end := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(1060, 0))
	at := func(current, update string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{CurrentRevision: current, UpdateRevision: update}}
	}
	said := []drained{{"shop-1", agentclient.Report{SessionsBefore: 10, HandedOff: 4, NotHandedOff: 1}}, {"shop-0", agentclient.Report{SessionsBefore: 5, HandedOff: 5}}}
	started := &v1alpha1.RolloutStatus{From: "a", To: "b", Started: start}
	finished := &v1alpha1.RolloutStatus{From: "a", To: "b", Started: start, Finished: &end}
	unseen := at("a", "b")
	unseen.Generation = 2

	cases := map[string]struct {
		last    *v1alpha1.RolloutStatus
		set     *appsv1.StatefulSet
		reports []drained
		now     metav1.Time
		want    *v1alpha1.RolloutStatus
	}{
		"never":                       {nil, at("a", "a"), nil, start, nil},
		"nothing there":               {nil, nil, said, start, nil},
		"it starts":                   {nil, at("a", "b"), nil, start, started},
		"pods speak":                  {started, at("a", "b"), said, end, &v1alpha1.RolloutStatus{From: "a", To: "b", Started: start, PodsReported: 2, SessionsBefore: 15, HandedOff: 9, NotHandedOff: 1}},
		"it ends with the last word":  {started, at("b", "b"), said[1:], end, &v1alpha1.RolloutStatus{From: "a", To: "b", Started: start, Finished: &end, PodsReported: 1, SessionsBefore: 5, HandedOff: 5}},
		"a pod stops afterwards":      {finished, at("b", "b"), said, end, finished},
		"the next one":                {finished, at("b", "c"), nil, end, &v1alpha1.RolloutStatus{From: "b", To: "c", Started: end}},
		"another one in the middle":   {started, at("a", "c"), nil, end, &v1alpha1.RolloutStatus{From: "a", To: "c", Started: end}},
		"the controller lags behind":  {finished, unseen, nil, end, finished},
		"words while it lags behind":  {started, unseen, said[1:], end, &v1alpha1.RolloutStatus{From: "a", To: "b", Started: start, PodsReported: 1, SessionsBefore: 5, HandedOff: 5}},
		"back to what was there once": {finished, at("b", "a"), nil, end, &v1alpha1.RolloutStatus{From: "b", To: "a", Started: end}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, lastRollout(c.last.DeepCopy(), c.set, c.reports, c.now.Time)); diff != "" {
				t.Errorf("lastRollout (-want +got):\n%s", diff)
			}
		})
	}
}

// newPod makes a pod of the fleet that runs, and says what its agent says.
func newPod(t *testing.T, cluster *v1alpha1.LiveStashCluster, name, address string, status agentclient.Status) *corev1.Pod {
	t.Helper()
	agents.say(address, status)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: render.Labels(cluster)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "x"}}},
	}
	suite.Must(t, api.Create(t.Context(), pod))
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	return pod
}

func TestWhatAgentsSayReachesTheStatus(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	pods := []*corev1.Pod{}
	for i, answer := range fleetOf(2, nil) {
		answer.status.Stashes, answer.status.StashBytes = int64(10+i), 1000
		pods = append(pods, newPod(t, cluster, answer.pod.Name, fmt.Sprintf("10.7.0.%d", i), answer.status))
	}
	condition(t, cluster, v1alpha1.ConditionClustered, metav1.ConditionTrue, v1alpha1.ReasonAllConnected)
	want := []v1alpha1.NodeStatus{
		{Pod: "shop-0", Ready: true, Stashes: 10, StashBytes: 1000, AgentVersion: "0.1.0"},
		{Pod: "shop-1", Ready: true, Stashes: 11, StashBytes: 1000, AgentVersion: "0.1.0"},
	}
	if diff := cmp.Diff(want, cluster.Status.Nodes); diff != "" || cluster.Status.Stashes != 21 {
		t.Errorf("%d stashes, nodes (-want +got):\n%s", cluster.Status.Stashes, diff)
	}

	// The last word of a pod becomes an event.
	pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: `{"livestash":1,"sessionsBefore":11,"socketsClosed":9,"handedOff":3,"notHandedOff":2,"reason":"No peer took them."}`,
	}}}}
	suite.Must(t, api.Status().Update(t.Context(), pods[1]))
	suite.Must(t, api.Delete(t.Context(), pods[1], client.GracePeriodSeconds(0)))
	eventSays(t, cluster.Namespace, v1alpha1.ReasonPodDrained, "shop-1 had 11 stashes: 9 sockets closed, 3 stashes handed over, 2 could not be: No peer took them.")

	// Who stops a fleet is told what that costs.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashesLost, "spec.replicas is 0: the ")
	suite.Must(t, api.Delete(t.Context(), cluster))
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashesLost, "the LiveStashCluster was deleted: the 10 stashes")
}

func eventSays(t *testing.T, namespace, reason, says string) {
	t.Helper()
	suite.Eventually(t, func() error {
		events := &eventsv1.EventList{}
		if err := api.List(t.Context(), events, client.InNamespace(namespace)); err != nil {
			return err
		}
		var notes []string
		for _, event := range events.Items {
			if event.Reason == reason && strings.Contains(event.Note, says) {
				return nil
			}
			notes = append(notes, event.Reason+": "+event.Note)
		}
		return fmt.Errorf("no event %s says %q; there are:\n%s", reason, says, strings.Join(notes, "\n"))
	})
}

// A pod that waits for its store is asked as soon as it has an address, though nothing else happens to it.
func TestAPodThatWaitsIsHeard(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	const address = "10.7.9.1"
	agents.say(address, agentclient.Status{Version: "0.1.0", Store: agentclient.Store{Reason: "Redis refuses connections."}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-0", Labels: render.Labels(cluster)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "x"}}},
	}
	suite.Must(t, api.Create(t.Context(), pod))
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "shop-0: Redis refuses connections.")
}
