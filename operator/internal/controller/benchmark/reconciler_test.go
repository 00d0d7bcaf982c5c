package benchmark

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const fleetImage = "ghcr.io/acme/shop:1"

// newBenchmark makes a benchmark of one run with two runners against a URL of its own, changed by change.
func newBenchmark(t *testing.T, namespace, name string, change func(*v1alpha1.LiveStashBenchmarkSpec)) *v1alpha1.LiveStashBenchmark {
	t.Helper()
	b := &v1alpha1.LiveStashBenchmark{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.LiveStashBenchmarkSpec{
			Target:      v1alpha1.BenchmarkTarget{URL: "http://" + name + "." + namespace},
			Matrix:      &v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS}, Runs: []v1alpha1.BenchmarkRun{{Users: 40, TTL: metav1.Duration{Duration: 10 * time.Second}}}},
			Scenario:    v1alpha1.ScenarioReconnect,
			Parallelism: ptr.To[int32](2),
			Cooldown:    &metav1.Duration{},
		},
	}
	if change != nil {
		change(&b.Spec)
	}
	suite.Must(t, api.Create(t.Context(), b))
	return b
}

// changeSpec changes a benchmark's spec as `kubectl edit` would.
func changeSpec(t *testing.T, b *v1alpha1.LiveStashBenchmark, change func(*v1alpha1.LiveStashBenchmarkSpec)) {
	t.Helper()
	refresh(t, b)
	before := b.DeepCopy()
	change(&b.Spec)
	suite.Must(t, api.Patch(t.Context(), b, client.MergeFrom(before)))
}

func refresh(t *testing.T, object client.Object) {
	t.Helper()
	suite.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(object), object))
}

// reaches waits until the benchmark's status is as it should be.
func reaches(t *testing.T, b *v1alpha1.LiveStashBenchmark, what string, as func(v1alpha1.LiveStashBenchmarkStatus) bool) {
	t.Helper()
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if !as(b.Status) {
			return fmt.Errorf("%s is not %s: %+v", b.Name, what, b.Status)
		}
		return nil
	})
}

func finished(t *testing.T, b *v1alpha1.LiveStashBenchmark) v1alpha1.BenchmarkRunStatus {
	t.Helper()
	reaches(t, b, "finished", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Phase == v1alpha1.BenchmarkFinished })
	return b.Status.Runs[0]
}

// current is the run that is under way, or the first one when none is.
func current(b *v1alpha1.LiveStashBenchmark) *v1alpha1.BenchmarkRunStatus {
	for i := range b.Status.Runs {
		if b.Status.Runs[i].Verdict == "" {
			return &b.Status.Runs[i]
		}
	}
	return &b.Status.Runs[0]
}

// testRunOf waits for the TestRun of the benchmark's run that is under way.
func testRunOf(t *testing.T, b *v1alpha1.LiveStashBenchmark) *unstructured.Unstructured {
	t.Helper()
	var object *unstructured.Unstructured
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if len(b.Status.Runs) == 0 || current(b).Runner == "" {
			return fmt.Errorf("no run has begun: %+v", b.Status)
		}
		object = testRun(metav1.ObjectMeta{Namespace: b.Namespace, Name: current(b).Runner})
		return api.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	})
	return object
}

// stage is what k6-operator says of a TestRun.
func stage(t *testing.T, object *unstructured.Unstructured, stage string) {
	t.Helper()
	refresh(t, object)
	suite.Must(t, unstructured.SetNestedField(object.Object, stage, "status", "stage"))
	suite.Must(t, api.Update(t.Context(), object))
}

// newPod makes a pod of a test, as the controller of Jobs would.
func newPod(t *testing.T, b *v1alpha1.LiveStashBenchmark, job string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: job + "-pod", Labels: map[string]string{
			runner.BenchmarkLabel: b.Name, runner.TestLabel: current(b).Runner, batchv1.JobNameLabel: job,
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "k6", Image: "k6"}}},
	}
	suite.Must(t, api.Create(t.Context(), pod))
	return pod
}

// endPod is a container that has ended.
func endPod(t *testing.T, pod *corev1.Pod, exitCode int32, message string) {
	t.Helper()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "k6", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, Message: message}},
	}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
}

// reportOf is what a runner says when all went well.
func reportOf(b *v1alpha1.LiveStashBenchmark, number, recovered, lost int) string {
	return fmt.Sprintf(`{"version": 3, "testid": %q, "scenario": "reconnect", "adapter": "ets", "runner": %d, "runners": 2, "users": 40,
		"ttl_s": 10, "duration_s": 30, "ran_s": 30.1, "started_at": "2026-07-01T12:00:00.000Z", "ended_at": "2026-07-01T12:00:30.100Z",
		"completed": true, "failed_thresholds": [], "problem": null, "planned": 20, "connected": 20, "cycles": 100,
		"recovered": {"yes": %d, "no": %d}, "late": {"yes": 0, "no": 0}, "expired": {"yes": 0, "no": 0}, "dropped": 0, "client_delay": {"count": 900, "p99": 2.5}, "failed": {"yes": 0, "no": 300},
		"not_found": %d, "wrong_count": 0, "unfinished": 0, "connect_failed": 0, "error": 0, "errors": {}, "durations": {}}`,
		current(b).Runner, number, recovered, lost, lost)
}

// Nothing in a TestRun tells pass from fail: whatever its stage is, the runners decide.
func TestTestRunsThatGoWrong(t *testing.T) {
	cases := map[string]struct {
		happens func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured)
		verdict v1alpha1.BenchmarkVerdict
		says    string
	}{
		"all is well": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				for i := range 2 {
					endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80, 0))
				}
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictPassed,
		},
		"a threshold failed": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				for i := range 2 {
					endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 99, reportOf(b, i, 60, 20))
				}
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictFailed,
			says:    "minRecovered: 75 % of 160 returns",
		},
		"k6 was starved": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				for i := range 2 {
					starved := strings.Replace(reportOf(b, i, 60, 20), `"p99": 2.5`, `"p99": 2500`, i)
					endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 99, starved)
				}
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "The client was the bottleneck",
		},
		"the script has a syntax error": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				pod := newPod(t, b, run.GetName()+"-initializer")
				logsOfPods.Store(pod.Name, "time=\"2026-01-01T00:00:00Z\" level=error msg=\"SyntaxError: file:///test/x.js: Unexpected token (1:1)\"\n")
				endPod(t, pod, 1, "")
				stage(t, run, "error")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "k6 cannot read the script: SyntaxError: file:///test/x.js: Unexpected token (1:1)",
		},
		"k6-operator gives up and says nothing": {
			happens: func(t *testing.T, _ *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				stage(t, run, "error")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "its log says why",
		},
		"a runner never existed": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				endPod(t, newPod(t, b, run.GetName()+"-1"), 0, reportOf(b, 0, 80, 0))
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "Runner 2 of 2 was lost before it reported",
		},
		"a runner's pod is gone, and its Job failed": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				endPod(t, newPod(t, b, run.GetName()+"-1"), 0, reportOf(b, 0, 80, 0))
				failedJob(t, b, run.GetName()+"-2")
				stage(t, run, "started")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "Runner 2 of 2 was lost before it reported: Job has reached the specified backoff limit",
		},
		"every iteration throws": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				for i := range 2 {
					endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, strings.Replace(reportOf(b, i, 0, 0), `"cycles": 100`, `"cycles": 0`, 1))
				}
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    "No user got as far as a stash",
		},
		"setup throws": {
			happens: func(t *testing.T, b *v1alpha1.LiveStashBenchmark, run *unstructured.Unstructured) {
				for i := range 2 {
					pod := newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1))
					logsOfPods.Store(pod.Name, `level=error msg="Error: no \"options\" here"`)
					endPod(t, pod, 107, "")
				}
				stage(t, run, "finished")
			},
			verdict: v1alpha1.VerdictErrored,
			says:    `Runner 1 of 2 ended with exit code 107, and it left no report: Error: no "options" here`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBenchmark(t, suite.Namespace(t, api), "wrong", nil)
			c.happens(t, b, testRunOf(t, b))
			row := finished(t, b)
			if row.Verdict != c.verdict || !strings.Contains(row.Message, c.says) {
				t.Errorf("the run is %s because %q, want %s because %q", row.Verdict, row.Message, c.verdict, c.says)
			}
			if b.Status.Verdict != c.verdict || b.Status.Progress != "1/1" || !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionComplete) {
				t.Errorf("the status is %+v", b.Status)
			}
			written := savedReport(t, b)
			if len(written.Runs) != 1 || string(written.Runs[0].Verdict) != string(c.verdict) || written.FinishedAt.IsZero() {
				t.Errorf("the report says %+v", written)
			}
			if bound := strings.Contains(c.says, "bottleneck"); bound != written.Runs[0].ClientBound || bound && (row.ClientDelay == nil || row.ClientDelay.Duration != 2500*time.Millisecond) {
				t.Errorf("the client's delay is %v, and the report says that it was the bottleneck: %v", row.ClientDelay, written.Runs[0].ClientBound)
			}
			if err := api.Get(t.Context(), client.ObjectKey{Namespace: b.Namespace, Name: row.Runner}, testRun(metav1.ObjectMeta{})); !apierrors.IsNotFound(err) {
				t.Errorf("the TestRun is still there: %v", err)
			}
		})
	}
}

// A warm-up that fails fails nothing: its row says what became of it, and the report has the run that counts.
func TestWarmupDoesNotCount(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "warm", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Matrix.Warmup = 1 })
	for round, lost := range []int{40, 0} {
		run := testRunOf(t, b)
		for i := range 2 {
			endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80-lost, lost))
		}
		reaches(t, b, "further", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Progress == fmt.Sprintf("%d/2", round+1) })
		if round == 0 && (b.Status.Verdict != "" || b.Status.Report != nil) {
			t.Errorf("after the warm-up alone the verdict is %q, and the report is %v", b.Status.Verdict, b.Status.Report)
		}
	}
	if row := finished(t, b); row.Name != "warm-w1-ets" || !row.Warmup || row.Verdict != v1alpha1.VerdictFailed {
		t.Errorf("the warm-up is %+v", row)
	}
	if b.Status.Verdict != v1alpha1.VerdictPassed {
		t.Errorf("the verdict is %s", b.Status.Verdict)
	}
	if written := savedReport(t, b); len(written.Runs) != 1 || written.Runs[0].Name != "warm-01-ets" || written.Verdict != report.VerdictPassed {
		t.Errorf("the report says %+v", written)
	}
}

func failedJob(t *testing.T, b *v1alpha1.LiveStashBenchmark, name string) {
	t.Helper()
	labels := map[string]string{runner.BenchmarkLabel: b.Name, runner.TestLabel: b.Status.Runs[0].Runner}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name, Labels: labels},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "k6", Image: "k6"}},
		}}},
	}
	suite.Must(t, api.Create(t.Context(), job))
	now := metav1.Now()
	message := "Job has reached the specified backoff limit"
	job.Status.StartTime = &now
	job.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: message, LastTransitionTime: now},
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: message, LastTransitionTime: now},
	}
	suite.Must(t, api.Status().Update(t.Context(), job))
}

func savedReport(t *testing.T, b *v1alpha1.LiveStashBenchmark) report.Report {
	t.Helper()
	if b.Status.Report == nil {
		t.Fatal("there is no report")
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Status.Report.ConfigMap}}
	refresh(t, config)
	if !metav1.IsControlledBy(config, b) {
		t.Errorf("the report does not go with the benchmark: %v", config.OwnerReferences)
	}
	var read report.Report
	suite.Must(t, json.Unmarshal([]byte(config.Data[report.FileJSON]), &read))
	return read
}

// Somebody else's ConfigMaps with the names that a benchmark writes to are neither read, written nor deleted.
func TestForeignConfigMapsAreLeftAlone(t *testing.T) {
	namespace := suite.Namespace(t, api)
	var foreign []*corev1.ConfigMap
	for _, name := range []string{"taken-report", "taken-samples"} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"mine": "x"}}
		suite.Must(t, api.Create(t.Context(), config))
		foreign = append(foreign, config)
	}
	b := newBenchmark(t, namespace, "taken", nil)
	reaches(t, b, "in trouble", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		found := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReconcileSucceeded)
		return found != nil && found.Reason == v1alpha1.ReasonNameConflict &&
			strings.Contains(found.Message, "ConfigMap taken-report exists and does not belong to this LiveStashBenchmark")
	})

	version := foreign[0].ResourceVersion
	refresh(t, foreign[0])
	if foreign[0].ResourceVersion != version {
		t.Errorf("it was changed: %+v", foreign[0])
	}
	if b.Status.StartedAt != nil {
		t.Error("it has begun, and there is no place for its report")
	}
	suite.Must(t, api.Delete(t.Context(), foreign[0]))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
	run := testRunOf(t, b)
	for i := range 2 {
		endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80, 0))
	}
	stage(t, run, "finished")
	finished(t, b)
	savedReport(t, b)
	refresh(t, foreign[1])
}

// A TestRun that never starts is given up at the deadline, with what it waited for.
func TestDeadline(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "late", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.RunDeadline = &metav1.Duration{Duration: time.Minute}
	})
	run := testRunOf(t, b)
	stage(t, run, "created")
	hasSeen(t, operator.tests, run)
	operatorTime.Ahead.Add(int64(2 * time.Minute))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
	row := finished(t, b)
	if row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "deadline of 1m0s") || !strings.Contains(row.Message, "stage created") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}

	operatorTime.Ahead.Add(int64(2 * time.Hour))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](60) })
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the benchmark is still there after its ttlSecondsAfterFinished: %w", err)
		}
		return nil
	})
}

// spec.suspend stops the run that is under way; afterwards it is run again, under another name.
func TestSuspend(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "paused", nil)
	run := testRunOf(t, b)
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	reaches(t, b, "suspended", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		return s.Phase == v1alpha1.BenchmarkSuspended && s.Runs[0].Phase == v1alpha1.RunPending
	})
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(run), run); !apierrors.IsNotFound(err) {
		t.Errorf("the TestRun goes on: %v", err)
	}
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = false })
	reaches(t, b, "running again", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Attempt == 2 })
	if again := testRunOf(t, b); again.GetName() == run.GetName() {
		t.Errorf("the second attempt has the name of the first, %s", again.GetName())
	}
}

// Whoever deletes a test ends its run. Of what is removed then, nobody tells when the last is gone.
func TestATestIsDeleted(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "deleted", nil)
	run := testRunOf(t, b)
	stage(t, run, "started")
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	suite.Must(t, api.Delete(t.Context(), run))
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || row.Message != "The test "+row.Runner+" was deleted while it ran." {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
}

// While k6 runs, time alone changes what the status says.
func TestARunIsLookedAtEveryMinute(t *testing.T) {
	p := &pass{row: &v1alpha1.BenchmarkRunStatus{Name: "01-ets", Phase: v1alpha1.RunRunning}, runner: &runner.Job{}}
	p.seen.Made = true
	suite.Must(t, (&Reconciler{}).launch(t.Context(), p))
	result, err := p.End(nil, func(error) error { return nil })
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("the next look is in %s, %v", result.RequeueAfter, err)
	}
}

// An operator that starts anew goes on where the last one was.
func TestRestart(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "restarted", nil)
	run := testRunOf(t, b)
	stage(t, run, "started")
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	suite.Must(t, operator.stop())
	for i := range 2 {
		endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80, 0))
	}
	var err error
	operator, err = startOperator()
	suite.Must(t, err)
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictPassed || row.Attempt != 1 || row.Runner != run.GetName() {
		t.Errorf("the run ended as %+v", row)
	}
}

// The Job's runners begin when all are ready, and a failed one does not stop the others.
func TestJob(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "job", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Runner = v1alpha1.RunnerJob })
	job := &batchv1.Job{}
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil || len(b.Status.Runs) == 0 {
			return fmt.Errorf("no run: %w", err)
		}
		return api.Get(t.Context(), client.ObjectKey{Namespace: b.Namespace, Name: b.Status.Runs[0].Runner}, job)
	})
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: job.Name}}
	refresh(t, policy)
	if !metav1.IsControlledBy(policy, b) || policy.Spec.PodSelector.MatchLabels[runner.TestLabel] != job.Name {
		t.Errorf("the runners' NetworkPolicy is %+v", policy)
	}
	if !metav1.IsControlledBy(job, b) || *job.Spec.BackoffLimitPerIndex != 0 || *job.Spec.Completions != 2 {
		t.Errorf("the Job is %+v", job)
	}
	var pods []*corev1.Pod
	for i := range 2 {
		pod := newPod(t, b, fmt.Sprintf("%s-%d", job.Name, i))
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(i)
		suite.Must(t, controllerutil.SetControllerReference(job, pod, scheme()))
		suite.Must(t, api.Update(t.Context(), pod))
		pod.Status.PodIP = "10.0.0.1"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "k6", Ready: true}}
		suite.Must(t, api.Status().Update(t.Context(), pod))
		pods = append(pods, pod)
		refresh(t, b)
		if i == 0 && b.Status.Runs[0].Phase != v1alpha1.RunPreparing {
			t.Errorf("the run is %s with one runner of two", b.Status.Runs[0].Phase)
		}
	}
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	for i, pod := range pods {
		endPod(t, pod, 0, reportOf(b, i, 80, 0))
	}
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictPassed || row.Recovered != "1.0000" {
		t.Errorf("the run ended as %+v", row)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); !apierrors.IsNotFound(err) {
		t.Errorf("the runners' NetworkPolicy outlives them: %v", err)
	}
}

// A fresh fleet for each run: made as the template says, awaited, and gone with its last pod before the next run.
func TestTemplate(t *testing.T) {
	space := suite.Namespace(t, api)
	text := fmt.Sprintf(`{"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashBenchmark", "metadata": {"name": "fleets", "namespace": %q},
		"spec": {"scenario": "Reconnect", "parallelism": 2, "cooldown": "0s", "target": {"template": {"spec": {"image": %q, "replicas": 1,
		"redis": {"managed": {}}, "topologySpread": "Disabled"}}}, "matrix": {"adapters": ["ETS", "None"], "runs": [{"users": 40, "ttl": "10s"}]}}}`, space, fleetImage)
	object := &unstructured.Unstructured{}
	suite.Must(t, json.Unmarshal([]byte(text), &object.Object))
	suite.Must(t, api.Create(t.Context(), object))
	b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "fleets"}}

	made := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "fleets-01-ets"}}
	suite.Eventually(t, func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(made), made) })
	refresh(t, b)
	if !metav1.IsControlledBy(made, b) || made.Spec.Adapter != v1alpha1.AdapterETS || made.TTLSeconds() != 10 || made.Spec.Redis != nil ||
		made.Spec.TopologySpread != v1alpha1.SpreadDisabled || len(made.Spec.Env) != 2 || made.Spec.Env[0].Value != "150" {
		t.Errorf("the fleet is %+v", made.Spec)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "fleets-01-ets-0", Finalizers: []string{"livestash.dev/test"}, Labels: map[string]string{render.ClusterLabel: made.Name, render.ComponentLabel: render.FleetComponent}},
		Spec:       corev1.PodSpec{NodeName: "worker-7", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	suite.Must(t, api.Create(t.Context(), pod))
	serves(t, made)

	run := testRunOf(t, b)
	if args := fmt.Sprint(run.Object["spec"]); !strings.Contains(args, "http://fleets-01-ets-0.fleets-01-ets-nodes."+space+".svc.cluster.local:4000") {
		t.Errorf("the users go to %s", args)
	}
	stage(t, run, "error")
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the fleet is still there: %w", err)
		}
		return nil
	})
	next := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "fleets-02-none"}}
	time.Sleep(500 * time.Millisecond)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(next), next); !apierrors.IsNotFound(err) {
		t.Errorf("the next fleet was made while a pod of the last one is still there: %v", err)
	}
	reaches(t, b, "told what it waits for", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		complete := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete)
		return complete != nil && complete.Message == "fleets-01-ets is over: what it made is being removed: pod fleets-01-ets-0 on node worker-7"
	})
	refresh(t, pod)
	pod.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), pod))
	suite.Must(t, client.IgnoreNotFound(api.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	suite.Eventually(t, func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(next), next) })
}

// What the API server does not take as a fleet, or what cannot be judged by it, ends the benchmark before anything is made.
func TestRefusedTemplate(t *testing.T) {
	for name, c := range map[string]struct{ fleet, matrix, says string }{
		"refused":   {`"http": {"port": 4369}`, `"matrix": {"runs": [{"users": 40, "ttl": "10s"}]}`, "http.port must not be 4369"},
		"agentless": {`"agent": {"enabled": false}`, `"matrix": {"runs": [{"users": 40, "ttl": "10s"}]}, "thresholds": {"minCollections": 40}`, "thresholds.minCollections is asked of the agents"},
	} {
		space := suite.Namespace(t, api)
		text := fmt.Sprintf(`{"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashBenchmark", "metadata": {"name": %q, "namespace": %q},
			"spec": {"target": {"template": {"spec": {"image": %q, %s}}}, %s}}`, name, space, fleetImage, c.fleet, c.matrix)
		object := &unstructured.Unstructured{}
		suite.Must(t, json.Unmarshal([]byte(text), &object.Object))
		suite.Must(t, api.Create(t.Context(), object))
		b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
		row := finished(t, b)
		if b.Status.Progress != "5/5" || row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, c.says) {
			t.Errorf("%s: the status is %+v", name, b.Status)
		}
		if runs := savedReport(t, b).Runs; len(runs) != 5 {
			t.Errorf("%s: the report has %d runs", name, len(runs))
		}
	}
}

// What the API server refuses may be long, and what is said of it must not be: an object must stay small, and no event may have it all.
func TestLongRefusalsAreTold(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "many", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Runner = v1alpha1.RunnerJob
		spec.RunnerTemplate.NodeSelector = map[string]string{}
		for n := range 64 {
			spec.RunnerTemplate.NodeSelector[fmt.Sprintf("no label %d%s", n, strings.Repeat("x", 1000))] = "x"
		}
	})
	reaches(t, b, "over", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Verdict == v1alpha1.VerdictErrored })
	row := b.Status.Runs[0]
	if !strings.Contains(row.Message, "no label") || len(row.Message) > reconcile.MostMessage {
		t.Errorf("the run has %d bytes of message: %.100s", len(row.Message), row.Message)
	}
	suite.Eventually(t, func() error {
		events := &corev1.EventList{}
		if err := api.List(t.Context(), events, client.InNamespace(b.Namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "no label") }) {
			return errors.New("no event tells what is wrong")
		}
		return nil
	})
}
