package benchmark

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// checkComparison refuses to begin without the report that the figures are to be held against: hours later is too late.
func (r *Reconciler) checkComparison(ctx context.Context, p *pass) error {
	if p.benchmark.Spec.CompareWith == nil || p.benchmark.Status.StartedAt != nil {
		return nil
	}
	_, _, problem, err := r.earlierReport(ctx, p.benchmark)
	if err != nil || problem == "" {
		return err
	}
	return r.giveUp(p, "compareWith: "+problem)
}

// compare holds the report against the one that spec.compareWith names, and notes what came out. Warm-ups are in neither.
func (r *Reconciler) compare(ctx context.Context, b *v1alpha1.LiveStashBenchmark, so *report.Report) error {
	if b.Spec.CompareWith == nil {
		return nil
	}
	earlier, name, problem, err := r.earlierReport(ctx, b)
	if err != nil {
		return err
	}
	came := report.Comparison{With: name, Verdict: report.VerdictErrored, Message: "compareWith: " + problem}
	if problem == "" {
		came = report.Compare(*so, earlier, name, limitsOf(b.Spec.CompareWith.AtMost))
	}
	so.Comparison = &came
	b.Status.Comparison = &v1alpha1.BenchmarkComparisonStatus{
		ConfigMap: name, Verdict: v1alpha1.BenchmarkVerdict(came.Verdict), Message: came.Message,
	}
	return nil
}

// earlierReport is the report that spec.compareWith names, and the ConfigMap that it is in; or what is wrong with it, in a sentence.
func (r *Reconciler) earlierReport(ctx context.Context, b *v1alpha1.LiveStashBenchmark) (read report.Report, name, problem string, err error) {
	if reference := b.Spec.CompareWith.BenchmarkRef; reference != nil {
		name, problem, err = r.reportOf(ctx, b.Namespace, reference.Name)
	} else {
		name = b.Spec.CompareWith.ConfigMapRef.Name
	}
	if err != nil || problem != "" {
		return report.Report{}, name, problem, err
	}
	kept := &corev1.ConfigMap{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, kept)
	if apierrors.IsNotFound(err) {
		return report.Report{}, name, fmt.Sprintf("There is no ConfigMap %s in namespace %s: make it from a report that you have kept, "+
			"`kubectl create configmap %s --from-file=report.json`, and then the LiveStashBenchmark anew.", name, b.Namespace, name), nil
	}
	if err != nil {
		return report.Report{}, name, "", fmt.Errorf("reading the report to compare with: %w", err)
	}
	read, err = report.Parse([]byte(kept.Data[report.FileJSON]))
	if err != nil {
		// Not what is wrong with it: who may make a LiveStashBenchmark need not be one who may read ConfigMaps.
		return report.Report{}, name, fmt.Sprintf("ConfigMap %s has no key %s with a report of schema version %d, as this operator writes it: "+
			"name another, or make the report again.", name, report.FileJSON, report.SchemaVersion), nil
	}
	return read, name, "", nil
}

// reportOf is the ConfigMap with the report of a benchmark that has finished; or why there is none, in a sentence.
func (r *Reconciler) reportOf(ctx context.Context, namespace, name string) (configMap, problem string, err error) {
	earlier := &v1alpha1.LiveStashBenchmark{}
	err = r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, earlier)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Sprintf("There is no LiveStashBenchmark %s in namespace %s: make it, or keep its report in a ConfigMap and name that.", name, namespace), nil
	case err != nil:
		return "", "", fmt.Errorf("looking up LiveStashBenchmark %s: %w", name, err)
	case !meta.IsStatusConditionTrue(earlier.Status.Conditions, v1alpha1.ConditionComplete) || earlier.Status.Report == nil:
		return "", fmt.Sprintf("LiveStashBenchmark %s has not finished: `kubectl wait livestashbenchmark/%s --for=condition=Complete --timeout=-1s`, "+
			"and then make this one anew.", name, name), nil
	}
	return earlier.Status.Report.ConfigMap, "", nil
}

// judgeAgainst holds the variants against the baseline, and notes what came out.
func judgeAgainst(b *v1alpha1.LiveStashBenchmark, so *report.Report) {
	if b.Spec.Thresholds.Against == nil {
		return
	}
	came := report.Against(*so, limitsOf(*b.Spec.Thresholds.Against))
	so.Against = &came
	b.Status.Against = &v1alpha1.BenchmarkAgainstStatus{Baseline: came.With, Verdict: v1alpha1.BenchmarkVerdict(came.Verdict), Message: came.Message}
}

// findKnees notes how much each variant carries, where that is sought.
func findKnees(b *v1alpha1.LiveStashBenchmark, so *report.Report) {
	if !seeks(b) {
		return
	}
	so.Knees, b.Status.Knees = report.Knees(*so), nil
	for _, knee := range so.Knees {
		b.Status.Knees = append(b.Status.Knees, v1alpha1.BenchmarkKneeStatus{
			Variant: knee.Variant, Size: int32(min(knee.Size, math.MaxInt32)), AtLeast: knee.AtLeast, Verdict: v1alpha1.BenchmarkVerdict(knee.Verdict), Message: knee.Message, //nolint:gosec // it is bounded
		})
	}
}

func (r *Reconciler) tellComparison(b *v1alpha1.LiveStashBenchmark) {
	came := b.Status.Comparison
	if came == nil {
		return
	}
	kind := corev1.EventTypeNormal
	if came.Verdict != v1alpha1.VerdictPassed {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(b, nil, kind, "Comparison"+string(came.Verdict), "Compare", "%s", reconcile.Shortened(cmp.Or(came.Message, "all limits of compareWith hold"), reconcile.MostNote))
}

// limitsOf are the limits that are set, by their names in the API, which are those of the figures in the report.
func limitsOf(factors v1alpha1.BenchmarkFactors) map[string]float64 {
	set, limits := map[string]string{}, map[string]float64{}
	text, err := json.Marshal(factors)
	if err == nil {
		err = json.Unmarshal(text, &set)
	}
	if err != nil {
		panic(err) // all of its fields are texts
	}
	for name, factor := range set {
		if limit, err := strconv.ParseFloat(factor, 64); err == nil { // the API server has seen that it is a number
			limits[name] = limit
		}
	}
	return limits
}

// inShort is what the verdict of a benchmark that is over means, in a sentence.
func inShort(b *v1alpha1.LiveStashBenchmark) string {
	var words []string
	for _, verdict := range []v1alpha1.BenchmarkVerdict{v1alpha1.VerdictErrored, v1alpha1.VerdictFailed, v1alpha1.VerdictPassed} {
		runs, of := 0, 0
		for _, row := range b.Status.Runs {
			if !row.Warmup {
				of++
			}
			if !row.Warmup && row.Verdict == verdict {
				runs++
			}
		}
		if runs > 0 {
			words = append(words, fmt.Sprintf("%d of %d runs %s", runs, of, verdict))
		}
	}
	text := strings.Join(words, ", ")
	if seeks(b) {
		var knees []string
		for _, knee := range b.Status.Knees {
			knees = append(knees, knee.Message)
		}
		return strings.Join(append(knees, text), "; ")
	}
	if c := b.Status.Comparison; c != nil && c.Verdict != v1alpha1.VerdictPassed {
		return text + "; " + c.Message
	}
	if a := b.Status.Against; a != nil && a.Verdict != v1alpha1.VerdictPassed {
		return text + "; " + a.Message
	}
	first := slices.IndexFunc(b.Status.Runs, func(row v1alpha1.BenchmarkRunStatus) bool {
		return !row.Warmup && row.Verdict != v1alpha1.VerdictPassed
	})
	if first >= 0 {
		text += fmt.Sprintf("; %s: %s", b.Status.Runs[first].Name, b.Status.Runs[first].Message)
	}
	return text
}
