package report_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// measured is a report of ETS under one load, with one run for each of the peaks of memory.
func measured(peaks ...float64) report.Report {
	r := example(5, [2]int{200, 60})
	ets := r.Runs[1]
	r.Runs = nil
	for _, peak := range peaks {
		run := ets
		run.Samples = map[string]report.Series{report.SeriesMemory: {Unit: "bytes", Peak: peak}}
		r.Runs = append(r.Runs, run)
	}
	return r
}

func TestCompare(t *testing.T) {
	changed := func(r report.Report, change func(*report.Report)) report.Report {
		change(&r)
		return r
	}
	cases := map[string]struct {
		now, before report.Report
		limits      map[string]float64
		verdict     report.Verdict
		says        string
	}{
		"within its limit": {measured(109e6), measured(100e6), map[string]float64{"memory": 1.1}, report.VerdictPassed, ""},
		"over it": {
			measured(132e6), measured(110e6), map[string]float64{"memory": 1.1}, report.VerdictFailed,
			"Compared with main-report: ETS, 200 users, TTL 1 min, 3 min with a ramp of 45 s, pods: 2: memory at its peak 132 MB, and 110 MB there: 1.2 times as much, at most 1.1 times is allowed",
		},
		"less is asked for": {measured(100e6), measured(100e6), map[string]float64{"memory": 0.9}, report.VerdictFailed, "at most 0.9 times"},
		// The means are 1.08 and 1, and nobody knows whether by chance.
		"few rounds are compared by their means": {
			measured(100e6, 116e6), measured(100e6, 100e6), map[string]float64{"memory": 1.05}, report.VerdictFailed, "1.08 times",
		},
		"many rounds that vary as much may be chance": {
			measured(100e6, 116e6, 95e6, 121e6, 108e6), measured(100e6, 100e6, 92e6, 108e6, 100e6), map[string]float64{"memory": 1.05}, report.VerdictPassed, "",
		},
		"many rounds that hardly vary are certain": {
			measured(108e6, 108.1e6, 107.9e6, 108.2e6, 107.8e6), measured(100e6, 100.1e6, 99.9e6, 100.2e6, 99.8e6),
			map[string]float64{"memory": 1.05}, report.VerdictFailed, "1.08 times",
		},
		"another scenario": {
			measured(1e6), changed(measured(1e6), func(r *report.Report) { r.Spec.Scenario = "Reconnect" }),
			map[string]float64{"memory": 1}, report.VerdictErrored, "cannot be compared with main-report: its scenario: Reconnect, and here: Visits",
		},
		"another machine": {
			measured(1e6), changed(measured(1e6), func(r *report.Report) { r.Machine.Nodes[0].CPU = 2 }),
			map[string]float64{"memory": 1}, report.VerdictErrored, "its machines: 2 CPUs, and here: 8 CPUs",
		},
		"another size": {
			measured(1e6), changed(measured(1e6), func(r *report.Report) { r.Runs[0].Users = 100 }),
			map[string]float64{"memory": 1}, report.VerdictErrored, "it has no sound run with ETS, 200 users, TTL 1 min",
		},
		"an earlier run that was not sound": {
			measured(1e6), changed(measured(1e6), func(r *report.Report) { r.Runs[0].Verdict = report.VerdictErrored }),
			map[string]float64{"memory": 1}, report.VerdictErrored, "it has no sound run with ETS",
		},
		"nothing sound to compare": {
			changed(measured(1e6), func(r *report.Report) { r.Runs[0].Verdict = report.VerdictErrored }), measured(1e6),
			map[string]float64{"memory": 1}, report.VerdictErrored, "no run of this benchmark is sound",
		},
		"what was not measured": {
			measured(1e6), measured(1e6), map[string]float64{"memory": 1, "cpu": 1}, report.VerdictErrored,
			"CPU time was not measured in both with ETS",
		},
		// The client was the bottleneck: its times say nothing, and what was counted does.
		"times that do not count": {
			changed(measured(1e6), func(r *report.Report) { r.Runs[0].Verdict, r.Runs[0].ClientBound = report.VerdictErrored, true }), measured(1e6),
			map[string]float64{"reconnect": 1}, report.VerdictErrored, "p95 of returns was not measured in both",
		},
		"a p95": {
			measured(1e6), measured(1e6), map[string]float64{"reconnect": 1, "stash": 1, "firstRender": 1}, report.VerdictPassed, "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := report.Compare(c.now, c.before, "main-report", c.limits)
			if got.Verdict != c.verdict || !strings.Contains(got.Message, c.says) || (got.Message == "") != (c.says == "") {
				t.Fatalf("it is %s because %q, want %s because %q", got.Verdict, got.Message, c.verdict, c.says)
			}
			wanted := len(c.limits)
			if c.verdict == report.VerdictErrored {
				wanted = 0
			}
			if len(got.Figures) != wanted {
				t.Errorf("%d figures were compared, want %d: %+v", len(got.Figures), wanted, got.Figures)
			}
			if held := !slices.ContainsFunc(got.Figures, func(one report.Compared) bool { return !one.Holds }); held != (c.verdict != report.VerdictFailed) {
				t.Errorf("it is %s, with the figures %+v", got.Verdict, got.Figures)
			}
			c.now.Comparison = &got
			if said := string(report.Markdown(c.now)); !strings.Contains(said, got.Message) || c.says == "" && !strings.Contains(said, "all limits of compareWith hold") {
				t.Errorf("the report does not say what came of the comparison: %s", said)
			}
		})
	}
}

// A message has to fit into a condition, however much is over its limit.
func TestMessageOfComparisonIsShort(t *testing.T) {
	before := example(5, [2]int{200, 60}, [2]int{300, 60}, [2]int{400, 60})
	got := report.Compare(before, before, "main-report", map[string]float64{"memory": 0.9})
	if len(got.Figures) != 15 || strings.Count(got.Message, "at most 0.9 times") != 3 || !strings.Contains(got.Message, "12 more, see comparison in report.json") {
		t.Errorf("%d figures: %s", len(got.Figures), got.Message)
	}
}
