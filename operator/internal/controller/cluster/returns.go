package cluster

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

const (
	// afterRollout is for how long after its end a rollout counts returns: the last pod's users come back only then.
	afterRollout = 2 * time.Minute
	// countAgain lies between two looks at what agents have counted when nothing else asks for one: agents at rest are asked that often.
	countAgain = 30 * time.Second
	// mostUnrecovered is the percentage of returns without a state that is no loss, whatever is usual.
	mostUnrecovered = 10
	// mostOfUnknown is that percentage where nothing is known to be usual: a new fleet may have many users who have stashed nothing yet, and a
	// release that refuses what they have stashed gives nobody a state.
	mostOfUnknown = 50
)

// returns counts the users who come back during rollouts, by what agents have counted since their nodes started. Who came back while
// the operator did not run is in no rollout.
type returns struct {
	mutex sync.Mutex
	of    map[types.NamespacedName]*tally
}

// tally is where the counting for one fleet is.
type tally struct {
	// pods are what each pod's agent had counted at the last look. Nil: the pod was there before the first look, and has not answered.
	pods map[types.UID]*agentclient.Returns
	// rollout is the one that is counted for, and its numbers.
	rollout v1alpha1.RolloutStatus
}

// count tells the last rollout who has come back in it. It says after how long to count again because it has ended. 0: it goes on, or has
// all that it gets.
func (r *returns) count(fleet types.NamespacedName, status *v1alpha1.LiveStashClusterStatus, o *observation) time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.of == nil {
		r.of = map[types.NamespacedName]*tally{}
	}
	if r.of[fleet] == nil {
		r.of[fleet] = &tally{}
	}
	counting := r.of[fleet]
	more := counting.look(o.members)
	if len(status.Rollouts) == 0 {
		return 0
	}
	last := &status.Rollouts[0]
	var left time.Duration
	if last.Finished != nil {
		left = max(0, last.Finished.Add(afterRollout).Sub(o.now))
	}
	switch {
	case counting.rollout.To != last.To || !counting.rollout.Started.Equal(&last.Started):
		counting.rollout = *last // What was counted before it is not its own.
	case left > 0 || last.Finished == nil:
		counting.rollout.Returned += more.Recovered + more.NotRecovered
		counting.rollout.NotRecovered += more.NotRecovered
	}
	last.Returned, last.NotRecovered = counting.rollout.Returned, counting.rollout.NotRecovered
	return min(left, countAgain)
}

func (r *returns) forget(fleet types.NamespacedName) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.of, fleet)
}

// look is what agents have counted since the last look. A node that starts anew counts from 0.
func (t *tally) look(members []member) agentclient.Returns {
	var more agentclient.Returns
	pods := make(map[types.UID]*agentclient.Returns, len(members))
	for i := range members {
		m := &members[i]
		before, known := t.pods[m.UID]
		if !known && t.pods != nil {
			before = &agentclient.Returns{} // a new pod
		}
		pods[m.UID] = before
		if m.answer.At.IsZero() {
			continue
		}
		now := m.answer.Status.Returns
		pods[m.UID] = &now
		if before == nil {
			continue
		}
		if now.Recovered < before.Recovered || now.NotRecovered < before.NotRecovered {
			before = &agentclient.Returns{}
		}
		more.Recovered += now.Recovered - before.Recovered
		more.NotRecovered += now.NotRecovered - before.NotRecovered
	}
	t.pods = pods
	return more
}

// counted is what the agents of these pods have counted since their nodes started.
func counted(members []member) agentclient.Returns {
	var all agentclient.Returns
	for i := range members {
		all.Recovered += members[i].answer.Status.Returns.Recovered
		all.NotRecovered += members[i].answer.Status.Returns.NotRecovered
	}
	return all
}

// usual is the percentage of returns without a state that is to be expected of a rollout: the least of those before it, and of what the
// pods have counted that it replaces. So one that lost much makes no next one look good. Nil: nothing is known.
func usual(before []v1alpha1.RolloutStatus, pods agentclient.Returns) *int32 {
	least := int32(100)
	known := pods.Recovered+pods.NotRecovered >= fewestReturns
	if known {
		least = percentage(pods.NotRecovered, pods.Recovered+pods.NotRecovered)
	}
	for i := range before {
		if before[i].Returned >= fewestReturns {
			known, least = true, min(least, percentage(before[i].NotRecovered, before[i].Returned))
		}
	}
	if !known {
		return nil
	}
	return &least
}

// percentage is rounded up, so that what happens at all is usual.
func percentage(part, whole int64) int32 { return int32((100*part + whole - 1) / whole) } //nolint:gosec // a hundred at most

// lostReturns is how many users have lost their state in a rollout: all who came back without one, when they are more than a tenth and
// more than twice the usual share. Twice a large share would be all of them, or more: then, when they are nearer to all than to usual.
// Where nothing is known to be usual, when they are more than half.
func lostReturns(rollout *v1alpha1.RolloutStatus) int64 {
	most := int64(mostOfUnknown)
	if rollout.UsuallyNotRecovered != nil {
		normal := int64(*rollout.UsuallyNotRecovered)
		most = max(mostUnrecovered, min(2*normal, (100+normal)/2))
	}
	if rollout.Returned < fewestReturns || 100*rollout.NotRecovered <= most*rollout.Returned {
		return 0
	}
	return rollout.NotRecovered
}

// tellReturns makes an event when it is seen that the last rollout cost users their state. Once: numbers that grow tell themselves.
func (r *Reconciler) tellReturns(before, c *v1alpha1.LiveStashCluster) {
	if len(c.Status.Rollouts) == 0 {
		return
	}
	last := &c.Status.Rollouts[0]
	if lostReturns(last) == 0 {
		return
	}
	if known := before.Status.Rollouts; len(known) > 0 && known[0].Started.Equal(&last.Started) && lostReturns(&known[0]) > 0 {
		return
	}
	usually := "what is usual is not known yet"
	if last.UsuallyNotRecovered != nil {
		usually = fmt.Sprintf("usually it is %d%%", *last.UsuallyNotRecovered)
	}
	r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, v1alpha1.ReasonReturnsNotRecovered, "Rollout", "%s", reconcile.Shortened(fmt.Sprintf(
		"%d of %d users who came back since the rollout to %s began did not get their state back, %s: pages may refuse what those "+
			"of the release before have stashed (LiveStash's option version)", last.NotRecovered, last.Returned, last.To, usually), reconcile.MostNote))
}
