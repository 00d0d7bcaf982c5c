package benchmark

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// Scenarios in which nobody stashes, from the matrix to the report: k6 is told its load, and the rows and the report say what came of it.
func TestRequestsAndRooms(t *testing.T) {
	const of = `{"version": 3, "testid": %q, "runner": 0, "runners": 1, "started_at": "2026-07-01T12:00:00Z", "ended_at": "2026-07-01T12:01:40Z", "completed": true,
		"client_delay": {"count": 900, "p99": 2.5}, "failed": {"yes": 0, "no": 6000}, "durations": {}, `
	cases := map[string]struct {
		change func(*v1alpha1.LiveStashBenchmarkSpec)
		// told is some of what k6 is told, and says what it leaves.
		script string
		told   map[string]string
		says   string
		row    v1alpha1.BenchmarkRunStatus
		asked  string
		counts map[string]int64
	}{
		"requests": {
			change: func(spec *v1alpha1.LiveStashBenchmarkSpec) {
				spec.Scenario = v1alpha1.ScenarioRequests
				spec.Matrix.Runs = []v1alpha1.BenchmarkRun{{Rate: 100}}
			},
			script: "/loadtests/k6/scenarios/requests.js",
			told:   map[string]string{"CONNECTIONS": "100", "RATE": "100", "DURATION": "60s", "METHOD": "POST", "REQUEST_PATH": "/api/sum"},
			says: of + `"scenario": "requests", "method": "POST", "path": "/api/sum", "connections_wanted": 100, "rate": 100, "duration_s": 60, "ran_s": 60,
				"planned": 100, "connected": 100, "requests": 6000, "unsent": 0, "wrong": 0}`,
			row:    v1alpha1.BenchmarkRunStatus{Users: 100, Rate: 100, PerSecond: "100.0"},
			asked:  "POST /api/sum",
			counts: map[string]int64{report.CountGood: 6000, report.CountRequests: 6000},
		},
		"rooms": {
			change: func(spec *v1alpha1.LiveStashBenchmarkSpec) {
				spec.Scenario, spec.Rooms = v1alpha1.ScenarioRooms, &v1alpha1.BenchmarkRooms{Size: 20, Speakers: ptr.To[int32](2), Every: "1s"}
				spec.Matrix.Runs = []v1alpha1.BenchmarkRun{{Users: 40, Ramp: &metav1.Duration{Duration: 20 * time.Second}, Duration: &metav1.Duration{Duration: time.Minute}}}
			},
			script: "/loadtests/k6/scenarios/rooms.js",
			told:   map[string]string{"USERS": "40", "ROOM_SIZE": "20", "SPEAKERS": "2", "EVERY": "1s", "BYTES": "64", "DURATION": "60s", "RAMP": "20s"},
			says: of + `"scenario": "rooms", "protocol": "phoenix", "users": 40, "room_size": 20, "speakers": 2, "bytes": 64, "duration_s": 60, "ran_s": 61, "planned": 40, "connected": 40,
				"messages": 6000, "deliveries": 120000, "duplicates": 0, "misdelivered": 0}`,
			row:    v1alpha1.BenchmarkRunStatus{Users: 40, PerSecond: "3000.0"},
			asked:  "rooms of 20, 2 of whom say 64 bytes every 1s",
			counts: map[string]int64{report.CountGood: 6000, report.CountMessages: 6000, report.CountDeliveries: 120_000},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBenchmark(t, suite.Namespace(t, api), name, func(spec *v1alpha1.LiveStashBenchmarkSpec) {
				spec.Runner, spec.Parallelism, spec.Matrix.Adapters = v1alpha1.RunnerJob, nil, []v1alpha1.Adapter{v1alpha1.AdapterNone}
				c.change(spec)
			})
			job, told := jobOf(t, b)
			container := job.Spec.Template.Spec.Containers[0]
			if !slices.Contains(container.Args, c.script) {
				t.Errorf("k6 runs %v, not %s", container.Args, c.script)
			}
			for option, want := range c.told {
				if told[option] != want {
					t.Errorf("k6 is told %s=%s, want %s", option, told[option], want)
				}
			}
			if told["ADAPTER"] != "" || told["TTL"] != "" {
				t.Errorf("k6 is told of stashes: %v", told)
			}
			pod := newPod(t, b, job.Name)
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = "0"
			suite.Must(t, controllerutil.SetControllerReference(job, pod, scheme()))
			suite.Must(t, api.Update(t.Context(), pod))
			endPod(t, pod, 0, fmt.Sprintf(c.says, current(b).Runner))

			row := finished(t, b)
			if row.Verdict != v1alpha1.VerdictPassed || row.Users != c.row.Users || row.Rate != c.row.Rate || row.PerSecond != c.row.PerSecond || row.TTL.Duration != 0 || row.Recovered != "" {
				t.Errorf("the row is %+v, want %+v", row, c.row)
			}
			written := savedReport(t, b)
			spec, run := written.Spec, written.Runs[0]
			if spec.Asked != c.asked || spec.PayloadKeys != 0 || spec.Thresholds["minRecovered"] != "" || spec.Thresholds["maxFailed"] != "0.01" || run.Rate != int(c.row.Rate) {
				t.Errorf("the report says %+v of a run with the rate %d", spec, run.Rate)
			}
			for count, want := range c.counts {
				if run.Counts.Of[count] != want {
					t.Errorf("the report has %d of %s, want %d", run.Counts.Of[count], count, want)
				}
			}
		})
	}
}

// jobOf waits for the Job of a benchmark's run, and returns it with what its runners are told.
func jobOf(t *testing.T, b *v1alpha1.LiveStashBenchmark) (job *batchv1.Job, told map[string]string) {
	t.Helper()
	job, told = &batchv1.Job{}, map[string]string{}
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if len(b.Status.Runs) == 0 {
			return fmt.Errorf("no run has begun: %+v", b.Status)
		}
		return api.Get(t.Context(), client.ObjectKey{Namespace: b.Namespace, Name: current(b).Runner}, job)
	})
	for _, variable := range job.Spec.Template.Spec.Containers[0].Env {
		told[variable.Name] = variable.Value
	}
	return job, told
}

// A fresh fleet for a scenario in which nobody stashes is told nothing of stashes, and has the TTL of its template.
func TestAFleetWithoutStashes(t *testing.T) {
	b := &v1alpha1.LiveStashBenchmark{}
	b.Spec.Scenario, b.Spec.Target.Template = v1alpha1.ScenarioRooms, &v1alpha1.BenchmarkTemplate{}
	b.Spec.Matrix = &v1alpha1.BenchmarkMatrix{Runs: []v1alpha1.BenchmarkRun{{Users: 50}}}
	suite.Must(t, json.Unmarshal([]byte(`{"image": "i"}`), &b.Spec.Target.Template.Spec))
	made, err := freshFleet(b, loadtest.Plan(b)[0])
	suite.Must(t, err)
	got, err := json.Marshal(made.Object["spec"])
	suite.Must(t, err)
	if want := `{"adapter":"None","image":"i"}`; string(got) != want {
		t.Errorf("the fleet is %s, want %s", got, want)
	}
}
