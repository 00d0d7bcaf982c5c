package cluster

import (
	stdcmp "cmp"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

// saidByAgents is what the agents say, by the pods' addresses. Others do not answer.
type saidByAgents struct {
	mutex    sync.Mutex
	statuses map[string]agentclient.Status
	// ports are those at which they were last asked.
	ports map[string]int32
}

func (s *saidByAgents) Status(_ context.Context, podIP string, port int32) (agentclient.Status, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ports == nil {
		s.ports = map[string]int32{}
	}
	s.ports[podIP] = port
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

// askedAt waits until the agent of a pod is asked at that port.
func (s *saidByAgents) askedAt(t *testing.T, pod *corev1.Pod, port int32) {
	t.Helper()
	suite.Eventually(t, func() error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if got := s.ports[pod.Status.PodIP]; got != port {
			return fmt.Errorf("the agent of %s is asked at port %d, want %d", pod.Name, got, port)
		}
		return nil
	})
}

func nodeName(pod string) string { return "shop@" + pod + ".shop-nodes.web.svc.cluster.local" }

// said is when the agents of fleetOf spoke.
var said = time.Unix(1000, 0)

// fleetOf are as many pods that can keep users, of which each sees all others, changed by change.
func fleetOf(size int, change func([]member)) observation {
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(size))}}
	var members []member
	for i := range size {
		name := fmt.Sprintf("shop-%d", i)
		m := member{Pod: &corev1.Pod{}, ordinal: int32(i), agentPort: 9568, updated: true}
		m.Name, m.UID = name, types.UID(name)
		m.Status.PodIP = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
		m.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		m.answer.At, m.answer.Status = said, wellAmong(size, name)
		members = append(members, m)
	}
	if change != nil {
		change(members)
	}
	return newObservation(set, members, said)
}

// running is the status of an application that started then.
func running(since time.Time) []corev1.ContainerStatus { return runningIn(fleet.AppContainer, since) }

func runningIn(container string, since time.Time) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{
		Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}},
	}}
}

// wellAmong is what an agent says when all is well in a fleet of that size.
func wellAmong(size int, pod string) agentclient.Status {
	return agentclient.Status{
		Version: "0.1.0", Node: nodeName(pod), Ready: true, Store: agentclient.Store{Ready: true},
		Peers: agentclient.Peers{Expected: size - 1, Connected: size - 1},
	}
}

func TestAgentConditions(t *testing.T) {
	refused := &agentclient.UnreachableError{Port: 9568, Cause: errors.New("refused")}
	cases := map[string]struct {
		replicas int32
		change   func(*v1alpha1.LiveStashClusterSpec)
		seen     observation
		// want is a condition's type to its status and reason, and says what its message must have.
		want map[string]string
		says map[string]string
	}{
		"all is well": {replicas: 3, seen: fleetOf(3, nil), want: map[string]string{
			"Clustered": "True AllConnected", "StoreReady": "True StoreAnswers", "AgentHealthy": "True AllAnswer", "StashesFit": "",
		}},
		"one misses another": {
			replicas: 3,
			seen: fleetOf(3, func(m []member) {
				m[0].answer.Status.Peers = agentclient.Peers{Connected: 1, Missing: 1, MissingNodes: []string{nodeName("shop-2")}}
			}),
			want: map[string]string{"Clustered": "False NodesMissing", "StoreReady": "True StoreAnswers", "AgentHealthy": "True AllAnswer"},
			says: map[string]string{"Clustered": "shop-0 misses shop-2"},
		},
		"one misses more than it names": {
			replicas: 20,
			seen: fleetOf(20, func(m []member) {
				m[0].answer.Status.Peers = agentclient.Peers{Connected: 5, Missing: 14, MissingNodes: []string{nodeName("shop-2"), nodeName("shop-3")}}
			}),
			want: map[string]string{"Clustered": "False NodesMissing"},
			says: map[string]string{"Clustered": "shop-0 misses shop-2; shop-3; 12 more"},
		},
		"DNS tells too few": {
			replicas: 3,
			seen:     fleetOf(3, func(m []member) { m[1].answer.Status.Peers = agentclient.Peers{} }),
			want:     map[string]string{"Clustered": "False NodesMissing"},
			says:     map[string]string{"Clustered": "shop-1 sees 0 of 2 peers"},
		},
		"a pod is away": {
			replicas: 3, seen: fleetOf(2, func(m []member) {
				m[0].answer.Status.Peers.Connected = 2
				m[1].answer.Status.Peers.Connected = 2
			}),
			want: map[string]string{"Clustered": "False NodesMissing", "AgentHealthy": "True AllAnswer"},
			says: map[string]string{"Clustered": "2 of 3 nodes are up"},
		},
		"DNS still names one that is gone": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[0].answer.Status.Peers = agentclient.Peers{Connected: 1, Missing: 1, MissingNodes: []string{nodeName("shop-2")}}
			}),
			want: map[string]string{"Clustered": "True AllConnected"},
		},
		"one has not told yet": {
			replicas: 2,
			seen:     fleetOf(2, func(m []member) { m[1].answer = observe.Answer{} }),
			want:     map[string]string{"Clustered": "False NodesMissing", "StoreReady": "True StoreAnswers", "AgentHealthy": "True AllAnswer"},
			says:     map[string]string{"Clustered": "1 of 2 nodes are up"},
		},
		"an agent gave up": {
			replicas: 2,
			seen:     fleetOf(2, func(m []member) { m[1].answer.Err = refused }),
			want:     map[string]string{"Clustered": "False NodesMissing", "AgentHealthy": "False AgentUnreachable"},
			says:     map[string]string{"AgentHealthy": "shop-1: The agent on port 9568 cannot be reached", "Clustered": "shop-1 does not tell"},
		},
		"another server on its port": {
			replicas: 2,
			seen:     fleetOf(2, func(m []member) { m[0].answer.Err = &agentclient.ForeignServerError{Port: 9568} }),
			want:     map[string]string{"AgentHealthy": "False AgentPortTaken"},
			says:     map[string]string{"AgentHealthy": "spec.agent.port"},
		},
		"a pod that starts is silent": {
			replicas: 2,
			seen:     fleetOf(2, func(m []member) { m[1].answer.Err, m[1].Status.Conditions = refused, nil }),
			want:     map[string]string{"AgentHealthy": "True AllAnswer"},
		},
		"a table is not loaded": {
			replicas: 2,
			change:   func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterMnesia },
			seen: fleetOf(2, func(m []member) {
				m[1].answer.Status.Store = agentclient.Store{Reason: "The table is not loaded."}
			}),
			want: map[string]string{"StoreReady": "False StoreNotReady", "Clustered": "True AllConnected"},
			says: map[string]string{"StoreReady": "shop-1: The table is not loaded."},
		},
		"a pod has just started and has not asked its store": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].Status.ContainerStatuses = running(said.Add(-5 * time.Second))
				m[1].Status.Conditions, m[1].answer.Status.Store = nil, agentclient.Store{Reason: "Redis has not been asked yet."}
			}),
			want: map[string]string{"StoreReady": "True StoreAnswers"},
		},
		"a pod has started and does not get its store": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].Status.ContainerStatuses = running(said.Add(-time.Minute))
				m[1].Status.Conditions, m[1].answer.Status.Store = nil, agentclient.Store{Reason: "Redis refuses the password."}
			}),
			want: map[string]string{"StoreReady": "False StoreNotReady"},
			says: map[string]string{"StoreReady": "shop-1: Redis refuses the password."},
		},
		"a pod waits for its store since a moment ago": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].Status.InitContainerStatuses = runningIn(fleet.InitContainer, said.Add(-time.Second))
				m[1].Status.ContainerStatuses = waiting("PodInitializing").ContainerStatuses
				m[1].Status.Conditions, m[1].answer.Status.Store = nil, agentclient.Store{Reason: "Redis has not answered yet."}
			}),
			want: map[string]string{"StoreReady": "True StoreAnswers"},
		},
		"a pod answers before the kubelet says that it runs": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].Status.ContainerStatuses = waiting("PodInitializing").ContainerStatuses
				m[1].Status.Conditions, m[1].answer.Status.Store = nil, agentclient.Store{Reason: "Redis has not been asked yet."}
			}),
			want: map[string]string{"StoreReady": "True StoreAnswers"},
		},
		"a pod waits for its store": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].Status.InitContainerStatuses = runningIn(fleet.InitContainer, said.Add(-time.Minute))
				m[1].Status.ContainerStatuses = waiting("PodInitializing").ContainerStatuses
				m[1].Status.Conditions, m[1].answer.Status.Store = nil, agentclient.Store{Reason: "Redis refuses the password."}
			}),
			want: map[string]string{"StoreReady": "False StoreNotReady"},
			says: map[string]string{"StoreReady": "shop-1: Redis refuses the password."},
		},
		"all pods have just started": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				for i := range m {
					m[i].Status.ContainerStatuses = running(said)
					m[i].Status.Conditions, m[i].answer.Status.Store = nil, agentclient.Store{Reason: "Redis has not been asked yet."}
				}
			}),
			want: map[string]string{"StoreReady": "False StoreNotReady"},
			says: map[string]string{"StoreReady": "shop-0: Redis has not been asked yet."},
		},
		"a pod that stops has lost its table": {
			replicas: 2,
			seen: fleetOf(2, func(m []member) {
				m[1].DeletionTimestamp = ptr.To(metav1.NewTime(said))
				m[1].answer.Status.Store = agentclient.Store{Reason: "The table is gone."}
			}),
			want: map[string]string{"StoreReady": "True StoreAnswers"},
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
			setAgentConditions(&conditions, cluster, &c.seen, nil)
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
	seen := fleetOf(3, func(m []member) { m[0].answer.Status.Stashes, m[1].answer.Status.Stashes = 10, 12 })
	for adapter, want := range map[v1alpha1.Adapter]int64{v1alpha1.AdapterETS: 22, v1alpha1.AdapterMnesia: 12} {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.Spec.Adapter = adapter
		if _, got := podStatuses(cluster, &seen); got != want {
			t.Errorf("%d stashes with %s, want %d", got, adapter, want)
		}
	}
}

func TestPace(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Replicas = ptr.To[int32](2)
	resting, rolling := rollout.Plan{Phase: rollout.Complete}, rollout.Plan{Phase: rollout.Rolling}
	waited := map[string]time.Duration{"shop-1": 0}
	stuck, long := rollout.Plan{Phase: rollout.Stuck}, map[string]time.Duration{"shop-1": soon}
	for name, c := range map[string]struct {
		p    pass
		want observe.Pace
		// kind is the adapter. Empty: ETS.
		kind v1alpha1.Adapter
	}{
		"at rest":                             {pass{plan: resting}, observe.Resting, ""},
		"a rollout":                           {pass{plan: rolling}, observe.Rolling, ""},
		"at rest, but one is away":            {pass{plan: resting, seen: observation{waited: waited}}, observe.Rolling, ""},
		"at rest, one has been away for long": {pass{plan: resting, seen: observation{waited: long}}, observe.Resting, ""},
		"a rollout that is stuck":             {pass{plan: stuck, seen: observation{waited: long}}, observe.Resting, ""},
		"stashes in browsers":                 {pass{plan: resting}, observe.Watching, v1alpha1.AdapterBrowserMemory},
		"a rollout of those":                  {pass{plan: rolling}, observe.Rolling, v1alpha1.AdapterBrowserMemory},
	} {
		cluster.Spec.Adapter = stdcmp.Or(c.kind, v1alpha1.AdapterETS)
		c.p.cluster = cluster
		if got := c.p.pace(); got != c.want {
			t.Errorf("%s: asked at pace %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatAgentsSayReachesTheStatus(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	pods := []*corev1.Pod{fleetPod(t, cluster, 0, "a"), fleetPod(t, cluster, 1, "b")}
	for i, pod := range pods {
		status := wellAmong(2, pod.Name)
		status.Stashes = int64(10 + i)
		serves(t, pod, status)
	}
	acted(t, cluster, "a", "b")
	condition(t, cluster, v1alpha1.ConditionClustered, metav1.ConditionTrue, v1alpha1.ReasonAllConnected)
	want := []v1alpha1.PodStatus{
		{Name: "shop-0", Ready: true, Stashes: 10},
		{Name: "shop-1", Ready: true, Stashes: 11, Updated: true},
	}
	suite.Eventually(t, func() error {
		err := get(t, cluster)
		if diff := cmp.Diff(want, cluster.Status.Pods); diff != "" || cluster.Status.Stashes != 21 {
			return fmt.Errorf("%d stashes, pods (-want +got):\n%s", cluster.Status.Stashes, diff)
		}
		return err
	})

	// The last word of a pod becomes an event.
	gone(t, pods[1], `{"livestash":1,"sessionsBefore":11,"socketsClosed":9,"handedOff":3,"notHandedOff":2,"reason":"No peer took them."}`)
	eventSays(t, cluster.Namespace, v1alpha1.ReasonPodDrained, "shop-1 had 11 stashes: 9 sockets closed, 3 stashes handed over, 2 could not be: No peer took them.")

	// Who stops a fleet is told what that costs.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashesLost, "spec.replicas is 0: the ")
	suite.Must(t, api.Delete(t.Context(), cluster))
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashesLost, "the LiveStashCluster was deleted: the 10 stashes")
}

// TestAFleetsTroubleIsTold: by events when it first serves, when nodes miss each other or the store is away, and when that is over.
func TestAFleetsTroubleIsTold(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	pods := []*corev1.Pod{fleetPod(t, cluster, 0, "a"), fleetPod(t, cluster, 1, "a")}
	for _, pod := range pods {
		serves(t, pod, wellAmong(2, pod.Name))
	}
	acted(t, cluster, "a", "a")
	eventSays(t, cluster.Namespace, v1alpha1.ReasonAllReady, "the fleet serves: 2 of 2 pods ready")
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete)
	condition(t, cluster, v1alpha1.ConditionClustered, metav1.ConditionTrue, v1alpha1.ReasonAllConnected)
	condition(t, cluster, v1alpha1.ConditionStoreReady, metav1.ConditionTrue, v1alpha1.ReasonStoreAnswers)

	says := func(change func(*agentclient.Status)) {
		status := wellAmong(2, pods[0].Name)
		change(&status)
		agents.say(pods[0].Status.PodIP, status)
	}
	says(func(status *agentclient.Status) {
		status.Peers = agentclient.Peers{Expected: 1, Missing: 1, MissingNodes: []string{nodeName("shop-1")}}
		status.Store = agentclient.Store{Reason: "The table is gone."}
	})
	eventSays(t, cluster.Namespace, v1alpha1.ReasonNodesMissing, "shop-0 misses")
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStoreNotReady, "shop-0: The table is gone.")
	says(func(*agentclient.Status) {})
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStoreAnswers, "the store of adapter ETS answers")
	condition(t, cluster, v1alpha1.ConditionClustered, metav1.ConditionTrue, v1alpha1.ReasonAllConnected)

	suite.Must(t, get(t, cluster))
	if cluster.Status.PodsReady != "2/2" {
		t.Errorf("status.podsReady is %q", cluster.Status.PodsReady)
	}
}

// eventSays waits longer than it takes until the agents of a fleet at rest are asked again.
func eventSays(t *testing.T, namespace, reason, says string) {
	t.Helper()
	suite.EventuallyWithin(t, 2*time.Minute, func() error {
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
	pod := fleetPod(t, cluster, 0, "a")
	hasAddress(t, pod, agentclient.Status{Version: "0.1.0", Store: agentclient.Store{Reason: "Redis refuses connections."}})
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "shop-0: Redis refuses connections.")
}
