package cluster

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

const (
	// mostRollouts is how many rollouts the status keeps.
	mostRollouts = 10
	// lateWords is how long after its end a rollout takes words of pods: a pod may be seen to be gone before it is heard.
	lateWords = 10 * time.Second
)

// drained is the last word of a pod that is gone.
type drained struct {
	pod string
	// set is the StatefulSet that made it.
	set types.UID
	// made is when the pod was made.
	made   time.Time
	report agentclient.Report
}

// turn is where a fleet's rollouts are: what status.revision and status.rollouts are made of.
type turn struct {
	// revision is the one that the StatefulSet's template has. Empty while its controller has not told.
	revision string
	// before is the one that the whole fleet was last rolled out to.
	before string
	// complete is whether every pod has it and can keep users.
	complete bool
	// rejected is why the template was rejected. Empty: it was not.
	rejected string
	// returns are those that the pods have counted since they started.
	returns agentclient.Returns
	// reports are the last words of pods that went since the last turn.
	reports []drained
	now     time.Time
}

// history is status.revision and status.rollouts after a turn. The first template of a fleet is no rollout. Pods that stop when
// none goes on are not in any.
func history(status *v1alpha1.LiveStashClusterStatus, t turn) {
	switch {
	case t.revision == "":
	case status.Revision == "" && (t.before == "" || t.before == t.revision):
		status.Revision = t.revision
	case wentBack(status) && t.rejected == "" && t.before == t.revision && t.revision != status.Rollouts[0].To:
		status.Revision = t.revision // The pods have been there since the rollout was rolled back.
	case status.Revision != t.revision, wentBack(status) && t.rejected == "":
		begin(status, t)
	}
	open := openRollout(status)
	if open == nil {
		if last := status.Rollouts; len(last) > 0 && t.now.Sub(last[0].Finished.Time) < lateWords {
			add(&last[0], t.reports)
		}
		return
	}
	add(open, t.reports)
	if t.revision == open.To {
		advance(open, t)
	}
}

// begin ends the rollout that goes on, and begins the one of this turn.
func begin(status *v1alpha1.LiveStashClusterStatus, t turn) {
	if open := openRollout(status); open != nil {
		end(open, outcomeBefore(*open, t.revision), t.now)
	}
	from := cmp.Or(status.Revision, t.before)
	switch {
	case wentBack(status) && t.before == t.revision:
		from = status.Rollouts[0].From // The fleet had no pods for a while, and the rejected template is all that is known of it.
	case wentBack(status):
		from = t.before
	}
	begun := v1alpha1.RolloutStatus{From: from, To: t.revision, Started: seconds(t.now), UsuallyNotRecovered: usual(status.Rollouts, t.returns)}
	status.Rollouts = append([]v1alpha1.RolloutStatus{begun}, status.Rollouts[:min(len(status.Rollouts), mostRollouts-1)]...)
	status.Revision = t.revision
}

// advance says how the rollout of this turn is, and ends it when nothing is left to do for it.
func advance(open *v1alpha1.RolloutStatus, t turn) {
	open.Outcome, open.Message = "", ""
	if t.rejected != "" {
		open.Outcome, open.Message = v1alpha1.RolloutRolledBack, reconcile.Shortened(t.rejected, reconcile.MostNote)
	}
	if t.complete {
		end(open, cmp.Or(open.Outcome, v1alpha1.RolloutComplete), t.now)
	}
}

// wentBack is whether the last rollout was rolled back to its end.
func wentBack(status *v1alpha1.LiveStashClusterStatus) bool {
	return len(status.Rollouts) > 0 && status.Rollouts[0].Outcome == v1alpha1.RolloutRolledBack && status.Rollouts[0].Finished != nil
}

// add adds what pods said to a rollout's figures.
func add(rollout *v1alpha1.RolloutStatus, reports []drained) {
	for _, d := range reports {
		rollout.PodsReported++
		rollout.StashesBefore += d.report.SessionsBefore
		rollout.HandedOver += d.report.HandedOff
		rollout.Lost += d.report.NotHandedOff
	}
}

// openRollout is the rollout that goes on. Nil when none does.
func openRollout(status *v1alpha1.LiveStashClusterStatus) *v1alpha1.RolloutStatus {
	if len(status.Rollouts) == 0 || status.Rollouts[0].Finished != nil {
		return nil
	}
	return &status.Rollouts[0]
}

// outcomeBefore is that of a rollout that another template ends.
func outcomeBefore(open v1alpha1.RolloutStatus, next string) v1alpha1.RolloutOutcome {
	switch {
	case open.Outcome != "":
		return open.Outcome
	case open.From == next:
		return v1alpha1.RolloutReverted
	}
	return v1alpha1.RolloutSuperseded
}

func end(rollout *v1alpha1.RolloutStatus, outcome v1alpha1.RolloutOutcome, now time.Time) {
	rollout.Finished, rollout.Outcome = ptr.To(seconds(now)), outcome
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
