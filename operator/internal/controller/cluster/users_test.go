package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/observe"
)

// busy is what the agent of a pod says that has so many connections, and is well.
func busy(size int, pod string, sockets int64) agentclient.Status {
	status := wellAmong(size, pod)
	status.Sockets = &sockets
	return status
}

// leads waits until the client Service leads to the pods of that revision alone. Empty: to all.
func leads(t *testing.T, cluster *v1alpha1.LiveStashCluster, revision string) {
	t.Helper()
	suite.Eventually(t, func() error {
		service := await(t, cluster.Namespace, cluster.Name, &corev1.Service{})
		if got := service.Spec.Selector[appsv1.StatefulSetRevisionLabel]; got != revision {
			return fmt.Errorf("the Service leads to the pods of revision %q, want %q", got, revision)
		}
		return nil
	})
}

// begins waits until the StatefulSet has so many ordinals from that one on.
func begins(t *testing.T, cluster *v1alpha1.LiveStashCluster, start, replicas int32) {
	t.Helper()
	suite.Eventually(t, func() error {
		set := fleetSet(t, cluster)
		got := ptr.Deref(set.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
		if got != start || *set.Spec.Replicas != replicas {
			return fmt.Errorf("the StatefulSet has %d ordinals from %d on, want %d from %d on", *set.Spec.Replicas, got, replicas, start)
		}
		return nil
	})
}

// Users are sent to new pods as soon as there is one, for two requests in a rollout, unless these have too many already.
func TestUsersGoToNewPods(t *testing.T) {
	cluster, pods := fleetAtRest(t, 3, nil)
	for _, pod := range pods {
		serves(t, pod, busy(3, pod.Name, 100)) // at another address, so that it is asked at once
	}
	services := func() int {
		return len(written.of("PATCH /api/v1/namespaces/" + cluster.Namespace + "/services/shop"))
	}
	before := services()
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 3)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-2")
	leads(t, cluster, "")

	third := replaced(t, cluster, pods[2])
	serves(t, third, busy(3, "shop-2", 0))
	acted(t, cluster, "a", "b")
	leads(t, cluster, "b")
	stops(t, cluster, "shop-1")
	second := replaced(t, cluster, pods[1])
	acted(t, cluster, "a", "b")
	looks(t, cluster, "while shop-1 starts")
	if n := services() - before; n != 1 {
		t.Errorf("the Service was written %d times to lead to new pods, want once", n)
	}

	agents.say(third.Status.PodIP, busy(3, "shop-2", 250))
	leads(t, cluster, "")
	eventSays(t, cluster.Namespace, v1alpha1.ReasonUsersSpread, "shop-2 has 250 connections, 2.1 times its share, and spec.rollout.maxLoadFactor is 2")
	agents.say(third.Status.PodIP, busy(3, "shop-2", 90))
	leads(t, cluster, "b")

	serves(t, second, busy(3, "shop-1", 100))
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-0")
	leads(t, cluster, "b")
	first := replaced(t, cluster, pods[0])
	serves(t, first, busy(3, "shop-0", 0))
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 3)
	leads(t, cluster, "")
	if n := services() - before; n != 4 {
		t.Errorf("the Service was written %d times, want 4", n)
	}
}

// Whoever connects finds a pod, also when the only new one goes while the Service leads to new ones alone.
func TestUsersAreNeverLedToNobody(t *testing.T) {
	unready := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		suite.Must(t, get(t, pod))
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		suite.Must(t, api.Status().Update(t.Context(), pod))
	}
	cases := map[string]func(*testing.T, *v1alpha1.LiveStashCluster, *corev1.Pod){
		"it is evicted": func(t *testing.T, _ *v1alpha1.LiveStashCluster, fresh *corev1.Pod) {
			t.Helper()
			suite.Must(t, api.Delete(t.Context(), fresh))
		},
		"it crashes before the StatefulSet controller has acted": func(t *testing.T, cluster *v1alpha1.LiveStashCluster, fresh *corev1.Pod) {
			t.Helper()
			newImage(t, cluster, "ghcr.io/acme/shop:3")
			unready(t, fresh)
		},
		"it crashes while nothing is to be changed": func(t *testing.T, cluster *v1alpha1.LiveStashCluster, fresh *corev1.Pod) {
			t.Helper()
			changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
			condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonPaused)
			leads(t, cluster, "b")
			unready(t, fresh)
		},
		"it crashes when a LiveStashCluster that was made again has done nothing yet": func(t *testing.T, cluster *v1alpha1.LiveStashCluster, fresh *corev1.Pod) {
			t.Helper()
			orphan(t, cluster, children(cluster.Namespace))
			anew := newCluster(t, cluster.Namespace, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
			condition(t, anew, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonPaused)
			leads(t, anew, "b")
			unready(t, fresh)
		},
	}
	for name, event := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, pods := fleetAtRest(t, 2, nil)
			for _, pod := range pods {
				serves(t, pod, busy(2, pod.Name, 100))
			}
			newImage(t, cluster, "ghcr.io/acme/shop:2")
			acted(t, cluster, "a", "b")
			hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
			acted(t, cluster, "a", "b")
			stops(t, cluster, "shop-1")
			fresh := replaced(t, cluster, pods[1])
			servesSince(t, fresh, busy(2, "shop-1", 0), time.Now()) // no pod goes for a while
			acted(t, cluster, "a", "b")
			leads(t, cluster, "b")
			event(t, cluster, fresh)
			leads(t, cluster, "")
		})
	}
}

// An additional pod that stays comes above and below in turn, and one of the old goes for it without being replaced.
func TestAdditionalPodStays(t *testing.T) {
	cluster, pods := fleetAtRest(t, 1, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Surge = v1alpha1.SurgeStays })
	old := pods[0]
	serves(t, old, busy(1, old.Name, 200))
	// The pod of an ordinal takes over from that of another, and then the fleet has that ordinal alone.
	for _, step := range []struct {
		ordinal      int
		from, to     string
		image        string
		start, after int32
	}{{1, "a", "b", "ghcr.io/acme/shop:2", 0, 1}, {0, "b", "c", "ghcr.io/acme/shop:3", 0, 0}} {
		newImage(t, cluster, step.image)
		acted(t, cluster, step.from, step.to)
		begins(t, cluster, step.start, 2)
		acted(t, cluster, step.from, step.to)
		fresh := fleetPod(t, cluster, step.ordinal, step.to)
		serves(t, fresh, busy(2, fresh.Name, 0))
		agents.say(old.Status.PodIP, busy(2, old.Name, 200))
		acted(t, cluster, step.from, step.to)
		leads(t, cluster, step.to)
		begins(t, cluster, step.after, 1)
		if stopped := terminating(t, cluster); len(stopped) > 0 {
			t.Errorf("the operator deleted %v, which the StatefulSet controller takes away", stopped)
		}
		acted(t, cluster, step.from, step.to)
		suite.Must(t, api.Delete(t.Context(), old))
		looks(t, cluster, "while the old pod stops")
		hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 1)
		gone(t, old, "")
		agents.say(fresh.Status.PodIP, busy(1, fresh.Name, 200))
		acted(t, cluster, step.from, step.to)
		hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 1)
		leads(t, cluster, "")
		acted(t, cluster, step.to, step.to)
		condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
		old = fresh
	}
}

func stopping(m *member) { m.DeletionTimestamp = ptr.To(metav1.NewTime(said)) }

func TestCrowded(t *testing.T) {
	cases := map[string]struct {
		factor   string
		sockets  []int64
		revision string
		change   func([]member)
		waited   map[string]time.Duration
		says     string
	}{
		"fresh":                     {sockets: []int64{100, 100, 0}},
		"as many as it may":         {sockets: []int64{50, 50, 200}, revision: "b"},
		"too many":                  {sockets: []int64{49, 50, 201}, revision: "b", says: "shop-2 has 201 connections, 2.0 times its share, and spec.rollout.maxLoadFactor is 2"},
		"not well below":            {sockets: []int64{70, 75, 155}, says: "1.6 times its share"},
		"well below":                {sockets: []int64{75, 75, 150}},
		"few":                       {sockets: []int64{0, 0, 49}},
		"an old one has too many":   {sockets: []int64{0, 300, 0}, revision: "b"},
		"more are allowed":          {factor: "3", sockets: []int64{0, 50, 250}, revision: "b"},
		"none are allowed":          {factor: "1.0", sockets: []int64{100, 100, 0}, says: "maxLoadFactor is 1"},
		"no factor that can be one": {factor: "many", sockets: []int64{100, 100, 0}},
		"an agent of before": {
			sockets: []int64{100, 100, 0}, change: func(m []member) { m[0].answer.Status.Sockets = nil }, says: "shop-0 does not tell how many connections it has",
		},
		"no agent": {
			sockets: []int64{100, 100, 0}, change: func(m []member) {
				for i := range m {
					m[i].agentPort, m[i].answer = 0, observe.Answer{}
				}
			}, says: "shop-0 does not tell how many connections it has",
		},
		"silence":                  {sockets: []int64{100, 100, 0}, change: func(m []member) { m[2].answer.Err = errors.New("refused") }, says: "shop-2 does not tell"},
		"too many while one stops": {sockets: []int64{0, 0, 300}, revision: "b", change: func(m []member) { stopping(&m[0]) }},
		"one stops":                {sockets: []int64{100, 100, 0}, change: func(m []member) { stopping(&m[1]) }, says: "shop-1 is stopping"},
		"one is lost":              {sockets: []int64{100, 100, 0}, change: func(m []member) { stopping(&m[1]) }, waited: map[string]time.Duration{"shop-1 stops": 2 * goneAfter}},
		"one that starts": {sockets: []int64{100, 0, 100}, revision: "b", change: func(m []member) {
			m[1].Status.Conditions, m[1].answer.Status.Sockets = nil, nil
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Rollout.MaxLoadFactor = c.factor
			seen := fleetOf(3, func(members []member) {
				for i := range members {
					members[i].Labels = map[string]string{appsv1.StatefulSetRevisionLabel: []string{"a", "a", "b"}[i]}
					members[i].answer.Status.Sockets = &c.sockets[i]
				}
				if c.change != nil {
					c.change(members)
				}
			})
			seen.revision, seen.waited = c.revision, c.waited
			got := seen.crowded(cluster, 3, "b")
			if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Errorf("got %q, want %q", got, c.says)
			}
		})
	}
}

// Where there is no room for the additional pod, by a quota or on the nodes, the rollout goes on without it, and nobody is told of a fault.
func TestRolloutWithoutRoom(t *testing.T) {
	roomless := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient memory.",
		}}
		suite.Must(t, api.Status().Update(t.Context(), pod))
	}
	for name, finds := range map[string]func(*testing.T, *v1alpha1.LiveStashCluster){
		"on the nodes": func(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
			t.Helper()
			roomless(t, fleetPodOn(t, cluster, 2, "b", ""))
		},
		"in a quota": func(*testing.T, *v1alpha1.LiveStashCluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, pods := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Surge = v1alpha1.SurgeStays })
			for _, pod := range pods {
				serves(t, pod, busy(2, pod.Name, 100))
			}
			newImage(t, cluster, "ghcr.io/acme/shop:2")
			acted(t, cluster, "a", "b")
			operatorTime.Ahead.Add(-int64(tellAfter)) // a pod that is missed is missed for long
			begins(t, cluster, 0, 3)
			finds(t, cluster)
			looks(t, cluster, "while there is no room")
			operatorTime.Ahead.Add(int64(tellAfter))
			acted(t, cluster, "a", "b")
			stops(t, cluster, "shop-1")
			conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonRollingOut, "there is no room for an additional pod, and it goes on without")
			condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonNotStalled)
		})
	}
}
