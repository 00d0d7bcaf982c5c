package loadtest

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

const testID = "shop-02-ets-1"

// visitsRun is the run whose two reports are in testdata, as k6 1.8.1 left them: 61 visitors for 35 s against the server of
// loadtests/k6/test, with a TTL of 10 s and pauses of 1 s.
func visitsRun() Run {
	return Run{
		Name: "shop-02-ets", Scenario: v1alpha1.ScenarioVisits, Adapter: v1alpha1.AdapterETS, Users: 61, Runners: 2,
		TTL: 10 * time.Second, Duration: 35 * time.Second, Ramp: 8 * time.Second,
	}
}

func captured(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// with is a captured report with other values in some of its fields.
func with(t *testing.T, message string, changes map[string]any) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(message), &fields); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, changes)
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// slowOnes is a histogram of so many durations of about 10 ms and of about a second.
func slowOnes(t *testing.T, quick, slow int) map[string]any {
	t.Helper()
	// At scale 0, bucket 3 ends at 16 ms and bucket 9 at 1,024 ms.
	return map[string]any{"count": quick + slow, "sum": 10*quick + 1000*slow, "min": 10, "max": 1000, "scale": 0, "offset": 3, "counts": []int{quick, -5, slow}}
}

func TestJudge(t *testing.T) {
	first, second := captured(t, "runner-0.json"), captured(t, "runner-1.json")
	well := func(message string) RunnerEnd { return RunnerEnd{Ended: true, Reason: "Completed", Message: message} }
	bad := func(code int32, message string) RunnerEnd {
		return RunnerEnd{Ended: true, ExitCode: code, Reason: "Error", Message: message}
	}
	share := func(yes, no int) map[string]any { return map[string]any{"yes": yes, "no": no} }
	nobody := map[string]any{"recovered": share(0, 0)}
	alone, alsoAlone := with(t, first, nobody), with(t, second, nobody)
	late := func(ms float64) map[string]any { return map[string]any{"count": 400, "p99": ms} }
	none := func(r Run) Run { r.Adapter = v1alpha1.AdapterNone; return r }
	limit := func(set func(*v1alpha1.BenchmarkDurations)) v1alpha1.BenchmarkThresholds {
		limits := v1alpha1.BenchmarkThresholds{P99: &v1alpha1.BenchmarkDurations{}}
		set(limits.P99)
		return limits
	}
	const syntaxError = `time="2026-07-01T12:00:00Z" level=error msg="SyntaxError: file:///test/shop.js: Unexpected token (3:1)"`

	cases := map[string]struct {
		run    Run
		limits v1alpha1.BenchmarkThresholds
		ends   []RunnerEnd
		// restarted are the fleet's pods that did.
		restarted []string
		verdict   v1alpha1.BenchmarkVerdict
		says      []string
		// notes are in what is said of a run that passed.
		notes []string
	}{
		"all well": {run: visitsRun(), ends: []RunnerEnd{well(first), well(second)}, verdict: v1alpha1.VerdictPassed},
		"none, and nothing came back": {
			run: none(visitsRun()),
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"adapter": "none", "recovered": share(0, 29)})),
				well(with(t, second, map[string]any{"adapter": "none", "recovered": share(0, 35)})),
			},
			verdict: v1alpha1.VerdictPassed,
		},

		"a state that was lost, and none may be": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MinRecovered: "0", MaxLost: ptr.To[int64](2)},
			ends:    []RunnerEnd{well(with(t, first, map[string]any{"recovered": share(26, 3)})), well(second)},
			verdict: v1alpha1.VerdictFailed, says: []string{"maxLost: 3 of 60 returns did not bring the state back, at most 2 may"},
		},
		"as many as may be": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MinRecovered: "0", MaxLost: ptr.To[int64](3)},
			ends: []RunnerEnd{well(with(t, first, map[string]any{"recovered": share(26, 3)})), well(second)}, verdict: v1alpha1.VerdictPassed,
		},
		"none, where nothing can be lost": {
			run: none(visitsRun()), limits: v1alpha1.BenchmarkThresholds{MaxLost: ptr.To[int64](0)},
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"adapter": "none", "recovered": share(0, 29)})),
				well(with(t, second, map[string]any{"adapter": "none", "recovered": share(0, 35)})),
			},
			verdict: v1alpha1.VerdictPassed,
		},
		"slow during an event, and quick outside of it": {
			run: visitsRun(), limits: limit(func(l *v1alpha1.BenchmarkDurations) {
				l.ReconnectDuring, l.ReconnectOutside = duration(500*time.Millisecond), duration(500*time.Millisecond)
			}),
			ends: []RunnerEnd{well(with(t, first, map[string]any{"durations": map[string]any{
				"reconnect_during": slowOnes(t, 100, 100), "reconnect_outside": slowOnes(t, 1000, 0),
			}})), well(second)},
			verdict: v1alpha1.VerdictFailed, says: []string{"p99.reconnectDuring: at least "},
		},

		// The ways in which a broken test looks finished to k6-operator.
		"a syntax error": {
			run: visitsRun(), ends: []RunnerEnd{bad(107, syntaxError), bad(107, syntaxError)}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 1 of 2 ended with exit code 107", "SyntaxError", "Runner 2 of 2"},
		},
		"fewer runners than asked for": {
			run: visitsRun(), ends: []RunnerEnd{well(first)}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 never existed."},
		},
		"a threshold that failed": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{
				"passed": false, "failed_thresholds": []string{"recovered rate>=0.99"}, "recovered": share(20, 15),
			}))},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"minRecovered: 76.56 % of 64 returns", "at least 99 % must"},
		},
		"setup that throws": {
			run: visitsRun(), ends: []RunnerEnd{bad(107, "Error: no\n\tat setup (file:///a.js:3:1)"), well(second)}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 1 of 2 ended with exit code 107, and it left no report: at setup"},
		},
		"a test that aborts itself": {
			run: visitsRun(), ends: []RunnerEnd{bad(108, with(t, first, map[string]any{
				"problem": "http://shop:4000/stash/ets: status 404", "completed": false, "planned": 0,
			})), well(second)},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"Runner 1 of 2 ran nothing: http://shop:4000/stash/ets: status 404."},
		},
		"every iteration throws, and k6 is content": {
			run: visitsRun(), ends: []RunnerEnd{
				well(with(t, first, map[string]any{"cycles": 0, "connected": 0, "error": 61, "errors": map[string]int{"crashed": 1, "timeout": 60}})),
				well(with(t, second, map[string]any{"cycles": 0, "connected": 0})),
			},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"No user got as far as a stash: 0 of 61 connected, and 61 errors: timeout 60, crashed 1."},
		},
		"a script without a report": {
			run: visitsRun(), ends: []RunnerEnd{well(""), well("")}, verdict: v1alpha1.VerdictErrored,
			says: []string{"ended with exit code 0, but it left no report: a script must write one to /dev/termination-log"},
		},
		"a runner that was deleted": {
			run: visitsRun(), ends: []RunnerEnd{well(first), {Reason: "Evicted", Message: "The node was low on resource: memory."}}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 was lost before it reported: The node was low on resource: memory."},
		},
		"a runner that never started": {
			run: visitsRun(), ends: []RunnerEnd{well(first), {}}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 was lost before it reported."},
		},
		"a runner that was stopped because another one failed": {
			run: visitsRun(), ends: []RunnerEnd{bad(107, "Line 1:29 Unexpected end of input"), {Stopped: true}}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 1 of 2 ended with exit code 107", "Runner 2 of 2 was stopped, because the run could not be complete any more."},
		},

		// Others.
		"a runner that was stopped": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(105, with(t, second, map[string]any{"completed": false, "ran_s": 12.3}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 was stopped after 12s of 35s."},
		},
		"a runner without memory": {
			run: visitsRun(), ends: []RunnerEnd{well(first), {Ended: true, ExitCode: 137, Reason: "OOMKilled"}}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 was killed because it took more memory than it may: raise spec.runnerTemplate.resources.limits.memory"},
		},
		"an exit code that nobody knows": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(3, second)}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 ended with exit code 3."},
		},
		"the report of another test": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"testid": "shop-02-ets-0"}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{`left the report of another test, "shop-02-ets-0" instead of "shop-02-ets-1"`},
		},
		"the same runner twice": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(first)}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 ran another test than it should have: runner 1 of 2"},
		},
		"a report to come": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"version": 4}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"its report has version 4, and this operator reads version 3", "use the k6 image that is released with the operator"},
		},
		"users that nobody had": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"planned": 29}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"The runners had 60 users instead of 61."},
		},
		"runners that measured themselves": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{"error": 3, "errors": map[string]int{"exhausted": 3}}))},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"ran out of ports or file descriptors 3 times", "raise spec.parallelism above 2"},
		},
		"nobody who came back": {
			run: visitsRun(), ends: []RunnerEnd{well(with(t, first, map[string]any{"recovered": share(0, 0)})), well(with(t, second, map[string]any{"recovered": share(0, 0)}))},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"thresholds.minRecovered cannot be judged"},
		},
		"a stash where none can be": {
			run: none(visitsRun()), ends: []RunnerEnd{
				well(with(t, first, map[string]any{"adapter": "none"})), well(with(t, second, map[string]any{"adapter": "none"})),
			},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"60 of 60 returns brought the state back, and with adapter None none can"},
		},
		"a runner's own part does not count": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MinRecovered: "0.9"},
			ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{
				"passed": false, "failed_thresholds": []string{"recovered rate>=0.9"}, "recovered": share(31, 4),
			}))},
			verdict: v1alpha1.VerdictPassed,
		},
		"users who never came in": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{"connected": 29}))}, verdict: v1alpha1.VerdictFailed,
			says: []string{"maxFailed: 1 users never came in, with 61 users at most 0 may"},
		},
		"a threshold of a script's own": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{"failed_thresholds": []string{"checkout p(95)<300"}}))},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"checkout p(95)<300 of runner 2"},
		},
		"wrong counters, failed steps and a slow p99": {
			run: visitsRun(),
			limits: v1alpha1.BenchmarkThresholds{MaxWrong: ptr.To[int64](1), MaxFailed: "0.05", P99: &v1alpha1.BenchmarkDurations{
				Stash: &metav1.Duration{Duration: 2 * time.Millisecond}, Reconnect: &metav1.Duration{Duration: time.Minute},
			}},
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"wrong_count": 2, "failed": share(50, 250), "error": 50, "errors": map[string]int{"timeout": 50}})), well(second),
			},
			verdict: v1alpha1.VerdictFailed,
			says: []string{
				"maxWrong: 2 recovered states were not the last acknowledged one, at most 1 may be",
				"maxFailed: ", "steps failed (50 errors: timeout 50), at most 5 % may",
				"p99.stash: at least ", "at most 2.0 ms is allowed",
			},
		},
		// Runs that measured something else than they should have.
		"a script that ran for a second": {
			run: visitsRun(), ends: []RunnerEnd{well(with(t, first, map[string]any{"ran_s": 1})), well(with(t, second, map[string]any{"ran_s": 1}))},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"Runner 1 of 2 was stopped after 1s of 35s.", "Runner 2 of 2 was stopped after 1s of 35s."},
		},
		"a script that says that a second is enough": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"ran_s": 1, "duration_s": 1}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 ran another test than it should have: 1s with a TTL of 10s instead of 35s and 10s."},
		},
		"another TTL": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"ttl_s": 300}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"35s with a TTL of 300s instead of 35s and 10s"},
		},
		"another scenario": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"scenario": "reconnect"}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Runner 2 of 2 ran the scenario reconnect instead of visits."},
		},
		"a scenario of a script's own": {
			run:     func(r Run) Run { r.Scenario = v1alpha1.ScenarioScript; return r }(visitsRun()),
			ends:    []RunnerEnd{well(with(t, first, map[string]any{"scenario": "checkout"})), well(with(t, second, map[string]any{"scenario": "checkout"}))},
			verdict: v1alpha1.VerdictPassed,
		},
		"runners one after the other": {
			run: visitsRun(), ends: []RunnerEnd{
				well(with(t, first, map[string]any{"started_at": "2026-07-01T12:00:00Z", "ended_at": "2026-07-01T12:00:35Z"})),
				well(with(t, second, map[string]any{"started_at": "2026-07-01T12:00:20Z", "ended_at": "2026-07-01T12:00:55Z"})),
			},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"The runners were at work together for 15s of 35s only"},
		},

		// The client's own delay.
		"one of the runners was starved": {
			run: visitsRun(), limits: limit(func(d *v1alpha1.BenchmarkDurations) { d.Stash = &metav1.Duration{Duration: time.Nanosecond} }),
			ends:    []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{"client_delay": late(250), "failed_thresholds": []string{"client_delay p(99)<=100"}}))},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"The client was the bottleneck: k6 itself began 1 % of the steps more than 250ms late, and thresholds.maxClientDelay is 100ms."},
		},
		"a starved runner, and counts that stand all the same": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{"client_delay": late(250), "wrong_count": 7}))},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"The client was the bottleneck", "The counts still stand: maxWrong: 7 recovered states"},
		},
		"a client that may be as late as it was": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MaxClientDelay: &metav1.Duration{Duration: time.Minute}},
			ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"client_delay": late(250)}))}, verdict: v1alpha1.VerdictPassed,
		},
		"a client that does not say": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(with(t, second, map[string]any{"client_delay": map[string]any{}}))}, verdict: v1alpha1.VerdictErrored,
			says: []string{"A runner did not say how late it was itself"},
		},

		// The fleet.
		"a pod that crashed": {
			run: visitsRun(), ends: []RunnerEnd{well(first), well(second)}, restarted: []string{"shop-1: container app ended with exit code 137, OOMKilled"},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"maxRestarts: 1 of the fleet's pods restarted during the run (shop-1: container app ended with exit code 137, OOMKilled), at most 0 may"},
		},
		"a pod that crashed, so that nobody came back in time": {
			run: visitsRun(), ends: []RunnerEnd{well(alone), well(alsoAlone)}, restarted: []string{"shop-1: container app ended with exit code 7"},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"maxRestarts: 1 of the fleet's pods restarted during the run (shop-1: container app ended with exit code 7), at most 0 may. No return within the TTL came to an end"},
		},
		"a pod that may crash, and nobody came back in time": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MaxRestarts: ptr.To[int32](1)}, ends: []RunnerEnd{well(alone), well(alsoAlone)}, restarted: []string{"shop-1"},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"No return within the TTL came to an end, so thresholds.minRecovered cannot be judged"},
		},
		"a pod that may crash": {
			run: visitsRun(), limits: v1alpha1.BenchmarkThresholds{MaxRestarts: ptr.To[int32](1)}, ends: []RunnerEnd{well(first), well(second)}, restarted: []string{"shop-1"},
			verdict: v1alpha1.VerdictPassed,
		},
		"a server that never expires": {
			run: visitsRun(), ends: []RunnerEnd{well(first), bad(99, with(t, second, map[string]any{
				"expired": share(3, 0), "failed_thresholds": []string{"expired_recovered rate==0"},
			}))},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"visitors who came back after the TTL and the cleaner found their state: the target does not expire stashes after 10s"},
		},
		"a run too short for the cleaner": {
			run: visitsRun(), ends: []RunnerEnd{well(with(t, first, map[string]any{"expired": share(0, 0)})), well(with(t, second, map[string]any{"expired": share(0, 0)}))},
			verdict: v1alpha1.VerdictPassed,
			notes:   []string{"Expiry was not judged"},
		},
		"a few slow ones of few": {
			run: visitsRun(), limits: limit(func(d *v1alpha1.BenchmarkDurations) { d.Reconnect = &metav1.Duration{Duration: 100 * time.Millisecond} }),
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"durations": map[string]any{"reconnect": slowOnes(t, 49, 1)}})), well(with(t, second, map[string]any{"durations": map[string]any{}})),
			},
			verdict: v1alpha1.VerdictPassed,
			notes:   []string{"p99.reconnect is ", " of 50, over the limit of 100.0 ms, but that few may be slow by chance"},
		},
		"as many slow ones as chance does not make": {
			run: visitsRun(), limits: limit(func(d *v1alpha1.BenchmarkDurations) { d.Reconnect = &metav1.Duration{Duration: 100 * time.Millisecond} }),
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"durations": map[string]any{"reconnect": slowOnes(t, 42, 8)}})), well(with(t, second, map[string]any{"durations": map[string]any{}})),
			},
			verdict: v1alpha1.VerdictFailed,
			says:    []string{"p99.reconnect: at least "},
		},
		"a limit for what was never measured": {
			run: visitsRun(), limits: limit(func(d *v1alpha1.BenchmarkDurations) { d.LateRejoin = &metav1.Duration{Duration: time.Second} }),
			ends: []RunnerEnd{
				well(with(t, first, map[string]any{"durations": map[string]any{}})), well(with(t, second, map[string]any{"durations": map[string]any{}})),
			},
			verdict: v1alpha1.VerdictErrored,
			says:    []string{"thresholds.p99.lateRejoin cannot be judged: it was never measured."},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Judge(c.run, testID, c.limits, c.ends, Fleet{Restarted: c.restarted})
			if got.Verdict != c.verdict {
				t.Errorf("verdict %s, want %s: %s", got.Verdict, c.verdict, got.Message)
			}
			if (got.Message == "") != (c.verdict == v1alpha1.VerdictPassed) {
				t.Errorf("message: %q", got.Message)
			}
			for _, part := range c.notes {
				if !strings.Contains(got.Note, part) {
					t.Errorf("the note does not say %q: %q", part, got.Note)
				}
			}
			if got.ClientBound != strings.Contains(got.Message, "client was the bottleneck") || len(c.notes) == 0 && got.Note != "" {
				t.Errorf("the client was the bottleneck: %v, and the note is %q", got.ClientBound, got.Note)
			}
			for _, part := range c.says {
				if !strings.Contains(got.Message, part) {
					t.Errorf("the message does not say %q:\n%s", part, got.Message)
				}
			}
			if strings.Contains(got.Message, "..") || name != "as many slow ones as chance does not make" && strings.Contains(got.Message, "p99.reconnect:") {
				t.Errorf("message: %s", got.Message)
			}
		})
	}
}

// bothRunners are the reports of a run of two.
func bothRunners(t *testing.T) []RunnerReport {
	t.Helper()
	var reports []RunnerReport
	for _, name := range []string{"runner-0.json", "runner-1.json"} {
		read, err := ParseRunnerReport(captured(t, name))
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, read)
	}
	return reports
}

// A runner whose users were not held up leaves out when their steps really began: that is when they should have.
func TestServiceTimesAreThoseOfAllRunners(t *testing.T) {
	reports := bothRunners(t)
	delete(reports[1].Durations, "stash_service")
	got := Merge(visits{}, reports).Durations
	if stash, service := got["stash"], got["stash_service"]; service.Count != stash.Count || service.Count == 0 {
		t.Errorf("%d of %d stashes have a time from when they began", service.Count, stash.Count)
	}
}

func TestMerge(t *testing.T) {
	got := Merge(visits{}, bothRunners(t))
	want := report.Counts{Errors: map[string]int64{}, Of: map[string]int64{
		report.CountPlanned: 61, report.CountConnected: 61, report.CountCycles: 290, report.CountUnfinished: 0, report.CountError: 0,
		report.CountRecovered: 60, report.CountNotRecovered: 0, report.CountLateRecovered: 0, report.CountLateNotRecovered: 31,
		report.CountExpiredRecovered: 0, report.CountExpiredNotRecovered: 38, report.CountNotFound: 0, report.CountWrong: 0,
		report.CountDropped: 0, report.CountConnectFailed: 0,
	}}
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	names := []string{"any_rejoin", "first_render", "first_render_service", "join", "late_rejoin", "reconnect", "reconnect_service", "rejoin", "stash", "stash_service"}
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(got.Durations))); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	// Each runner said what its own p50 was: that of both lies between.
	render := got.Durations["first_render"]
	if render.Count != 173 || render.Min != 2.602 || render.Max != 97.364 || math.Abs(render.P50-3.8) > 0.1 {
		t.Errorf("first_render: %+v", render)
	}
	late, inTime, all := got.Durations["late_rejoin"], got.Durations["rejoin"], got.Durations["any_rejoin"]
	if all.Count != late.Count+inTime.Count || late.Count == 0 || all.Max != max(late.Max, inTime.Max) || all.Min != min(late.Min, inTime.Min) {
		t.Errorf("returns in time %+v, late %+v, any %+v", inTime, late, all)
	}
	if got.ClientDelay == nil || *got.ClientDelay != 40.006 {
		t.Errorf("the later of the runners was late by %v ms", got.ClientDelay)
	}
	if got.Together < 35*time.Second || got.Together > 36*time.Second {
		t.Errorf("the runners were at work together for %s", got.Together)
	}
	if share, returns := got.Recovered(); share != 1 || returns != 60 {
		t.Errorf("recovered: %v of %d", share, returns)
	}
	if diff := cmp.Diff(Share{No: 592}, got.Failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
}

func TestParseRunnerReport(t *testing.T) {
	for _, message := range []string{"", "level=error msg=broken", `{"version":3`} {
		if _, err := ParseRunnerReport(message); !errors.Is(err, ErrNoReport) {
			t.Errorf("%q: %v, want %v", message, err, ErrNoReport)
		}
	}
	broken := with(t, captured(t, "runner-0.json"), map[string]any{"durations": map[string]any{"stash": map[string]any{"count": 3}}})
	if _, err := ParseRunnerReport(broken); err == nil || !strings.Contains(err.Error(), "histogram of stash") {
		t.Errorf("a broken histogram: %v", err)
	}
}

func TestWorst(t *testing.T) {
	passed, failed, errored := v1alpha1.VerdictPassed, v1alpha1.VerdictFailed, v1alpha1.VerdictErrored
	cases := []struct{ of, want []v1alpha1.BenchmarkVerdict }{
		{nil, []v1alpha1.BenchmarkVerdict{""}},
		{[]v1alpha1.BenchmarkVerdict{"", passed}, []v1alpha1.BenchmarkVerdict{passed}},
		{[]v1alpha1.BenchmarkVerdict{failed, passed, ""}, []v1alpha1.BenchmarkVerdict{failed}},
		{[]v1alpha1.BenchmarkVerdict{failed, errored, passed}, []v1alpha1.BenchmarkVerdict{errored}},
	}
	for _, c := range cases {
		if got := Worst(c.of...); got != c.want[0] {
			t.Errorf("Worst(%v) = %q, want %q", c.of, got, c.want[0])
		}
	}
}
