package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// The reasons that conditions and events of a LiveStashBenchmark give, besides its phases and verdicts.
const (
	reasonRunStarted = "RunStarted"
	reasonBelieved   = "Believed"
	reasonStarting   = "Starting"
	reasonMissing    = "Missing"
	reasonServes     = "Serves"
	reasonWritten    = "Written"
)

// overhead is about what a run takes besides its load: its fleet and its runners start and stop.
const overhead = time.Minute

// updateStatus writes what has changed, and how the pass ended.
func (r *Reconciler) updateStatus(ctx context.Context, before *v1alpha1.LiveStashBenchmark, p *pass, outcome error) error {
	status := &p.benchmark.Status
	status.ObservedGeneration = p.benchmark.Generation
	status.Phase = cmp.Or(status.Phase, v1alpha1.BenchmarkPending)
	status.Verdict = verdictOf(p.benchmark)
	over := 0
	for _, row := range status.Runs {
		if row.Verdict != "" || row.Phase == v1alpha1.RunFinished {
			over++
		}
	}
	status.Progress = fmt.Sprintf("%d/%d", over, len(status.Runs))
	status.TimeLeft = r.timeLeft(p)
	r.setCondition(p, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReconciled, "nothing went wrong")
	if outcome != nil {
		reason, message := reconcile.ReasonAndMessage(outcome)
		r.setCondition(p, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, reason, message)
	}
	if status.FinishedAt != nil {
		r.setCondition(p, v1alpha1.ConditionComplete, metav1.ConditionTrue, string(status.Verdict), p.doing)
		passed := metav1.ConditionFalse
		failed := metav1.ConditionTrue
		if status.Verdict == v1alpha1.VerdictPassed {
			passed, failed = failed, passed
		}
		r.setCondition(p, v1alpha1.ConditionPassed, passed, string(status.Verdict), inShort(p.benchmark))
		r.setCondition(p, v1alpha1.ConditionFailed, failed, string(status.Verdict), inShort(p.benchmark))
	} else if p.doing != "" {
		r.setCondition(p, v1alpha1.ConditionComplete, metav1.ConditionFalse, string(status.Phase), p.doing)
	}
	return r.writeStatus(ctx, before, p.benchmark)
}

// writeStatus writes the status if it has changed, and waits until the cache has it.
func (r *Reconciler) writeStatus(ctx context.Context, before, b *v1alpha1.LiveStashBenchmark) error {
	if equality.Semantic.DeepEqual(before.Status, b.Status) {
		return nil
	}
	_, err := reconcile.WriteStatus(ctx, r.Client, before, b)
	return client.IgnoreNotFound(err)
}

// verdictOf is the worst verdict of the runs that are over and count, of the comparison, and of that against the baseline. Where knees are
// sought a step that does not hold is what was to be found, so the knees' verdicts count.
func verdictOf(b *v1alpha1.LiveStashBenchmark) v1alpha1.BenchmarkVerdict {
	verdicts := make([]v1alpha1.BenchmarkVerdict, 0, len(b.Status.Runs))
	for _, knee := range b.Status.Knees {
		verdicts = append(verdicts, knee.Verdict)
	}
	for _, row := range b.Status.Runs {
		if !row.Warmup && !seeks(b) {
			verdicts = append(verdicts, row.Verdict)
		}
	}
	if comparison := b.Status.Comparison; comparison != nil {
		verdicts = append(verdicts, comparison.Verdict)
	}
	if against := b.Status.Against; against != nil {
		verdicts = append(verdicts, against.Verdict)
	}
	return loadtest.Worst(verdicts...)
}

// seeks is whether knees are sought.
func seeks(b *v1alpha1.LiveStashBenchmark) bool {
	return b.Spec.Matrix != nil && b.Spec.Matrix.Seek != nil
}

// timeLeft is about how long the rest takes, in whole minutes: seconds would be written over and over.
func (r *Reconciler) timeLeft(p *pass) *metav1.Duration {
	var left time.Duration
	for i := range p.benchmark.Status.Runs {
		row := &p.benchmark.Status.Runs[i]
		if row.Verdict != "" || row.Phase == v1alpha1.RunFinished || i >= len(p.runs) {
			continue
		}
		one := p.runs[i].Duration + overhead + loadtest.Cooldown(&p.benchmark.Spec)
		if row.StartedAt != nil {
			one = max(0, one-r.Clock.Since(row.StartedAt.Time))
		}
		left += one
	}
	if p.row == nil {
		return nil
	}
	return &metav1.Duration{Duration: (left + time.Minute - 1).Truncate(time.Minute)}
}

func (*Reconciler) setCondition(p *pass, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.benchmark.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: reconcile.Shortened(message, reconcile.MostMessage), ObservedGeneration: p.benchmark.Generation,
	})
}

// now is the time as the API keeps it.
func (r *Reconciler) now() *metav1.Time {
	now := metav1.NewTime(r.Clock.Now().Truncate(time.Second))
	return &now
}
