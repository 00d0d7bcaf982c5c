package benchmark

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// A search goes on while its steps hold, and what does not hold is the answer and no failure. A first step that does not hold is one.
func TestSeek(t *testing.T) {
	for name, c := range map[string]struct {
		// held is how many steps hold.
		held    int
		verdict v1alpha1.BenchmarkVerdict
		size    int32
		says    string
	}{
		"knee":  {2, v1alpha1.VerdictPassed, 20, "None carries 20 connections; 40 connections did not hold: maxFailed: 50 % of 12000 requests failed"},
		"first": {0, v1alpha1.VerdictFailed, 0, "None does not carry the first step, 10 connections: maxFailed: 50 % of 12000 requests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBenchmark(t, suite.Namespace(t, api), name, func(spec *v1alpha1.LiveStashBenchmarkSpec) {
				spec.Scenario, spec.Runner, spec.Parallelism = v1alpha1.ScenarioRequests, v1alpha1.RunnerJob, nil
				spec.Matrix.Adapters = []v1alpha1.Adapter{v1alpha1.AdapterNone}
				spec.Matrix.Runs = []v1alpha1.BenchmarkRun{{Connections: 10, Duration: &metav1.Duration{Duration: time.Minute}}}
				spec.Matrix.Seek = &v1alpha1.BenchmarkSeek{Steps: 5}
			})
			for step := range c.held + 1 {
				reaches(t, b, "at its next step", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
					return len(s.Runs) == 5 && s.Runs[step].Runner != "" && s.Runs[step].Phase != v1alpha1.RunFinished
				})
				job, told := jobOf(t, b)
				if told["MAX_FAILED"] != "0.01" || told["CONNECTIONS"] != fmt.Sprint(10<<step) {
					t.Errorf("k6 is told %v", told)
				}
				failed := 0
				if step == c.held {
					failed = 6000
				}
				pod := newPod(t, b, job.Name)
				pod.Labels["batch.kubernetes.io/job-completion-index"] = "0"
				suite.Must(t, controllerutil.SetControllerReference(job, pod, scheme()))
				suite.Must(t, api.Update(t.Context(), pod))
				endPod(t, pod, 0, fmt.Sprintf(`{"version": 3, "testid": %q, "runner": 0, "runners": 1, "started_at": "2026-07-01T12:00:00Z", "ended_at": "2026-07-01T12:01:40Z", "completed": true,
					"client_delay": {"count": 900, "p99": 2.5}, "failed": {"yes": %d, "no": 6000}, "durations": {}, "scenario": "requests", "method": "POST", "path": "/api/sum",
					"connections_wanted": %d, "duration_s": 60, "ran_s": 60, "planned": %d, "connected": %d, "requests": 6000}`, job.Name, failed, 10<<step, 10<<step, 10<<step))
			}
			finished(t, b)
			knees := b.Status.Knees
			if b.Status.Verdict != c.verdict || len(knees) != 1 || knees[0].Size != c.size || knees[0].AtLeast || !strings.HasPrefix(knees[0].Message, c.says) {
				t.Errorf("the verdict is %s, and the knees are %+v", b.Status.Verdict, knees)
			}
			last := b.Status.Runs[4]
			if last.Verdict != "" || last.Attempt != 0 || !strings.HasPrefix(last.Message, "Not run: adapter None did not hold with") || b.Status.Progress != "5/5" {
				t.Errorf("the last step is %+v, and the progress %s", last, b.Status.Progress)
			}
			written := savedReport(t, b)
			if len(written.Runs) != c.held+1 || len(written.Knees) != 1 || string(written.Verdict) != string(c.verdict) || written.Spec.Thresholds["seek.p95"] != "1s" {
				t.Errorf("the report says %s of %d runs: %+v, %v", written.Verdict, len(written.Runs), written.Knees, written.Spec.Thresholds)
			}
		})
	}
}
