package loadtest

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func searched(scenario v1alpha1.BenchmarkScenario, first v1alpha1.BenchmarkRun, seek v1alpha1.BenchmarkSeek) []Run {
	b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "knee"}}
	b.Spec.Scenario = scenario
	b.Spec.Matrix = &v1alpha1.BenchmarkMatrix{
		Runs: []v1alpha1.BenchmarkRun{first}, Seek: &seek, Warmup: 1, Repeat: 2, Variants: []v1alpha1.BenchmarkVariant{{Name: "a"}, {Name: "b"}},
	}
	return Plan(b)
}

// Steps are larger and larger, of whole rooms, and as many users come in a second as in the first. A warm-up is of the first.
func TestStepsOfASearch(t *testing.T) {
	first := v1alpha1.BenchmarkRun{Users: 100, Ramp: &metav1.Duration{Duration: 10 * time.Second}, Duration: &metav1.Duration{Duration: time.Minute}}
	runs := searched(v1alpha1.ScenarioRooms, first, v1alpha1.BenchmarkSeek{Steps: 3, Factor: "1.7"})
	if len(runs) != 2+3*2*2 || !runs[0].Warmup || runs[0].Users != 100 || runs[0].While != nil {
		t.Fatalf("the plan is %+v", runs)
	}
	for place, want := range map[int]struct {
		users, step    int
		ramp, duration time.Duration
	}{
		2: {100, 0, 10 * time.Second, 60 * time.Second}, 6: {200, 1, 20 * time.Second, 70 * time.Second}, 13: {300, 2, 30 * time.Second, 80 * time.Second},
	} {
		got := runs[place]
		if int(got.Users) != want.users || got.Step != want.step || got.Ramp != want.ramp || got.Duration != want.duration || got.While == nil || got.Deadline != want.duration+slack {
			t.Errorf("run %d is %+v, want %+v", place, got, want)
		}
	}
	for name, c := range map[string]struct {
		first v1alpha1.BenchmarkRun
		of    func(Run) int32
		want  []int32
	}{
		"a rate":      {v1alpha1.BenchmarkRun{Rate: 400_000, Connections: 7}, func(r Run) int32 { return r.Rate }, []int32{400_000, 800_000}},
		"connections": {v1alpha1.BenchmarkRun{Connections: 3}, func(r Run) int32 { return r.Users }, []int32{3, 6, 12}},
	} {
		runs := searched(v1alpha1.ScenarioRequests, c.first, v1alpha1.BenchmarkSeek{Steps: 3, Factor: "2"})
		if len(runs) != 2+len(c.want)*4 {
			t.Errorf("%s: %d runs", name, len(runs))
			continue
		}
		for step, want := range c.want {
			if got := c.of(runs[2+4*step]); got != want {
				t.Errorf("%s: step %d has %d, want %d", name, step, got, want)
			}
		}
	}
}

// However small the factor is, each step is larger than the one before: else a size that did not hold would be tried again as another one.
func TestStepsOfASmallFactor(t *testing.T) {
	rate := func(r Run) int32 { return r.Rate }
	users := func(r Run) int32 { return r.Users }
	for name, c := range map[string]struct {
		scenario v1alpha1.BenchmarkScenario
		first    v1alpha1.BenchmarkRun
		runners  *int32
		of       func(Run) int32
		want     []int32
	}{
		"whole rooms":                   {v1alpha1.ScenarioRooms, v1alpha1.BenchmarkRun{Users: 250}, nil, users, []int32{250, 300, 350, 400, 450, 500}},
		"a rate":                        {v1alpha1.ScenarioRequests, v1alpha1.BenchmarkRun{Rate: 5, Connections: 90}, nil, rate, []int32{5, 6, 7, 8, 9, 10}},
		"one connection":                {v1alpha1.ScenarioRequests, v1alpha1.BenchmarkRun{Connections: 1}, nil, users, []int32{1, 2, 3, 4, 5, 6}},
		"as many for each of 4 runners": {v1alpha1.ScenarioRequests, v1alpha1.BenchmarkRun{Connections: 3}, ptr.To[int32](4), users, []int32{4, 8, 12, 16, 20, 24}},
	} {
		b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "knee"}}
		b.Spec.Scenario, b.Spec.Parallelism = c.scenario, c.runners
		b.Spec.Matrix = &v1alpha1.BenchmarkMatrix{Runs: []v1alpha1.BenchmarkRun{c.first}, Seek: &v1alpha1.BenchmarkSeek{Steps: 6, Factor: "1.1"}}
		var got []int32
		for _, run := range Plan(b) {
			got = append(got, c.of(run))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the steps have %v, want %v", name, got, c.want)
		}
	}
}

// A variant whose step did not hold in more than half of its rounds has no further one, nor a round that cannot change that. The others go on.
func TestBeyondTheKnee(t *testing.T) {
	runs := searched(v1alpha1.ScenarioRequests, v1alpha1.BenchmarkRun{Connections: 10}, v1alpha1.BenchmarkSeek{Steps: 3})
	rows := make([]v1alpha1.BenchmarkRunStatus, len(runs))
	// Warm-ups, then of each step both variants twice: a passes the first step twice, b only at its first try, and a fails the second step at once.
	for i, verdict := range []v1alpha1.BenchmarkVerdict{
		v1alpha1.VerdictFailed, v1alpha1.VerdictFailed, v1alpha1.VerdictPassed, v1alpha1.VerdictPassed, v1alpha1.VerdictPassed, v1alpha1.VerdictFailed,
		v1alpha1.VerdictErrored, "", v1alpha1.VerdictFailed,
	} {
		rows[i].Verdict = verdict
	}
	for place := range runs {
		got := Beyond(runs, rows, place)
		want := ""
		switch {
		case place >= 6 && runs[place].Variant == "b":
			want = "Not run: variant b did not hold with 10 connections."
		case place >= 8:
			want = "Not run: variant a did not hold with 20 connections."
		}
		if got != want {
			t.Errorf("run %d: %q, want %q", place, got, want)
		}
	}
}

// A step holds by its own limits besides the thresholds.
func TestAStepOfASearch(t *testing.T) {
	p95 := func(d time.Duration) *v1alpha1.BenchmarkSeekWhile {
		return &v1alpha1.BenchmarkSeekWhile{P95: &metav1.Duration{Duration: d}, Failed: "0.2"}
	}
	ends := []RunnerEnd{{Ended: true, Message: captured(t, "rooms-0.json")}, {Ended: true, Message: captured(t, "rooms-1.json")}}
	few := with(t, captured(t, "rooms-0.json"), map[string]any{"failed": map[string]int{"yes": 1, "no": 30}})
	some := with(t, captured(t, "rooms-0.json"), map[string]any{"failed": map[string]int{"yes": 8, "no": 30}})
	for name, c := range map[string]struct {
		while *v1alpha1.BenchmarkSeekWhile
		first string
		want  v1alpha1.BenchmarkVerdict
		says  string
	}{
		"it holds":            {p95(time.Minute), ends[0].Message, v1alpha1.VerdictPassed, ""},
		"it is slow":          {p95(time.Microsecond), ends[0].Message, v1alpha1.VerdictFailed, "ms, at most 1µs while the knee is sought"},
		"fewer failed":        {p95(time.Minute), few, v1alpha1.VerdictPassed, ""},
		"a p95 of survivors":  {p95(time.Minute), some, v1alpha1.VerdictFailed, "more than 5 % came to no good end"},
		"without any of that": {nil, some, v1alpha1.VerdictFailed, "maxFailed"},
	} {
		run := roomsRun()
		run.While = c.while
		judged := Judge(run, "rooms", v1alpha1.BenchmarkThresholds{}, []RunnerEnd{{Ended: true, Message: c.first}, ends[1]}, Fleet{})
		if judged.Verdict != c.want || !strings.Contains(judged.Message, c.says) {
			t.Errorf("%s: %s because %q", name, judged.Verdict, judged.Message)
		}
	}
}
