package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

func TestHistory(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	ended := func(second int64) *metav1.Time { end := at(second); return &end }
	said := []drained{{pod: "shop-1", report: agentclient.Report{SessionsBefore: 10, HandedOff: 4, NotHandedOff: 1}}, {pod: "shop-0", report: agentclient.Report{SessionsBefore: 5, HandedOff: 5}}}
	cases := map[string]struct {
		turns    []turn
		revision string
		want     []v1alpha1.RolloutStatus
	}{
		"nobody has told yet":           {turns: []turn{{}}},
		"the first template":            {turns: []turn{{revision: "a"}, {revision: "a", complete: true, reports: said}}, revision: "a"},
		"a controller that lags behind": {turns: []turn{{revision: "a"}, {revision: ""}, {revision: "a"}}, revision: "a"},
		"another template":              {turns: []turn{{revision: "a"}, {revision: "b"}}, revision: "b", want: []v1alpha1.RolloutStatus{{From: "a", To: "b", Started: at(1)}}},
		"pods speak, also with the last": {turns: []turn{{revision: "a"}, {revision: "b"}, {revision: "b", reports: said[:1]}, {revision: "b", complete: true, reports: said[1:]}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {revision: "b", complete: true, reports: said}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(1), Finished: ended(3), Outcome: v1alpha1.RolloutComplete, PodsReported: 2, StashesBefore: 15, HandedOver: 9, Lost: 1},
		}},
		"a last word that comes late": {turns: []turn{{revision: "a"}, {revision: "b"}, {revision: "b", complete: true}, {revision: "b", complete: true, reports: said[1:]}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutComplete, PodsReported: 1, StashesBefore: 5, HandedOver: 5},
		}},
		"back in the middle: what is replaced now is told too": {turns: []turn{{revision: "a"}, {revision: "b"}, {revision: "a"}, {reports: said[:1]}, {revision: "a", complete: true}}, revision: "a", want: []v1alpha1.RolloutStatus{
			{From: "b", To: "a", Started: at(2), Finished: ended(4), Outcome: v1alpha1.RolloutComplete, PodsReported: 1, StashesBefore: 10, HandedOver: 4, Lost: 1},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutReverted},
		}},
		"rolled back, and said before it is done": {turns: []turn{{revision: "a"}, {revision: "b", before: "a"}, {revision: "b", before: "a", rejected: "bad"}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(1), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"rolled back, then taken back": {turns: []turn{{revision: "a"}, {revision: "b", before: "a", rejected: "bad"}, {revision: "b", before: "a", rejected: "bad", complete: true}, {revision: "a", before: "a", complete: true}}, revision: "a", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"rolled back, then another one": {turns: []turn{{revision: "a"}, {revision: "b", before: "a", rejected: "bad"}, {revision: "b", before: "a", rejected: "bad", complete: true}, {revision: "c", before: "a"}}, revision: "c", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "c", Started: at(3)},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"another one while it goes back": {turns: []turn{{revision: "a"}, {revision: "b", before: "a", rejected: "bad"}, {revision: "c", before: "a"}}, revision: "c", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "c", Started: at(2)},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"rolled back, then wanted all the same": {turns: []turn{{revision: "a"}, {revision: "b", before: "a", rejected: "bad"}, {revision: "b", before: "a", rejected: "bad", complete: true}, {revision: "b", before: "a"}, {revision: "b", before: "b", complete: true}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(3), Finished: ended(4), Outcome: v1alpha1.RolloutComplete},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"rolled back, and then no pods for a while": {turns: []turn{{revision: "a"}, {revision: "b", before: "a", rejected: "bad"}, {revision: "b", before: "a", rejected: "bad", complete: true}, {revision: "b", before: "b"}, {revision: "b", before: "b", complete: true}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(3), Finished: ended(4), Outcome: v1alpha1.RolloutComplete},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutRolledBack, Message: "bad"},
		}},
		"what is usual is by the rollouts before, and by the pods": {turns: []turn{{revision: "a"}, {revision: "b", returns: agentclient.Returns{Recovered: 18, NotRecovered: 2}}}, revision: "b", want: []v1alpha1.RolloutStatus{
			{From: "a", To: "b", Started: at(1), UsuallyNotRecovered: ptr.To[int32](10)},
		}},
		"another one in the middle": {turns: []turn{{revision: "a"}, {revision: "b"}, {revision: "c"}}, revision: "c", want: []v1alpha1.RolloutStatus{
			{From: "b", To: "c", Started: at(2)},
			{From: "a", To: "b", Started: at(1), Finished: ended(2), Outcome: v1alpha1.RolloutSuperseded},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status := v1alpha1.LiveStashClusterStatus{}
			for i, turn := range c.turns {
				turn.now = time.Unix(int64(i), 5)
				history(&status, turn)
			}
			if status.Revision != c.revision {
				t.Errorf("the revision is %q, want %q", status.Revision, c.revision)
			}
			if diff := cmp.Diff(c.want, status.Rollouts); diff != "" {
				t.Errorf("rollouts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHistoryIsBounded(t *testing.T) {
	status := v1alpha1.LiveStashClusterStatus{}
	for i := range 3 * mostRollouts {
		history(&status, turn{revision: fmt.Sprint(i), now: time.Unix(int64(i), 0)})
	}
	if len(status.Rollouts) != mostRollouts || status.Rollouts[0].To != fmt.Sprint(3*mostRollouts-1) {
		t.Errorf("%d rollouts are kept, the first to %s", len(status.Rollouts), status.Rollouts[0].To)
	}
}
