package benchmark

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// returned is a runner's report with 80 returns in the bucket from 2^power to 2^(power+1) ms.
func returned(b *v1alpha1.LiveStashBenchmark, number, power int) string {
	least := 1 << power
	durations := fmt.Sprintf(`"durations": {"reconnect": {"count": 80, "sum": %d, "min": %d, "max": %d, "scale": 0, "offset": %d, "counts": [80]}}`,
		80*least, least, 2*least, power)
	return strings.Replace(reportOf(b, number, 80, 0), `"durations": {}`, durations, 1)
}

// runsWith runs a benchmark to its end, all of whose returns took such a time.
func runsWith(t *testing.T, b *v1alpha1.LiveStashBenchmark, power int) {
	t.Helper()
	run := testRunOf(t, b)
	for i := range 2 {
		endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, returned(b, i, power))
	}
	finished(t, b)
}

func conditions(b *v1alpha1.LiveStashBenchmark) string {
	told := ""
	for _, kind := range []string{v1alpha1.ConditionPassed, v1alpha1.ConditionFailed} {
		if found := meta.FindStatusCondition(b.Status.Conditions, kind); found != nil {
			told += fmt.Sprintf("%s=%s (%s) ", kind, found.Status, found.Reason)
		}
	}
	return strings.TrimSpace(told)
}

// A benchmark that is slower than an earlier one by more than it may be has failed, with both numbers, however good its own runs are.
// What waits for one of its conditions hears of it.
func TestCompareWith(t *testing.T) {
	namespace := suite.Namespace(t, api)
	before := newBenchmark(t, namespace, "main", nil)
	suite.Eventually(t, func() error {
		refresh(t, before)
		if told := conditions(before); told != "" || len(before.Status.Runs) == 0 {
			return fmt.Errorf("before the end the conditions are %q, and the runs %v", told, before.Status.Runs)
		}
		return nil
	})
	runsWith(t, before, 3)
	if got := conditions(before); got != "Passed=True (Passed) Failed=False (Passed)" || before.Status.Comparison != nil {
		t.Errorf("the conditions are %q, and the comparison %v", got, before.Status.Comparison)
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: before.Status.Report.ConfigMap}}
	refresh(t, kept)
	copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}, Data: map[string]string{report.FileJSON: kept.Data[report.FileJSON]}}
	suite.Must(t, api.Create(t.Context(), copied))

	cases := map[string]struct {
		with       v1alpha1.BenchmarkComparison
		power      int
		conditions string
		says       string
	}{
		"slower": {
			v1alpha1.BenchmarkComparison{BenchmarkRef: &v1alpha1.BenchmarkReference{Name: "main"}}, 5,
			"Passed=False (Failed) Failed=True (Failed)",
			"Compared with main-report: ETS, 40 users, TTL 10 s, 30 s with a ramp of 7.5 s: p95 of returns 42.7 ms, and 10.7 ms there: 4 times as much, at most 1.5 times is allowed.",
		},
		"the same": {
			v1alpha1.BenchmarkComparison{ConfigMapRef: &v1alpha1.ReportConfigMapReference{Name: "kept"}}, 3,
			"Passed=True (Passed) Failed=False (Passed)", "",
		},
	}
	number := 0
	for name, c := range cases {
		number++
		t.Run(name, func(t *testing.T) {
			c.with.AtMost = v1alpha1.BenchmarkFactors{Reconnect: "1.5"}
			b := newBenchmark(t, namespace, fmt.Sprintf("change-%d", number), func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.CompareWith = &c.with })
			runsWith(t, b, c.power)
			came := b.Status.Comparison
			if got := conditions(b); got != c.conditions || came == nil || came.Message != c.says {
				t.Fatalf("the conditions are %q, and the comparison %+v", got, came)
			}
			written := savedReport(t, b)
			if written.Comparison == nil || string(written.Verdict) != string(b.Status.Verdict) || len(written.Comparison.Figures) != 1 {
				t.Errorf("the report says %s, and of the comparison %+v", written.Verdict, written.Comparison)
			}
			failed := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionFailed)
			if !strings.HasPrefix(failed.Message, "1 of 1 runs Passed") || !strings.Contains(failed.Message, c.says) {
				t.Errorf("the condition Failed says %q", failed.Message)
			}
		})
	}
}

// Without the report to compare with, nothing begins: after hours it would be too late.
func TestNothingToCompareWith(t *testing.T) {
	namespace := suite.Namespace(t, api)
	newBenchmark(t, namespace, "begun", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	suite.Must(t, api.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secretive"}, Data: map[string]string{report.FileJSON: "hunter2"},
	}))
	ofMap := func(name string) v1alpha1.BenchmarkComparison {
		return v1alpha1.BenchmarkComparison{ConfigMapRef: &v1alpha1.ReportConfigMapReference{Name: name}}
	}
	ofBenchmark := func(name string) v1alpha1.BenchmarkComparison {
		return v1alpha1.BenchmarkComparison{BenchmarkRef: &v1alpha1.BenchmarkReference{Name: name}}
	}
	for name, c := range map[string]struct {
		with v1alpha1.BenchmarkComparison
		says string
	}{
		"no-map":       {ofMap("nothing"), "There is no ConfigMap nothing in namespace " + namespace},
		"no-report":    {ofMap("secretive"), "ConfigMap secretive has no key report.json with a report of schema version 2"},
		"no-benchmark": {ofBenchmark("nobody"), "There is no LiveStashBenchmark nobody in namespace " + namespace},
		"not-finished": {ofBenchmark("begun"), "LiveStashBenchmark begun has not finished"},
	} {
		t.Run(name, func(t *testing.T) {
			c.with.AtMost = v1alpha1.BenchmarkFactors{Memory: "1.1"}
			b := newBenchmark(t, namespace, name, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.CompareWith = &c.with })
			row := finished(t, b)
			if row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, c.says) || row.Attempt != 0 {
				t.Errorf("the run is %+v", row)
			}
			if strings.Contains(fmt.Sprint(b.Status), "hunter2") {
				t.Errorf("what the ConfigMap holds is in the status: %+v", b.Status)
			}
			if got := conditions(b); got != "Passed=False (Errored) Failed=True (Errored)" {
				t.Errorf("the conditions are %q", got)
			}
			tests := &unstructured.UnstructuredList{}
			tests.SetGroupVersionKind(testRun(metav1.ObjectMeta{}).GroupVersionKind())
			suite.Must(t, api.List(t.Context(), tests))
			for i := range tests.Items {
				if tests.Items[i].GetNamespace() == namespace {
					t.Errorf("a TestRun was made: %s", tests.Items[i].GetName())
				}
			}
		})
	}
}

// Every limit of the API is a figure of the report's, and every figure has its limit.
func TestLimitsAreTheReportsFigures(t *testing.T) {
	var factors v1alpha1.BenchmarkFactors
	fields := reflect.ValueOf(&factors).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetString("1.5")
	}
	limits := limitsOf(factors)
	if names, figures := slices.Sorted(maps.Keys(limits)), slices.Sorted(slices.Values(report.ComparableFigures())); !slices.Equal(names, figures) || limits["memory"] != 1.5 {
		t.Errorf("the limits are %v, and the figures %v", limits, figures)
	}
	if len(limits) != fields.NumField() {
		t.Errorf("%d limits of %d fields", len(limits), fields.NumField())
	}
	if limits := limitsOf(v1alpha1.BenchmarkFactors{CPU: "1.1"}); len(limits) != 1 || limits["cpu"] != 1.1 {
		t.Errorf("of one: %v", limits)
	}
}

// Variants are held against the baseline when all runs are over: what is over its limit fails the benchmark, with both numbers.
func TestAgainst(t *testing.T) {
	for name, c := range map[string]struct {
		limit   string
		verdict v1alpha1.BenchmarkVerdict
		says    string
	}{
		"holds": {"4.5", v1alpha1.VerdictPassed, ""},
		"fails": {"1.5", v1alpha1.VerdictFailed, "Compared with plain: slow, 40 users, TTL 10 s, 30 s with a ramp of 7.5 s: p95 of returns 42.8 ms, and 10.7 ms with plain: 4 times as much, at most 1.5 times is allowed."},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.LiveStashBenchmark{}
			b.Spec.Scenario, b.Spec.Thresholds.Against = v1alpha1.ScenarioReconnect, &v1alpha1.BenchmarkFactors{Reconnect: c.limit}
			b.Spec.Matrix = &v1alpha1.BenchmarkMatrix{Variants: []v1alpha1.BenchmarkVariant{{Name: "plain"}, {Name: "slow"}}}
			so := report.Report{Spec: specOf(b, report.Spec{})}
			for _, variant := range []string{"plain", "slow"} {
				so.Runs = append(so.Runs, report.Run{
					Variant: variant, Adapter: "ETS", Users: 40, TTLSeconds: 10, DurationSeconds: 30, RampSeconds: 7.5, Verdict: report.VerdictPassed,
					Durations: map[string]report.Duration{"reconnect": {Count: 9, P95: map[string]float64{"plain": 10.7, "slow": 42.8}[variant]}},
				})
			}
			b.Status.Runs = []v1alpha1.BenchmarkRunStatus{{Verdict: v1alpha1.VerdictPassed}}
			judgeAgainst(b, &so)
			came := b.Status.Against
			if came == nil || came.Baseline != "plain" || came.Verdict != c.verdict || strings.ReplaceAll(came.Message, "\u00a0", " ") != c.says || so.Against == nil {
				t.Fatalf("it came to %+v", came)
			}
			if got := verdictOf(b); got != c.verdict {
				t.Errorf("the benchmark is %s", got)
			}
			if told := so.Spec.Thresholds["against.reconnect"]; told != c.limit {
				t.Errorf("the report says that the limit is %q", told)
			}
			if text := inShort(b); c.says != "" && !strings.Contains(text, "4 times as much") {
				t.Errorf("in short: %s", text)
			}
		})
	}
}
