package loadtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func benchmarkOf(spec v1alpha1.LiveStashBenchmarkSpec) *v1alpha1.LiveStashBenchmark {
	if spec.Scenario == "" {
		spec.Scenario = v1alpha1.ScenarioVisits
	}
	return &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: spec}
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// The published matrix: seven loads, each with five adapters. Source: https://swmansion.com/blog/live-stash-performance-tests/
func TestPublishedMatrix(t *testing.T) {
	runs := Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{Preset: v1alpha1.PresetLiveStash2026}))
	if len(runs) != 35 {
		t.Fatalf("%d runs, want 35", len(runs))
	}
	type load struct {
		Users, Runners      int32
		TTL, Duration, Ramp time.Duration
	}
	want := []load{
		{1000, 1, time.Minute, 3 * time.Minute, 45 * time.Second},
		{5000, 1, time.Minute, 3 * time.Minute, 45 * time.Second},
		{10000, 1, time.Minute, 3 * time.Minute, 45 * time.Second},
		{17000, 1, time.Minute, 3 * time.Minute, 45 * time.Second},
		{25000, 2, time.Minute, 3 * time.Minute, 45 * time.Second},
		{25000, 2, 5 * time.Minute, 15 * time.Minute, 225 * time.Second},
		{25000, 2, 15 * time.Minute, 45 * time.Minute, 685 * time.Second},
	}
	names := map[string]bool{}
	for i, run := range runs {
		if diff := cmp.Diff(want[i/5], load{run.Users, run.Runners, run.TTL, run.Duration, run.Ramp}); diff != "" {
			t.Errorf("run %d (-want +got):\n%s", i, diff)
		}
		if run.Adapter != adapters[i%5] {
			t.Errorf("run %d has adapter %s, want %s", i, run.Adapter, adapters[i%5])
		}
		names[run.Name] = true
	}
	if len(names) != 35 || !names["shop-01-none"] || !names["shop-33-browser"] || !names["shop-35-mnesia"] {
		t.Errorf("names: %v", names)
	}
}

func TestPlan(t *testing.T) {
	one := func(run v1alpha1.BenchmarkRun) *v1alpha1.BenchmarkMatrix {
		return &v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS}, Runs: []v1alpha1.BenchmarkRun{run}}
	}
	size := func(users int32, ttl time.Duration) v1alpha1.BenchmarkRun {
		return v1alpha1.BenchmarkRun{Users: users, TTL: metav1.Duration{Duration: ttl}}
	}
	cases := map[string]struct {
		spec v1alpha1.LiveStashBenchmarkSpec
		want Run
	}{
		"defaults": {
			v1alpha1.LiveStashBenchmarkSpec{Matrix: one(size(200, time.Minute))},
			Run{Users: 200, Runners: 1, TTL: time.Minute, Duration: 3 * time.Minute, Ramp: 45 * time.Second, Deadline: 13 * time.Minute},
		},
		"times of one's own": {
			v1alpha1.LiveStashBenchmarkSpec{
				RunDeadline: duration(time.Hour),
				Matrix:      one(v1alpha1.BenchmarkRun{Users: 200, TTL: *duration(time.Minute), Duration: duration(10 * time.Minute), Ramp: duration(0)}),
			},
			Run{Users: 200, Runners: 1, TTL: time.Minute, Duration: 10 * time.Minute, Deadline: time.Hour},
		},
		"as many users as one runner has descriptors for": {
			v1alpha1.LiveStashBenchmarkSpec{Matrix: one(size(19500, time.Minute))},
			Run{Users: 19500, Runners: 1, TTL: time.Minute, Duration: 3 * time.Minute, Ramp: 45 * time.Second, Deadline: 13 * time.Minute},
		},
		"one more": {
			v1alpha1.LiveStashBenchmarkSpec{Matrix: one(size(19501, time.Minute))},
			Run{Users: 19501, Runners: 2, TTL: time.Minute, Duration: 3 * time.Minute, Ramp: 45 * time.Second, Deadline: 13 * time.Minute},
		},
		"visits of a short TTL last until somebody is back after it": {
			v1alpha1.LiveStashBenchmarkSpec{Matrix: one(size(200, 10*time.Second))},
			Run{Users: 200, Runners: 1, TTL: 10 * time.Second, Duration: 37 * time.Second, Ramp: 7500 * time.Millisecond, Deadline: 37*time.Second + 10*time.Minute},
		},
		"reconnects do not": {
			v1alpha1.LiveStashBenchmarkSpec{Scenario: v1alpha1.ScenarioReconnect, Matrix: one(size(200, 10*time.Second))},
			Run{Users: 200, Runners: 1, TTL: 10 * time.Second, Duration: 30 * time.Second, Ramp: 7500 * time.Millisecond, Deadline: 30*time.Second + 10*time.Minute},
		},
		"scaled": {
			v1alpha1.LiveStashBenchmarkSpec{Scale: 10, Matrix: one(size(1001, 5*time.Minute))},
			Run{Users: 101, Runners: 1, TTL: 30 * time.Second, Duration: 90 * time.Second, Ramp: 23 * time.Second, Deadline: 90*time.Second + 10*time.Minute},
		},
		"scaled as far as it goes": {
			v1alpha1.LiveStashBenchmarkSpec{Scale: 1000, Parallelism: ptr.To[int32](3), Matrix: one(size(1000, time.Minute))},
			Run{Users: 3, Runners: 3, TTL: 10 * time.Second, Duration: 37 * time.Second, Ramp: 8 * time.Second, Deadline: 37*time.Second + 10*time.Minute},
		},
		"scaling does not make a short TTL longer": {
			v1alpha1.LiveStashBenchmarkSpec{Scale: 2, Matrix: one(size(10, 10*time.Second))},
			Run{Users: 5, Runners: 1, TTL: 10 * time.Second, Duration: 37 * time.Second, Ramp: 7500 * time.Millisecond, Deadline: 37*time.Second + 10*time.Minute},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := benchmarkOf(c.spec)
			c.want.Name, c.want.Variant, c.want.Adapter, c.want.Scenario, c.want.Round = "shop-01-ets", "ETS", v1alpha1.AdapterETS, b.Spec.Scenario, 1
			if diff := cmp.Diff([]Run{c.want}, Plan(b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Events come in the order of their times, and the runners are told when, a little early.
func TestEvents(t *testing.T) {
	run := Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{
		Events: []v1alpha1.BenchmarkEvent{
			{At: *duration(5 * time.Minute), Kind: v1alpha1.EventScale, Replicas: ptr.To[int32](3)},
			{At: *duration(time.Minute), Kind: v1alpha1.EventRollout, Within: duration(3 * time.Minute)},
		},
		Matrix: &v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS}, Runs: []v1alpha1.BenchmarkRun{{Users: 10, TTL: *duration(5 * time.Minute)}}},
	}))[0]
	if len(run.Events) != 2 || run.Events[0].Kind != v1alpha1.EventRollout || run.Events[0].Ends != 4*time.Minute || run.Events[1].Ends != 7*time.Minute {
		t.Errorf("the events are %+v", run.Events)
	}
	told := ""
	for _, option := range run.Options("", nil, v1alpha1.BenchmarkThresholds{}) {
		if option.Name == "EVENTS" {
			told = option.Value
		}
	}
	if told != "55s+185s,295s+125s" {
		t.Errorf("the runners are told of events at %q", told)
	}
}

// What is repeated is interleaved: what changes meanwhile meets all adapters alike.
func TestRepeatedMatrix(t *testing.T) {
	var names []string
	for _, run := range Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{Matrix: &v1alpha1.BenchmarkMatrix{
		Repeat: 2, Adapters: []v1alpha1.Adapter{v1alpha1.AdapterNone, v1alpha1.AdapterETS},
		Runs: []v1alpha1.BenchmarkRun{{Users: 10, TTL: *duration(time.Minute)}, {Users: 20, TTL: *duration(time.Minute)}},
	}})) {
		names = append(names, fmt.Sprintf("%s: %d users, round %d", run.Name, run.Users, run.Round))
	}
	want := []string{
		"shop-01-none: 10 users, round 1", "shop-02-ets: 10 users, round 1", "shop-03-none: 10 users, round 2", "shop-04-ets: 10 users, round 2",
		"shop-05-none: 20 users, round 1", "shop-06-ets: 20 users, round 1", "shop-07-none: 20 users, round 2", "shop-08-ets: 20 users, round 2",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A warm-up is the first size with every adapter, ahead of all that counts. It does not change the names of what does.
func TestWarmup(t *testing.T) {
	matrix := &v1alpha1.BenchmarkMatrix{
		Warmup: 2, Adapters: []v1alpha1.Adapter{v1alpha1.AdapterNone, v1alpha1.AdapterETS},
		Runs: []v1alpha1.BenchmarkRun{{Users: 10, TTL: *duration(time.Minute)}, {Users: 20, TTL: *duration(time.Minute)}},
	}
	warm := Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{Matrix: matrix}))
	var names []string
	for _, run := range warm[:4] {
		names = append(names, fmt.Sprintf("%s: %d users, warm-up %v", run.Name, run.Users, run.Warmup))
	}
	want := []string{
		"shop-w1-none: 10 users, warm-up true", "shop-w2-ets: 10 users, warm-up true",
		"shop-w3-none: 10 users, warm-up true", "shop-w4-ets: 10 users, warm-up true",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	matrix.Warmup = 0
	if diff := cmp.Diff(Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{Matrix: matrix})), warm[4:]); diff != "" {
		t.Errorf("what counts is not the same with a warm-up (-without +with):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	run := Run{Scenario: v1alpha1.ScenarioVisits, Adapter: v1alpha1.AdapterBrowserMemory, Users: 7, TTL: 10 * time.Second, Duration: 35 * time.Second, Ramp: 7500 * time.Millisecond}
	limits := v1alpha1.BenchmarkThresholds{MinRecovered: "0.9", MaxWrong: ptr.To[int64](2), MaxFailed: "0.5"}
	got := map[string]string{}
	for _, option := range run.Options("shop-01-browser-1", []string{"http://a:4000", "http://b:4000"}, limits) {
		got[option.Name] = option.Value
	}
	want := map[string]string{
		"TESTID": "shop-01-browser-1", "BASE_URLS": "http://a:4000,http://b:4000", "ADAPTER": "browser_memory", "USERS": "7", "TTL": "10s",
		"DURATION": "35s", "RAMP": "7.5s", "MIN_RECOVERED": "0.9", "MAX_WRONG": "2", "MAX_FAILED": "0.5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	without := run.Options("", nil, v1alpha1.BenchmarkThresholds{})
	for _, option := range without {
		if option.Name == "MIN_RECOVERED" || option.Name == "MAX_WRONG" || option.Name == "MAX_FAILED" || option.Name == "EVENTS" {
			t.Errorf("what is not set is an option: %v", option)
		}
	}
}

// Where the benchmark does not say, a preset is as it was published.
func TestDefaultsOfThePreset(t *testing.T) {
	matrix, preset := v1alpha1.LiveStashBenchmarkSpec{Matrix: &v1alpha1.BenchmarkMatrix{}}, v1alpha1.LiveStashBenchmarkSpec{Preset: v1alpha1.PresetLiveStash2026}
	said := preset
	said.Cooldown = &metav1.Duration{Duration: 3 * time.Second}
	said.Payload = &v1alpha1.BenchmarkPayload{Keys: ptr.To[int32](7), OnPage: v1alpha1.PayloadHidden}
	for _, c := range []struct {
		spec     v1alpha1.LiveStashBenchmarkSpec
		cooldown time.Duration
		keys     int32
		onPage   v1alpha1.BenchmarkPayloadOnPage
	}{
		{matrix, 10 * time.Second, 150, v1alpha1.PayloadHidden},
		{preset, time.Minute, 150, v1alpha1.PayloadShown},
		{said, 3 * time.Second, 7, v1alpha1.PayloadHidden},
	} {
		keys, onPage := Payload(&c.spec)
		if cooldown := Cooldown(&c.spec); cooldown != c.cooldown || keys != c.keys || onPage != c.onPage {
			t.Errorf("%+v: a cooldown of %s, %d keys, %s", c.spec, cooldown, keys, onPage)
		}
	}
}

// Variants are run in their order, with names of their own: also those whose names begin alike.
func TestVariants(t *testing.T) {
	patch := &v1alpha1.BenchmarkPatch{Replicas: ptr.To[int32](3)}
	spec := v1alpha1.LiveStashBenchmarkSpec{Matrix: &v1alpha1.BenchmarkMatrix{
		Warmup: 3, Runs: []v1alpha1.BenchmarkRun{{Users: 10, TTL: *duration(time.Minute)}},
		Variants: []v1alpha1.BenchmarkVariant{{Name: "fullsweep-20", Adapter: v1alpha1.AdapterETS, Patch: patch}, {Name: "fullsweep-65535"}, {Name: "plain"}},
	}}
	b := benchmarkOf(spec)
	b.Name = strings.Repeat("a", 30)
	names := map[string]bool{}
	var last []Run
	for _, run := range Plan(b) {
		names[run.Name] = true
		if made := len(run.Name + "-0123456-initializer"); made > 63 {
			t.Errorf("%s: what k6-operator makes of it has %d characters, and a name at most 63", run.Name, made)
		}
		if !run.Warmup {
			last = append(last, run)
		}
	}
	if len(names) != 12 {
		t.Errorf("12 runs have %d names: %v", len(names), names)
	}
	var got []string
	for _, run := range last {
		got = append(got, fmt.Sprintf("%s %s: %s, %s, patched %v", strings.TrimLeft(run.Name, "a"), run.Variant, run.Compared(), run.Adapter, run.Patch == patch))
	}
	want := []string{
		"-01-fullsweep fullsweep-20: variant fullsweep-20, ETS, patched true", "-02-fullsweep fullsweep-65535: variant fullsweep-65535, None, patched false",
		"-03-plain plain: variant plain, None, patched false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The others are compared with what the matrix says, else with the first variant, or with the fleet without LiveStash.
func TestBaseline(t *testing.T) {
	two := []v1alpha1.BenchmarkVariant{{Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		matrix *v1alpha1.BenchmarkMatrix
		want   string
	}{
		{nil, "None"},
		{&v1alpha1.BenchmarkMatrix{}, "None"},
		{&v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS, v1alpha1.AdapterNone}}, "None"},
		{&v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS}}, ""},
		{&v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{v1alpha1.AdapterETS, v1alpha1.AdapterNone}, Baseline: "ETS"}, "ETS"},
		{&v1alpha1.BenchmarkMatrix{Variants: two}, "a"},
		{&v1alpha1.BenchmarkMatrix{Variants: two, Baseline: "b"}, "b"},
	} {
		if got := Baseline(&v1alpha1.LiveStashBenchmarkSpec{Matrix: c.matrix}); got != c.want {
			t.Errorf("%+v has the baseline %q, want %q", c.matrix, got, c.want)
		}
	}
}
