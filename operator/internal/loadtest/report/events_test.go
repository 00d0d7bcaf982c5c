package report_test

import (
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// What was done to the fleet in mid-run is told with what it cost, and is a band in every chart of the run.
func TestEventsAreShown(t *testing.T) {
	r := example(20, [2]int{1000, 60}, [2]int{300, 15})
	if page := html(r); strings.Contains(page, "Events:") || strings.Contains(page, `class="event"`) {
		t.Error("a run without events has some")
	}
	run := &r.Runs[1]
	run.Events = []report.Event{{Kind: "Rollout", AtSeconds: 60, TookSeconds: 25}, {Kind: "DeletePod", AtSeconds: 120, TookSeconds: 9}}
	run.Counts.Of[report.CountNotRecovered], run.Counts.Of[report.CountCut] = 3, 950
	run.Durations["reconnect_during"] = report.Duration{Count: 800, P95: 140}
	run.Durations["reconnect_outside"] = report.Duration{Count: 200, P95: 19.6}
	want := "Events: Rollout at 1 min, over after 25 s; DeletePod at 2 min, over after 9 s. 3 of 1,003 returns within the TTL found no state, and " +
		"950 sockets were cut. A return took 140 ms (p95) in the time that was given to them, and 19.6 ms outside of it."
	if page := breakable(r); strings.Count(page, want) != 1 || strings.Count(page, `class="event"`) != 11*2 {
		t.Errorf("%d sentences, %d bands in 11 charts", strings.Count(page, want), strings.Count(page, `class="event"`))
	}
	if md := string(report.Markdown(r)); strings.Count(md, "Rollout at 1 min, over after 25 s") != 1 {
		t.Error("the Markdown does not tell of the events")
	}
	clientBound(run)
	if page := breakable(r); !strings.Contains(page, "950 sockets were cut.") || strings.Contains(page, "given to them") {
		t.Error("of a client that was the bottleneck counts stand, and times do not")
	}
}
