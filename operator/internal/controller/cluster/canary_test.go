package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

// minutes is a canary of so many pods for five minutes, and what else a case wants.
func minutes(pods int32, changes ...func(*v1alpha1.CanarySpec)) *v1alpha1.CanarySpec {
	canary := &v1alpha1.CanarySpec{Pods: pods, Duration: &metav1.Duration{Duration: 5 * time.Minute}, MinRecovered: "0.9"}
	for _, change := range changes {
		change(canary)
	}
	return canary
}

// onTrial are three pods, of which the last has the new template and has been ready for a minute. Each change makes of it what the
// case needs.
func onTrial(changes ...func(*member)) observation {
	seen := fleetOf(3, func(members []member) {
		for i := range members {
			members[i].updated = i == 2
			members[i].Labels = map[string]string{appsv1.StatefulSetRevisionLabel: []string{"a", "a", "b"}[i]}
			members[i].answer.Status.Versions = []agentclient.PageVersion{{View: "Elixir.Shop.Cart", Version: "1"}}
		}
		fresh := &members[2]
		fresh.Status.Conditions[0].LastTransitionTime = metav1.NewTime(said.Add(-time.Minute))
		for _, change := range changes {
			change(fresh)
		}
	})
	seen.statefulSet.UID = "set"
	seen.statefulSet.Status.CurrentRevision, seen.statefulSet.Status.UpdateRevision = "a", "b"
	return seen
}

// One that is evicted in a trial comes back with the template that works, and is not taken for one that hangs in it: else the whole fleet would have the
// new template, and there would be none to go back to.
func TestAPodThatComesBackInATrial(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter, cluster.Spec.Replicas = v1alpha1.AdapterETS, ptr.To[int32](3)
	cluster.Spec.Rollout.Canary = minutes(1)
	seen := onTrial()
	seen.members[0].Status.Conditions = nil
	seen.members[0].Status.ContainerStatuses = waiting("PodInitializing").ContainerStatuses
	plan := rollout.Next(seen.rollout(cluster, 3))
	if plan.Mode != rollout.Hold || len(plan.Delete) != 0 {
		t.Errorf("the plan is %+v", plan)
	}

	// One that starts with a template that was found bad is not waited for.
	back := onTrial()
	back.statefulSet.Annotations = map[string]string{fleet.RejectedAnnotation: note(back.statefulSet, verdict{rejected: "bad"})}
	back.members[2].Status.Conditions = nil
	back.members[2].Status.ContainerStatuses = waiting("PodInitializing").ContainerStatuses
	if plan := rollout.Next(back.rollout(cluster, 3)); plan.Mode != rollout.Hold || len(plan.Delete) != 1 {
		t.Errorf("on the way back the plan is %+v", plan)
	}
}

var fleetKey = types.NamespacedName{Namespace: "shops", Name: "shop"}

func returned(recovered, lost int64) func(*member) {
	return func(m *member) {
		m.answer.Status.Returns = agentclient.Returns{Recovered: recovered, NotRecovered: lost}
	}
}

func crashed(restarts int32) func(*member) {
	return func(m *member) {
		m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: restarts}}
	}
}

func hasVersion(view, version string) func(*member) {
	return func(m *member) {
		m.answer.Status.Versions = []agentclient.PageVersion{{View: view, Version: version}}
	}
}

func isWaiting(reason string) func(*member) {
	return func(m *member) {
		m.Status.Conditions, m.Status.ContainerStatuses = nil, waiting(reason).ContainerStatuses
	}
}

func unschedulablePod(m *member) {
	m.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}
}

func TestVerdict(t *testing.T) {
	const until = "the first pod of the new template proves it until 1970-01-01T00:20:40Z"
	unrejected := verdict{canary: 1, trial: until}
	rejected := func(why string) verdict { return verdict{rejected: why} }
	cases := map[string]struct {
		canary  *v1alpha1.CanarySpec
		adapter v1alpha1.Adapter
		changes []func(*member)
		waited  time.Duration
		desired int32
		// before changes the pods of the template before.
		before func(*member)
		want   verdict
	}{
		"nobody asks":  {},
		"on trial":     {canary: minutes(1), want: unrejected},
		"it is proven": {canary: minutes(1, func(c *v1alpha1.CanarySpec) { c.Duration.Duration = time.Minute }), want: verdict{canary: 1}},
		"nobody comes back, and the time is over": {
			canary: minutes(1, func(c *v1alpha1.CanarySpec) { c.Duration.Duration, c.MinRecovered = time.Minute, "1" }), changes: []func(*member){returned(0, 0)},
			want: verdict{canary: 1},
		},
		"two, and one there": {canary: minutes(2), want: verdict{canary: 2, trial: "the first 2 pods of the new template prove it for 5m0s"}},
		"fewer replicas":     {canary: minutes(2), desired: 2, want: unrejected},
		"one replica":        {canary: minutes(2), desired: 1, want: unrejected},

		"too few came back to tell": {canary: minutes(1), changes: []func(*member){returned(0, 9)}, want: unrejected},
		"enough found their state":  {canary: minutes(1), changes: []func(*member){returned(9, 1)}, want: unrejected},
		"too few found it": {
			canary: minutes(1), changes: []func(*member){returned(8, 2)},
			want: rejected("8 of 10 users who came back to pods of the new template found their state, and spec.rollout.canary.minRecovered is 0.9"),
		},
		"nobody has to find it":    {canary: minutes(1, func(c *v1alpha1.CanarySpec) { c.MinRecovered = "0" }), changes: []func(*member){returned(0, 100), hasVersion("Elixir.Shop.Cart", "2")}, want: unrejected},
		"nothing is stashed":       {canary: minutes(1), adapter: v1alpha1.AdapterNone, changes: []func(*member){returned(0, 100)}, want: unrejected},
		"one that stops tells not": {canary: minutes(1), changes: []func(*member){returned(0, 100), func(m *member) { m.DeletionTimestamp = ptr.To(metav1.NewTime(said)) }}, want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"}},

		"another version": {
			canary: minutes(1), changes: []func(*member){hasVersion("Elixir.Shop.Cart", "2")},
			want: rejected("pages of Shop.Cart have the LiveStash version 2 in shop-2, and 1 in the pods before: they refuse what users have stashed"),
		},
		"a page that there was not": {canary: minutes(1), changes: []func(*member){hasVersion("Elixir.Shop.Order", "2")}, want: unrejected},

		"a crash": {
			canary: minutes(1), changes: []func(*member){crashed(1)},
			want: rejected("the pods of the new template crashed once, and spec.rollout.canary.maxCrashes is 0: see `kubectl logs --previous`"),
		},
		"a crash that may be": {canary: minutes(1, func(c *v1alpha1.CanarySpec) { c.MaxCrashes = 1 }), changes: []func(*member){crashed(1)}, want: unrejected},
		"an image that is not there yet": {
			canary: minutes(1), changes: []func(*member){isWaiting("ImagePullBackOff")}, waited: 10 * time.Second,
			want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"},
		},
		"an image that is not there": {
			canary: minutes(1), changes: []func(*member){isWaiting("ImagePullBackOff")}, waited: soon,
			want: rejected("pod shop-2, container app: ImagePullBackOff; the image img cannot be had: check spec.image and spec.imagePullSecrets"),
		},
		"no node has room": {
			canary: minutes(1), changes: []func(*member){unschedulablePod}, waited: time.Hour,
			want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"},
		},
		"its agent is silent": {
			canary: minutes(1), changes: []func(*member){func(m *member) { m.answer.Err = errors.New("silence") }}, waited: soon,
			want: rejected("shop-2 does not answer: silence, for 1m0s"),
		},
		"its agent says unhealthy": {
			canary: minutes(1), waited: 61 * time.Second,
			changes: []func(*member){func(m *member) {
				m.answer.Status.Store = agentclient.Store{Reason: "The table is not loaded."}
			}},
			want: rejected("shop-2 has no store: The table is not loaded., for 1m1s"),
		},
		"no pod has the store": {
			canary: minutes(1), waited: patience, want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"},
			changes: []func(*member){func(m *member) { m.answer.Status.Store = agentclient.Store{Reason: "Redis is away."} }},
			before:  func(m *member) { m.answer.Status.Store = agentclient.Store{Reason: "Redis is away."} },
		},
		"nobody answers the operator": {
			canary: minutes(1), waited: soon, want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"},
			changes: []func(*member){func(m *member) { m.answer.Err = errors.New("silence") }},
			before:  func(m *member) { m.answer.Err = errors.New("silence") },
		},
		"it starts":       {canary: minutes(1), changes: []func(*member){func(m *member) { m.Status.Conditions = nil }}, waited: soon, want: verdict{canary: 1, trial: "the first pod of the new template proves it for 5m0s"}},
		"it never starts": {canary: minutes(1), changes: []func(*member){func(m *member) { m.Status.Conditions = nil }}, waited: patience, want: rejected("shop-2 is not ready: its container has not started (see `kubectl describe pod -n  shop-2`), for 5m0s")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter, cluster.Spec.Rollout.Canary = v1alpha1.AdapterETS, c.canary
			if c.adapter != "" {
				cluster.Spec.Adapter = c.adapter
			}
			seen := onTrial(c.changes...)
			seen.waited = map[string]time.Duration{"shop-2": c.waited}
			for i := range seen.members {
				if m := &seen.members[i]; c.before != nil && !m.updated {
					c.before(m)
				}
			}
			desired := int32(3)
			if c.desired > 0 {
				desired = c.desired
			}
			if diff := cmp.Diff(c.want, seen.verdict(cluster, desired), cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A canary is not over before its time where the clocks of operator and kubelet disagree: what counts is how long the operator has seen the
// pod serve, and the kubelet's word only of a pod that served before.
func TestCanaryByWrongClocks(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter, cluster.Spec.Rollout.Canary = v1alpha1.AdapterETS, minutes(1)
	for name, c := range map[string]struct {
		ahead, seenFor time.Duration
		proven         bool
	}{
		"the operator's clock is ahead, and the pod is new":           {ahead: time.Hour, seenFor: time.Second},
		"the operator's clock is ahead, and the pod is almost proven": {ahead: time.Hour, seenFor: 5*time.Minute - time.Second},
		"the operator's clock is ahead, and the pod is proven":        {ahead: time.Hour, seenFor: 5 * time.Minute, proven: true},
		"the operator's clock is behind, and the pod is new":          {ahead: -time.Hour, seenFor: time.Second},
		"the operator's clock is behind, and the pod is proven":       {ahead: -time.Hour, seenFor: 5 * time.Minute, proven: true},
	} {
		t.Run(name, func(t *testing.T) {
			seen := onTrial()
			seen.now = said.Add(c.ahead)
			fresh := &seen.members[2]
			fresh.UID = "fresh"
			var s waits
			s.begun(fleetKey, []string{firstLook}, seen.now.Add(-c.seenFor-time.Second))
			s.begun(fleetKey, seen.onTrial(cluster), seen.now.Add(-c.seenFor))
			seen.served = s.begun(fleetKey, seen.onTrial(cluster), seen.now)
			if proven := seen.verdict(cluster, 3).trial == ""; proven != c.proven {
				t.Errorf("proven: %v, want %v", proven, c.proven)
			}
		})
	}

	// An operator that starts has seen nothing: the kubelet's word is all that there is.
	seen := onTrial()
	var s waits
	if seen.served = s.begun(fleetKey, seen.onTrial(cluster), seen.now); seen.servesSince(&seen.members[2]) != said.Add(-time.Minute) {
		t.Errorf("it serves since %s, for the operator %v", seen.servesSince(&seen.members[2]), seen.served)
	}
	// A pod that was not ready in between has to prove itself anew, though nobody saw it.
	seen.members[2].Status.Conditions[0].LastTransitionTime = metav1.NewTime(said.Add(-time.Second))
	again := said.Add(time.Minute)
	if seen.served = s.begun(fleetKey, seen.onTrial(cluster), again); !seen.servesSince(&seen.members[2]).Equal(again) {
		t.Errorf("it serves since %s, want %s", seen.servesSince(&seen.members[2]), again)
	}
	// Without a canary nothing is remembered.
	cluster.Spec.Rollout.Canary = nil
	if s.begun(fleetKey, seen.onTrial(cluster), seen.now); len(s.of) != 0 {
		t.Errorf("it remembers %v", s.of)
	}
}

// A rejection outlives the pods that it was made for, and holds for one template.
func TestRejectionIsNoted(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter, cluster.Spec.Rollout.Canary = v1alpha1.AdapterETS, minutes(1)
	seen := onTrial(crashed(1))
	first := seen.verdict(cluster, 3)
	seen.statefulSet.Annotations = map[string]string{fleet.RejectedAnnotation: note(seen.statefulSet, first)}

	later := onTrial()
	later.statefulSet.Annotations = seen.statefulSet.Annotations
	if got := later.verdict(cluster, 3); first.rejected == "" || got != first {
		t.Errorf("it was %+v, and is %+v", first, got)
	}
	// The note stands while the StatefulSet controller acts on another number of pods, and not for another template.
	later.statefulSet.Generation++
	if got := later.verdict(cluster, 3); got != first {
		t.Errorf("before it has settled it is %+v", got)
	}
	later.statefulSet.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	if got := later.verdict(cluster, 3); got.rejected != "" {
		t.Errorf("another template is %+v", got)
	}
	cluster.Spec.Rollout.Canary = nil
	seen = onTrial()
	if got := seen.verdict(cluster, 3); got != (verdict{}) {
		t.Errorf("without a canary it is %+v", got)
	}
}

// A release whose pages refuse what users have stashed: the operator goes back by itself, with nobody but the canary's users moved.
func TestCanaryGoesBack(t *testing.T) {
	cluster, pods := fleetAtRest(t, 3, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Canary = minutes(1) })
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 3)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-2")
	canary := replaced(t, cluster, pods[2])
	servesSince(t, canary, wellAmong(3, "shop-2"), time.Now())
	acted(t, cluster, "a", "b")
	// A pod that comes back while it is tried gets the template before.
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 3)
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonCanaryRunning, "1 of 3 pods have the new template; the first pod of the new template proves it")
	looks(t, cluster, "while the new template is tried")

	bad := wellAmong(3, "shop-2")
	bad.Returns = agentclient.Returns{Recovered: 1, NotRecovered: 11}
	agents.say(canary.Status.PodIP, bad)
	stops(t, cluster, "shop-2")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRolledBack)
	conditionSays(t, cluster, v1alpha1.ConditionStalled, v1alpha1.ReasonRolledBack, "1 of 12 users who came back")
	gone(t, canary, heldTen)
	former := fleetPod(t, cluster, 2, "a")
	serves(t, former, wellAmong(3, "shop-2"))
	acted(t, cluster, "a", "b")
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil || len(cluster.Status.Rollouts) == 0 || cluster.Status.Rollouts[0].Finished == nil {
			return fmt.Errorf("the rollouts are %+v, %w", cluster.Status.Rollouts, err)
		}
		return nil
	})
	last := cluster.Status.Rollouts[0]
	if last.Outcome != v1alpha1.RolloutRolledBack || !strings.HasPrefix(last.Message, "1 of 12 users") || last.PodsReported != 2 || last.Returned != 12 || last.NotRecovered != 11 {
		t.Errorf("the rollout is %+v", last)
	}
	eventSays(t, cluster.Namespace, v1alpha1.ReasonReturnsNotRecovered, "11 of 12 users who came back")
	looks(t, cluster, "once the template has been rejected")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRolledBack)

	// The status is lost, and nothing is tried again.
	suite.Eventually(t, func() error {
		suite.Must(t, get(t, cluster))
		cluster.Status = v1alpha1.LiveStashClusterStatus{}
		return api.Status().Update(t.Context(), cluster) // the operator may have written it meanwhile
	})
	suite.Eventually(t, func() error {
		seen := &v1alpha1.LiveStashCluster{}
		suite.Must(t, get(t, cluster))
		suite.Must(t, underTest.Get(t.Context(), client.ObjectKeyFromObject(cluster), seen))
		if seen.ResourceVersion != cluster.ResourceVersion {
			return errors.New("the operator's cache is behind")
		}
		return nil
	})
	later(t, cluster, 0)
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRolledBack)
	looks(t, cluster, "once the status has been lost")

	// Another template is.
	newImage(t, cluster, "ghcr.io/acme/shop:3")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonNotStalled)
	acted(t, cluster, "a", "c")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 3)
	acted(t, cluster, "a", "c")
	stops(t, cluster, "shop-2")
	if note := fleetSet(t, cluster).Annotations[fleet.RejectedAnnotation]; note != "" {
		t.Errorf("it is still noted: %s", note)
	}
}

// A paused rollout stops between two pods, and goes on.
func TestPausedRollout(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Paused = true })
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPaused, "0 of 2 pods have the new template; spec.rollout.paused is true")
	condition(t, cluster, v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	looks(t, cluster, "while the rollout is paused before its first pod")

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Paused = false })
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Paused = true })
	second := replaced(t, cluster, pods[1])
	serves(t, second, wellAmong(2, "shop-1"))
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPaused, "1 of 2 pods have the new template")
	looks(t, cluster, "while the rollout is paused between two pods")
}
