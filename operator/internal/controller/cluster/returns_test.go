package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// Who comes back is counted from the beginning of a rollout until two minutes after its end, over pods that go, come and start anew.
func TestReturnsAreCounted(t *testing.T) {
	shop := types.NamespacedName{Namespace: "web", Name: "shop"}
	at := func(seconds int) time.Time { return said.Add(time.Duration(seconds) * time.Second) }
	pod := func(uid types.UID, recovered, lost int64) member {
		m := fleetOf(1, func([]member) {}).members[0]
		m.Pod = m.DeepCopy()
		m.UID, m.answer.At = uid, said
		m.answer.Status.Returns = agentclient.Returns{Recovered: recovered, NotRecovered: lost}
		return m
	}
	silent := func(uid types.UID) member {
		m := pod(uid, 0, 0)
		m.answer.At = time.Time{}
		return m
	}
	rollout := func(to string, started, finished int) v1alpha1.RolloutStatus {
		r := v1alpha1.RolloutStatus{To: to, Started: metav1.NewTime(at(started))}
		if finished > 0 {
			end := metav1.NewTime(at(finished))
			r.Finished = &end
		}
		return r
	}
	type numbers struct {
		Returned, NotRecovered int64
		Again                  time.Duration
	}
	steps := []struct {
		what     string
		at       int
		rollouts []v1alpha1.RolloutStatus
		members  []member
		want     numbers
	}{
		{what: "nothing goes on", members: []member{pod("a", 5, 5), silent("b")}},
		{what: "they come and go", at: 1, members: []member{pod("a", 50, 15), pod("b", 70, 7)}},
		{what: "a rollout begins", at: 2, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 0)}, members: []member{pod("a", 51, 15), pod("b", 70, 7)}},
		{what: "users of the first pod", at: 3, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 0)}, members: []member{pod("a", 61, 16)}, want: numbers{11, 1, 0}},
		{what: "the new one takes some", at: 9, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 0)}, members: []member{pod("a", 61, 16), pod("c", 3, 2)}, want: numbers{16, 3, 0}},
		{what: "it starts anew", at: 10, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 0)}, members: []member{pod("a", 61, 16), pod("c", 1, 0)}, want: numbers{17, 3, 0}},
		{what: "the end", at: 20, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 20)}, members: []member{pod("c", 2, 0), pod("d", 0, 0)}, want: numbers{18, 3, countAgain}},
		{what: "a latecomer", at: 120, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 20)}, members: []member{pod("c", 2, 0), pod("d", 0, 1)}, want: numbers{19, 4, 20 * time.Second}},
		{what: "one too late", at: 140, rollouts: []v1alpha1.RolloutStatus{rollout("two", 2, 20)}, members: []member{pod("c", 2, 0), pod("d", 0, 2)}, want: numbers{19, 4, 0}},
		{what: "the next rollout", at: 500, rollouts: []v1alpha1.RolloutStatus{rollout("three", 500, 0)}, members: []member{pod("c", 9, 9), pod("d", 9, 9)}},
		{what: "has its own", at: 501, rollouts: []v1alpha1.RolloutStatus{rollout("three", 500, 0)}, members: []member{pod("c", 9, 9), pod("d", 10, 9)}, want: numbers{1, 0, 0}},
	}
	var r returns
	for _, step := range steps {
		status := v1alpha1.LiveStashClusterStatus{Rollouts: step.rollouts}
		got := numbers{Again: r.count(shop, &status, &observation{members: step.members, now: at(step.at)})}
		if len(status.Rollouts) > 0 {
			got.Returned, got.NotRecovered = status.Rollouts[0].Returned, status.Rollouts[0].NotRecovered
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}

	// The operator that comes after this one goes on from what the status says, and takes nothing for new that was there before.
	var next returns
	known := rollout("three", 500, 0)
	known.Returned, known.NotRecovered = 7, 2
	for i, want := range []int64{7, 7, 8} {
		status := v1alpha1.LiveStashClusterStatus{Rollouts: []v1alpha1.RolloutStatus{known}}
		members := [][]member{{silent("c")}, {pod("c", 40, 9)}, {pod("c", 40, 10)}}[i]
		next.count(shop, &status, &observation{members: members, now: at(502 + i)})
		if got := status.Rollouts[0].Returned; got != want {
			t.Errorf("after a restart, at look %d, %d have returned, want %d", i, got, want)
		}
	}
	next.forget(shop)
	if len(next.of) != 0 {
		t.Errorf("it remembers %v", next.of)
	}
}

func TestLostReturns(t *testing.T) {
	cases := map[string]struct {
		returned, notRecovered int64
		usually                *int32
		want                   int64
	}{
		"nobody came back":              {},
		"too few to tell":               {returned: 9, notRecovered: 9, usually: ptr.To[int32](0)},
		"all":                           {returned: 10, notRecovered: 10, usually: ptr.To[int32](0), want: 10},
		"a tenth":                       {returned: 100, notRecovered: 10, usually: ptr.To[int32](0)},
		"more than a tenth":             {returned: 100, notRecovered: 11, usually: ptr.To[int32](0), want: 11},
		"half, and nothing is known":    {returned: 100, notRecovered: 50},
		"more, and nothing is known":    {returned: 100, notRecovered: 51, want: 51},
		"as usual":                      {returned: 100, notRecovered: 40, usually: ptr.To[int32](20)},
		"twice as many as usual":        {returned: 100, notRecovered: 41, usually: ptr.To[int32](20), want: 41},
		"most users have nothing":       {returned: 100, notRecovered: 80, usually: ptr.To[int32](60)},
		"most had nothing, now nobody":  {returned: 100, notRecovered: 81, usually: ptr.To[int32](60), want: 81},
		"nobody has ever had something": {returned: 100, notRecovered: 100, usually: ptr.To[int32](100)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := lostReturns(&v1alpha1.RolloutStatus{Returned: c.returned, NotRecovered: c.notRecovered, UsuallyNotRecovered: c.usually})
			if got != c.want {
				t.Errorf("%d are lost, want %d", got, c.want)
			}
		})
	}
}

func TestUsual(t *testing.T) {
	cases := map[string]struct {
		before []v1alpha1.RolloutStatus
		pods   agentclient.Returns
		want   *int32
	}{
		"nothing is known":             {},
		"too few to tell":              {before: []v1alpha1.RolloutStatus{{Returned: 9, NotRecovered: 9}}, pods: agentclient.Returns{NotRecovered: 9}},
		"by the pods":                  {pods: agentclient.Returns{Recovered: 2, NotRecovered: 8}, want: ptr.To[int32](80)},
		"rounded up":                   {pods: agentclient.Returns{Recovered: 999, NotRecovered: 1}, want: ptr.To[int32](1)},
		"a bad rollout is not usual":   {before: []v1alpha1.RolloutStatus{{Returned: 20, NotRecovered: 20}, {Returned: 20, NotRecovered: 1}}, pods: agentclient.Returns{NotRecovered: 50}, want: ptr.To[int32](5)},
		"unless there was no good one": {before: []v1alpha1.RolloutStatus{{Returned: 20, NotRecovered: 20}}, want: ptr.To[int32](100)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, usual(c.before, c.pods)); diff != "" {
				t.Errorf("percent that are usual (-want +got):\n%s", diff)
			}
		})
	}
}

// Nobody knows what is usual of a new fleet: users who had stashed nothing yet are no loss, and a release that refuses everything is.
func TestReturnsOfANewFleet(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
	second := replaced(t, cluster, pods[1])
	back := func(recovered, not int64) {
		t.Helper()
		status := wellAmong(2, "shop-1")
		status.Returns = agentclient.Returns{Recovered: recovered, NotRecovered: not}
		serves(t, second, status)
		acted(t, cluster, "a", "b")
		// Of counters alone the operator hears once a minute.
		suite.EventuallyWithin(t, 3*time.Minute, func() error {
			suite.Must(t, get(t, cluster))
			if told := cluster.Status.Rollouts; len(told) != 1 || told[0].NotRecovered != not {
				return fmt.Errorf("the rollouts are %+v, want one with %d returns that were not recovered", told, not)
			}
			return nil
		})
	}
	back(8, 6)
	// It is told once: had the six been called a loss, nobody would hear of the nine.
	back(8, 9)
	eventSays(t, cluster.Namespace, v1alpha1.ReasonReturnsNotRecovered, "9 of 17 users who came back")
}
