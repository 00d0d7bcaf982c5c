package report_test

import (
	"math"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// steps are runs of variants by their verdicts, with 100, 200, 400... users: P, F, E, and C for a client that was the bottleneck.
func steps(of map[string]string) report.Report {
	r := report.Report{Spec: report.Spec{Scenario: "Rooms", Baseline: "fleet"}}
	for place := range 4 {
		for _, name := range []string{"fleet", "chat"} {
			if place >= len(of[name]) {
				continue
			}
			run := report.Run{Name: name, Variant: name, Adapter: "None", Users: 100 << place, Message: "too slow."}
			switch of[name][place] {
			case 'P':
				run.Verdict = report.VerdictPassed
			case 'F':
				run.Verdict = report.VerdictFailed
			case 'C':
				run.Verdict, run.ClientBound = report.VerdictErrored, true
			default:
				run.Verdict = report.VerdictErrored
			}
			r.Runs = append(r.Runs, run)
		}
	}
	return r
}

// The knee is the last step that held; a client that gives out, or the last step, makes it a bound, and none at all is said plainly.
func TestKnees(t *testing.T) {
	for verdicts, want := range map[string]report.Knee{
		"PPF": {Size: 200, Verdict: report.VerdictPassed, Message: "chat carries 200 users; 400 users did not hold: too slow."},
		"PPC": {Size: 200, AtLeast: true, Verdict: report.VerdictPassed, Message: "chat carries ≥ 200 users: with 400 users the client gave out: too slow."},
		"PP":  {Size: 200, AtLeast: true, Verdict: report.VerdictPassed, Message: "chat carries ≥ 200 users: all 2 steps held"},
		"F":   {Verdict: report.VerdictFailed, Message: "chat does not carry the first step, 100 users: too slow. Begin with fewer"},
		"C":   {Verdict: report.VerdictErrored, Message: "chat: the client gave out in the first step, 100 users: too slow."},
		"E":   {Verdict: report.VerdictErrored, Message: "chat: 100 users measured nothing: too slow."},
		"PE":  {Size: 100, AtLeast: true, Verdict: report.VerdictErrored, Message: "chat: 200 users measured nothing: too slow."},
	} {
		want.Variant = "chat"
		if got := report.Knees(steps(map[string]string{"chat": verdicts})); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", verdicts, got, want)
		}
	}
}

// A report says how the knees are to that of the baseline, and what that is worth.
func TestKneesInWords(t *testing.T) {
	for chat, want := range map[string]string{
		"PPPP": "chat carries ≥ 800 users: all 4 steps held (4 times the knee of fleet at least).",
		"PPPF": "chat carries 400 users; 800 users did not hold: too slow (2 times the knee of fleet).",
		"F":    "chat does not carry the first step, 100 users: too slow. Begin with fewer.",
	} {
		r := steps(map[string]string{"fleet": "PPF", "chat": chat})
		r.Knees = report.Knees(r)
		for kind, text := range map[string]string{"page": html(r), "Markdown": string(report.Markdown(r))} {
			if text = strings.ReplaceAll(text, "\u00a0", " "); !strings.Contains(text, want) {
				t.Errorf("the %s does not say %q:\n%s", kind, want, text)
			}
		}
	}
}

// A client that was late is no excuse for a server whose messages failed when it had used up its CPU.
func TestTheServerGaveOut(t *testing.T) {
	for name, c := range map[string]struct {
		limit, used float64
		failed      int64
		says        string
		atLeast     bool
	}{
		"it had used up its CPU":      {0.5, 0.49, 570, "400 users did not hold: 57 % of 1,000 came to no good end, and the pods used 0.49 of the 0.5 cores that they may", false},
		"it had not":                  {0.5, 0.4, 570, "the client gave out", true},
		"it may use all there is":     {0, 2, 570, "the client gave out", true},
		"nothing failed for all that": {0.5, 0.5, 10, "the client gave out", true},
	} {
		r := steps(map[string]string{"fleet": "PPC"})
		last := &r.Runs[2]
		last.CPULimit, last.RampSeconds = c.limit, 20
		last.Samples = map[string]report.Series{report.SeriesPodCPU: {Unit: "cores", Points: [][2]float64{{10, 0.1}, {25, 0.2}, {35, c.used}, {90, c.used}}}}
		last.CPUAfterRamp = report.CPUAfterRamp(*last)
		last.Counts = &report.Counts{Of: map[string]int64{report.CountGood: 1000 - c.failed, report.CountFailed: c.failed}}
		if got := report.Knees(r)[0]; got.Size != 200 || got.AtLeast != c.atLeast || !strings.Contains(strings.ReplaceAll(got.Message, "\u00a0", " "), c.says) {
			t.Errorf("%s: %+v, want %q", name, got, c.says)
		}
	}
}

// What was sampled in part is no mean of the run.
func TestCPUAfterTheRamp(t *testing.T) {
	run, seconds := report.Run{RampSeconds: 20, Samples: map[string]report.Series{report.SeriesPodCPU: {Points: [][2]float64{{25, 9}, {35, 0.4}, {90, 0.2}}}}}, 12.0
	if got := report.CPUAfterRamp(run); got == nil || math.Abs(*got-0.3) > 1e-9 {
		t.Errorf("it is %v, want 0.3", got)
	}
	run.SampledSeconds = &seconds
	if got := report.CPUAfterRamp(run); got != nil {
		t.Errorf("of a part it is %g", *got)
	}
}

// Of several rounds more than half must hold.
func TestKneeOfRounds(t *testing.T) {
	r := steps(map[string]string{"fleet": "PP"})
	more := steps(map[string]string{"fleet": "PF"})
	r.Runs = append(r.Runs, more.Runs...)
	if got := report.Knees(r)[0]; got.Size != 100 || got.AtLeast || got.Verdict != report.VerdictPassed {
		t.Errorf("one of two rounds of the second step held: %+v", got)
	}
	r.Runs = append(r.Runs, steps(map[string]string{"fleet": "PP"}).Runs...)
	if got := report.Knees(r)[0]; got.Size != 200 || !got.AtLeast {
		t.Errorf("two of three held: %+v", got)
	}
}

// What ends a search is what decided its last step: a round in which the client gave out is no excuse for two that the server failed.
func TestWhatEndsASearch(t *testing.T) {
	for rounds, want := range map[string]struct {
		says    string
		atLeast bool
		verdict report.Verdict
	}{
		"FFC": {"200 users did not hold: F", false, report.VerdictPassed},
		"CFF": {"200 users did not hold: F", false, report.VerdictPassed},
		"EFF": {"200 users did not hold: F", false, report.VerdictPassed},
		"FF":  {"200 users did not hold: F", false, report.VerdictPassed},
		"PF":  {"200 users did not hold: F", false, report.VerdictPassed},
		"PFC": {"with 200 users the client gave out: C", true, report.VerdictPassed},
		"CFC": {"with 200 users the client gave out: C", true, report.VerdictPassed},
		"ECP": {"with 200 users the client gave out: C", true, report.VerdictPassed},
		"PFE": {"200 users measured nothing: E", true, report.VerdictErrored},
		"PPF": {"carries ≥ 200 users", true, report.VerdictPassed},
	} {
		r := steps(map[string]string{"fleet": "P"})
		for _, one := range rounds {
			run := steps(map[string]string{"fleet": "P" + string(one)}).Runs[1]
			run.Message = string(one)
			r.Runs = append(r.Runs, run)
		}
		if got := report.Knees(r)[0]; !strings.Contains(got.Message, want.says) || got.AtLeast != want.atLeast || got.Verdict != want.verdict {
			t.Errorf("%s: %+v, want %+v", rounds, got, want)
		}
	}
}

// The others are held against the baseline under the same load.
func TestAgainstTheBaseline(t *testing.T) {
	r := roomsReport()
	if c := report.Against(r, map[string]float64{"delivery": 1}); c.Verdict != report.VerdictPassed || len(c.Figures) != 2 || c.With != "plain" {
		t.Errorf("the same: %+v", c)
	}
	slow := r.Runs[3].Durations["delivery"]
	slow.P95 *= 2
	r.Runs[3].Durations["delivery"] = slow
	c := report.Against(r, map[string]float64{"delivery": 1.5})
	const want = "Compared with plain: other, 5,000 users, 5 min with a ramp of 1 min, pods: 2: p95 of deliveries 16.5 ms, and 8.25 ms with plain: 2 times as much, at most 1.5 times is allowed."
	if c.Verdict != report.VerdictFailed || strings.ReplaceAll(c.Message, "\u00a0", " ") != want {
		t.Errorf("a slower one: %s because %q", c.Verdict, c.Message)
	}
	r.Against = &c
	if text := strings.ReplaceAll(string(report.Markdown(r)), "\u00a0", " "); !strings.Contains(text, want) {
		t.Errorf("the report does not say it: %s", text)
	}
	if c := report.Against(r, map[string]float64{"stash": 1}); c.Verdict != report.VerdictErrored || !strings.Contains(c.Message, "p95 of stashes was not measured in both with other") {
		t.Errorf("what was not measured: %+v", c)
	}
	r.Runs[0].Verdict = report.VerdictErrored
	if c := report.Against(r, map[string]float64{"delivery": 9}); c.Verdict != report.VerdictErrored || !strings.Contains(c.Message, "it has no sound run under the load of") {
		t.Errorf("without a baseline: %+v", c)
	}
}

// Beside a server, which has no virtual machine to ask, all are measured by their pods.
func TestServersAreMeasuredByTheirPods(t *testing.T) {
	r := roomsReport()
	r.Spec.Variants = []report.Variant{{Name: "plain", Adapter: "None"}, {Name: "other", Adapter: "None", Server: &report.Server{Image: "registry/chat:1", Protocol: "WebSocket", Replicas: 1}}}
	total := 60.0
	for i := range r.Runs {
		samples := map[string]report.Series{
			report.SeriesPodMemory: {Unit: "bytes", Peak: 5e8, Points: [][2]float64{{0, 5e8}}}, report.SeriesPodCPU: {Unit: "cores", Peak: 1, Points: [][2]float64{{0, 1}}, Total: &total},
		}
		if r.Runs[i].Variant == "plain" {
			samples[report.SeriesMemory] = report.Series{Unit: "bytes", Peak: 1e8, Points: [][2]float64{{0, 1e8}}}
			samples[report.SeriesPodMemory] = report.Series{Unit: "bytes", Peak: 2.5e8, Points: [][2]float64{{0, 2.5e8}}}
		}
		r.Runs[i].Samples = samples
	}
	page := html(r)
	for kind, text := range map[string]string{"page": page, "Markdown": string(report.Markdown(r))} {
		text = strings.ReplaceAll(text, "\u00a0", " ")
		for _, want := range []string{"server registry/chat:1, WebSocket", "500 MB", "250 MB"} {
			if !strings.Contains(text, want) {
				t.Errorf("the %s does not say %q:\n%s", kind, want, text)
			}
		}
	}
	if !strings.Contains(page, "what the nodes count for the containers of the pods") || strings.Contains(page, "those of the virtual machines") {
		t.Errorf("the page does not say what its figures are:\n%s", page)
	}
	if c := report.Against(r, map[string]float64{"memory": 1.9}); c.Verdict != report.VerdictFailed || c.Figures[0].Now != 5e8 || c.Figures[0].Before != 2.5e8 {
		t.Errorf("against the baseline: %+v", c)
	}
	if c := report.Compare(r, roomsReport(), "main-report", map[string]float64{"delivery": 9}); c.Verdict != report.VerdictErrored || !strings.Contains(c.Message, "one of the two compares servers") {
		t.Errorf("with a report of fleets alone: %+v", c)
	}
}
