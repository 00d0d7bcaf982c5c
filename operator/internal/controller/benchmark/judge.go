package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// grace is how long the other runners may take to end when one has ended too early: most often they end for the same reason.
const grace = 10 * time.Second

// checkDeadline ends a run that takes too long, whatever it waits for.
func (r *Reconciler) checkDeadline(ctx context.Context, p *pass) error {
	left := p.run.Deadline - r.Clock.Since(p.row.StartedAt.Time)
	if left > 0 {
		p.DueIn(left)
		return nil
	}
	if p.seen.Over() {
		return nil
	}
	waitedFor := p.seen.Waiting
	if p.row.Phase == v1alpha1.RunRunning {
		waitedFor = "k6 had not ended"
	}
	for _, condition := range p.benchmark.Status.Conditions {
		if waitedFor == "" && condition.Type == v1alpha1.ConditionComplete {
			waitedFor = condition.Message
		}
	}
	return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("The run was not over after its deadline of %s (spec.runDeadline): %s.", p.run.Deadline, strings.TrimSuffix(waitedFor, "."))))
}

// judge decides on the run when its runners are over, or cannot come to a good end any more.
func (r *Reconciler) judge(ctx context.Context, p *pass) error {
	if p.seen.Problem != "" {
		return r.end(ctx, p, loadtest.Errored(p.seen.Problem))
	}
	if !p.seen.Over() {
		if !slices.ContainsFunc(p.seen.Runners, endedBadly) {
			return nil
		}
		if left := grace - r.since(&r.troubled, p.row.Runner); left > 0 {
			p.DueIn(left)
			return nil
		}
	}
	fleet, err := r.fleetOf(ctx, p)
	if err != nil {
		return err
	}
	judged := loadtest.Judge(*p.run, p.row.Runner, p.benchmark.Spec.Thresholds, ends(p.seen), fleet)
	// What the runners say themselves comes first: most often an event has not begun because they ended early.
	if other := cmp.Or(unfinishedEvent(p), scaledMeanwhile(p)); other != "" && judged.Verdict != v1alpha1.VerdictErrored {
		judged.Verdict, judged.Message = v1alpha1.VerdictErrored, other
	}
	return r.end(ctx, p, judged)
}

// scaledMeanwhile says that the fleet is not as large as when its test was made, and that no event was to change that. Empty: it is, or nobody knows.
func scaledMeanwhile(p *pass) string {
	if p.cluster == nil || p.seen.TargetPods == 0 {
		return ""
	}
	was := p.seen.TargetPods
	for _, event := range p.run.Events {
		if event.Kind == v1alpha1.EventScale {
			was = *event.Replicas
		}
	}
	if now := p.cluster.DesiredReplicas(); now != was {
		return fmt.Sprintf("LiveStashCluster %s was scaled while the run went on: %d -> %d pods.", p.cluster.Name, was, now)
	}
	return ""
}

// fleetOf is what was seen of the fleet during the run.
func (r *Reconciler) fleetOf(ctx context.Context, p *pass) (seen loadtest.Fleet, err error) {
	if seen.Restarted, err = r.restarts(ctx, p); err != nil {
		return seen, err
	}
	sampled, err := r.samplesOf(ctx, p)
	if err != nil || sampled == nil {
		return seen, err
	}
	// If the operator is stopped before the verdict is written down, the next one judges by these.
	if err := r.keepSamples(ctx, p.benchmark, sampled.recording); err != nil {
		return seen, err
	}
	seen.Note = sampled.note
	if sampled.part == nil {
		seen.Collections = sampled.recorder.Total(report.SeriesCollections)
	}
	return seen, nil
}

// endedBadly is whether a runner is over and its part of the run is not measured.
func endedBadly(process runner.Process) bool {
	return process.State == runner.Lost || process.State == runner.Ended && process.ExitCode != 0 && process.ExitCode != loadtest.ExitThresholdsFailed
}

// ends are what is known of the runners' ends. Those that never existed are at the end, and left out.
func ends(seen runner.Observation) []loadtest.RunnerEnd {
	all := make([]loadtest.RunnerEnd, 0, len(seen.Runners))
	existed := 0
	for _, process := range seen.Runners {
		end := loadtest.RunnerEnd{Ended: process.State == runner.Ended, ExitCode: process.ExitCode, Reason: process.Reason, Message: process.Message}
		if process.State != runner.Absent {
			existed = process.Number + 1
		}
		if process.State == runner.Pending || process.State == runner.Ready {
			end.Stopped = true
		}
		// A script that k6 cannot read: of all that k6 says, its complaint.
		if _, err := loadtest.ParseRunnerReport(end.Message); err != nil && end.Message != "" {
			end.Message = runner.Sentence(end.Message)
		}
		all = append(all, end)
	}
	return all[:existed]
}

// end notes what came out of the run. First the report, then the status: when the operator is stopped between them, the run is
// judged again, by what was written down: the samples of the last seconds may be missing.
func (r *Reconciler) end(ctx context.Context, p *pass, judged loadtest.Judgement) error {
	row := p.row
	judged.Message = reconcile.Shortened(judged.Message, reconcile.MostMessage)
	row.FinishedAt, row.Verdict, row.Message = r.now(), judged.Verdict, judged.Message
	if result := judged.Result; result != nil {
		// What a part of the runners reported is no figure of the run.
		if !judged.Partial {
			loadtest.ScenarioOf(p.run.Scenario).Headline(*p.run, *result, !judged.ClientBound, row)
		}
		if result.ClientDelay != nil {
			row.ClientDelay = loadtest.Milliseconds(*result.ClientDelay)
		}
	}
	if err := r.reportRun(ctx, p, judged); err != nil {
		return err
	}
	row.Phase = v1alpha1.RunCooling
	r.troubled.Delete(row.Runner)
	r.tellVerdict(p.benchmark, row)
	p.DueIn(0)
	return p.wait("%s is over: %s", row.Name, row.Verdict)
}

// giveUp ends all runs at once, before anything was started.
func (r *Reconciler) giveUp(p *pass, sentence string) error {
	now := r.now()
	p.benchmark.Status.StartedAt = now
	for i := range p.benchmark.Status.Runs {
		row := &p.benchmark.Status.Runs[i]
		row.Phase, row.StartedAt, row.FinishedAt = v1alpha1.RunFinished, now, now
		row.Verdict, row.Message = v1alpha1.VerdictErrored, reconcile.Shortened(loadtest.Errored(sentence).Message, reconcile.MostMessage)
	}
	r.tellVerdict(p.benchmark, p.row)
	p.DueIn(0)
	return p.wait("%s", sentence)
}

func (r *Reconciler) tellVerdict(b *v1alpha1.LiveStashBenchmark, row *v1alpha1.BenchmarkRunStatus) {
	kind := corev1.EventTypeNormal
	if row.Verdict != v1alpha1.VerdictPassed {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(b, nil, kind, "Run"+string(row.Verdict), "Judge", "%s",
		reconcile.Shortened(fmt.Sprintf("%s: %s", row.Name, cmp.Or(row.Message, "every threshold held")), reconcile.MostNote))
}
