package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// RolloutLine is how the newest rollout ended, or how far it is, in two lines at most.
func RolloutLine(r *v1alpha1.RolloutStatus, now time.Time) string {
	var b strings.Builder
	begun := "Rollout under way for " + text.Age(r.Started.Time, now)
	if r.Finished != nil {
		begun = fmt.Sprintf("Last rollout: %s %s ago, took %s", r.Outcome, text.Age(r.Finished.Time, now), text.Age(r.Started.Time, r.Finished.Time))
	}
	fmt.Fprintf(&b, "%s: %s; of %s, %d handed over, %d lost\n", begun, text.Count(int64(r.PodsReported), "pod drained", "pods drained"),
		text.Count(r.StashesBefore, "stash held", "stashes held"), r.HandedOver, r.Lost)
	if r.Returned > 0 {
		fmt.Fprintf(&b, "Users who came back: %d of %d found their state\n", r.Returned-r.NotRecovered, r.Returned)
	}
	if r.Message != "" {
		b.WriteString(text.Wrapped(r.Message, "  ", width))
	}
	return b.String()
}

// Progress is how far a rollout is.
type Progress struct {
	Name string `json:"name"`
	// Done and Pods are how many pods have the template that is wanted, of how many.
	Done int32 `json:"updatedPods"`
	Pods int32 `json:"pods"`
	// Phase is the reason of condition Progressing, or of what comes next, and Says is its message.
	Phase string `json:"phase"`
	Says  string `json:"message"`
	// Ended is whether nothing is left to do, Failed whether somebody has to do something first.
	Ended  bool `json:"ended"`
	Failed bool `json:"failed"`
	// Held are the stashes that the pods hold now. Of the newest rollout, HandedOver and Lost became of those that went with pods.
	Held       int64                    `json:"stashesHeld"`
	HandedOver int64                    `json:"stashesHandedOver"`
	Lost       int64                    `json:"stashesLost"`
	Rollouts   []v1alpha1.RolloutStatus `json:"rollouts,omitempty"`
}

// ProgressOf is how far the rollout of a fleet is.
func ProgressOf(c *v1alpha1.LiveStashCluster) Progress {
	p := Progress{Name: c.Name, Done: c.Status.UpdatedReplicas, Pods: c.DesiredReplicas(), Held: c.Status.Stashes, Phase: "Changed", Rollouts: c.Status.Rollouts,
		Says: "the operator has not seen the last change of the spec yet"}
	if len(c.Status.Rollouts) > 0 {
		p.HandedOver, p.Lost = c.Status.Rollouts[0].HandedOver, c.Status.Rollouts[0].Lost
	}
	progressing := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing == nil || c.Status.ObservedGeneration != c.Generation {
		return p
	}
	p.Phase, p.Says = progressing.Reason, progressing.Message
	p.Failed = meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStalled)
	if p.Failed {
		p.Says = meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled).Message
	}
	p.Ended = progressing.Status == metav1.ConditionFalse && !p.Failed
	if succeeded := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReconcileSucceeded); p.Ended && succeeded != nil && succeeded.Reason == v1alpha1.ReasonCookieWaits {
		p.Phase, p.Says, p.Ended = succeeded.Reason, succeeded.Message, false // the next rollout begins by itself
	}
	return p
}

// barWidth is how many characters a progress bar has.
const barWidth = 30

// Line is the progress on one line.
func (p Progress) Line(paint text.Paint) string {
	phase := paint.In(text.Warning, p.Phase)
	switch {
	case p.Failed:
		phase = paint.In(text.Bad, p.Phase)
	case p.Ended:
		phase = paint.In(text.Good, p.Phase)
	}
	lost := fmt.Sprintf("%d lost", p.Lost)
	if p.Lost > 0 {
		lost = paint.In(text.Bad, lost)
	}
	return fmt.Sprintf("%s %d/%d pods  stashes: %d held, %d handed over, %s  %s",
		paint.Bar(int(p.Done), int(p.Pods), barWidth), p.Done, p.Pods, p.Held, p.HandedOver, lost, phase)
}

// Write draws the progress, and the rollouts before.
func (p Progress) Write(w io.Writer, paint text.Paint, now time.Time) error {
	if _, err := fmt.Fprintf(w, "%s\n%s\n", p.Line(paint), text.Wrapped(p.Says, "", width)); err != nil {
		return err
	}
	table := text.Table{Columns: []string{"REVISION", "STARTED", "TOOK", "OUTCOME", "PODS", "STASHES", "HANDED OVER", "LOST", "RETURNED", "RECOVERED"}}
	for i := range p.Rollouts {
		r := &p.Rollouts[i]
		took, outcome := "", text.Cell{Text: "under way", Colour: text.Warning}
		if r.Finished != nil {
			took = text.Age(r.Started.Time, r.Finished.Time)
		}
		if r.Outcome != "" {
			outcome = text.Plain(r.Outcome)
		}
		lost := text.Plain(r.Lost)
		if r.Lost > 0 {
			lost.Colour = text.Bad
		}
		table.Add(text.Plain(r.To), text.Plain(text.Age(r.Started.Time, now)), text.Plain(took), outcome, text.Plain(r.PodsReported),
			text.Plain(r.StashesBefore), text.Plain(r.HandedOver), lost, text.Plain(r.Returned), text.Plain(r.Returned-r.NotRecovered))
	}
	if len(table.Rows) == 0 {
		_, err := fmt.Fprintln(w, "No rollout yet.")
		return err
	}
	return table.Write(w, paint)
}
