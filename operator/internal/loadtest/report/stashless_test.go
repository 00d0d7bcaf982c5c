package report_test

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// stashless is a made-up report in which nobody stashes: two variants under two loads.
func stashless(scenario string, change func(place int, r *report.Run)) report.Report {
	r := example(20, [2]int{1000, 60}, [2]int{5000, 60})
	r.Spec.Preset, r.Spec.Scenario, r.Spec.PayloadKeys, r.Spec.PayloadOnPage, r.Spec.Baseline = "", scenario, 0, "", "plain"
	r.Spec.Thresholds = map[string]string{"maxFailed": "0.01"}
	var runs []report.Run
	for i, run := range r.Runs {
		if i%5 > 1 {
			continue
		}
		run.Adapter, run.Variant, run.TTLSeconds = "None", []string{"plain", "other"}[i%5], 0
		change(len(runs), &run)
		runs = append(runs, run)
	}
	r.Runs = runs
	return r
}

func requestsReport() report.Report {
	r := stashless("Requests", func(place int, run *report.Run) {
		run.Users, run.Rate, run.RampSeconds, run.DurationSeconds = 12, 0, 0, 60
		if place > 1 {
			run.Users, run.Rate = 100, 500
		}
		run.Counts = &report.Counts{Of: map[string]int64{report.CountGood: 30_000, report.CountFailed: 0, report.CountRequests: 30_000}}
		run.Durations = map[string]report.Duration{"request": {Count: 30_000, P50: 2, P95: 7.5 + float64(place), P99: 12}}
	})
	r.Spec.Asked = "POST /api/sum"
	return r
}

func roomsReport() report.Report {
	r := stashless("Rooms", func(_ int, run *report.Run) {
		run.DurationSeconds, run.RampSeconds = 300, 60
		run.Samples[report.SeriesCollections] = report.Series{Unit: "1/s", Points: [][2]float64{{5, 143}}, Peak: 143, Total: ptr.To(42_700 * float64(run.Users) / 1000)}
		run.Counts = &report.Counts{Of: map[string]int64{report.CountGood: 990, report.CountFailed: 10, report.CountMessages: 1000, report.CountDeliveries: 48_000}}
		run.Durations = map[string]report.Duration{"join": {Count: 1000, P95: 3}, "delivery": {Count: 990, P50: 2, P95: 8.25, P99: 15}}
	})
	r.Spec.Asked = "rooms of 50, 50 of whom say 64 bytes every 10s-60s"
	return r
}

// Reports of scenarios in which nobody stashes speak of what they measured, and of no stash.
func TestStashlessReports(t *testing.T) {
	for name, c := range map[string]struct {
		report report.Report
		says   []string
	}{
		"requests": {requestsReport(), []string{
			"12 connections", "500 requests a second on 100 connections", "a second of CPU", "120,000 of 120,000 requests got a good answer", "500", "7.5 ms", "POST /api/sum",
		}},
		"rooms": {roomsReport(), []string{
			"1,000 users", "3,960 of 4,000 messages reached their whole room", "200", "8.25 ms", "elivery", "42.7", "rooms of 50, 50 of whom say 64 bytes every 10s-60s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			page := html(c.report)
			_, page, _ = strings.Cut(page, "</style>")
			for kind, text := range map[string]string{"page": page, "Markdown": string(report.Markdown(c.report))} {
				text = strings.ReplaceAll(text, "\u00a0", " ")
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("the %s does not say %q:\n%s", kind, want, text)
					}
				}
				text = regexp.MustCompile("(?i)livestash").ReplaceAllString(text, "")
				for _, never := range []string{"TTL", "tash", "ecovered", "Return", "adapter", "LiveView", "cPU", "NaN", "Inf"} {
					if at := strings.Index(text, never); at >= 0 {
						t.Errorf("the %s says %q: …%.120s", kind, never, text[max(0, at-60):])
					}
				}
			}
		})
	}
}

// A limit for requests is judged by the variant and the load, which is told in the words of its scenario.
func TestStashlessReportsAreCompared(t *testing.T) {
	before, now := requestsReport(), requestsReport()
	if c := report.Compare(now, before, "main-report", map[string]float64{"request": 1}); c.Verdict != report.VerdictPassed || len(c.Figures) != 4 {
		t.Errorf("the same report: %+v", c)
	}
	slow := now.Runs[3].Durations["request"]
	slow.P95 *= 2
	now.Runs[3].Durations["request"] = slow
	want := "Compared with main-report: other, 500 requests a second on 100 connections, 1 min with a ramp of 0 s, pods: 2: p95 of requests 21 ms, and 10.5 ms there"
	if c := report.Compare(now, before, "main-report", map[string]float64{"request": 1.5}); c.Verdict != report.VerdictFailed || !strings.Contains(c.Message, want) {
		t.Errorf("a slower one: %+v, want %q", c, want)
	}
	now.Spec.Asked = "GET /"
	if c := report.Compare(now, before, "main-report", map[string]float64{"request": 1.5}); c.Verdict != report.VerdictErrored || !strings.Contains(c.Message, "its requests or rooms: POST /api/sum, and here: GET /") {
		t.Errorf("another request: %+v", c)
	}
}

// What fails has no time, so the p95 of the rest is not that of all; and who serves less, takes less. Both are said wherever the figures stand.
func TestReportsOfWhatFailed(t *testing.T) {
	rooms := roomsReport()
	for i := range rooms.Runs {
		if run := &rooms.Runs[i]; run.Variant == "other" {
			run.Verdict = report.VerdictFailed
			run.Counts = &report.Counts{Of: map[string]int64{report.CountGood: 240, report.CountFailed: 760, report.CountDeliveries: 48_000}}
		}
	}
	requests := requestsReport()
	for i := range requests.Runs {
		if run := &requests.Runs[i]; run.Rate > 0 {
			run.Counts.Of[report.CountUnsent] = 10_000
		}
	}
	for name, c := range map[string]struct {
		report    report.Report
		says, not []string
	}{
		"messages that did not arrive": {rooms, []string{"never", "over 5 % never", "failed (delivered: 24 % of all messages)"}, []string{"p95 of deliveries"}},
		"requests that were not sent":  {requests, []string{"120,000 of 140,000 requests got a good answer", "75 %", "over 5 % never"}, []string{"9.5 ms", "10.5 ms", "(failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, text := range map[string]string{"page": breakable(c.report), "Markdown": strings.ReplaceAll(string(report.Markdown(c.report)), "\u00a0", " ")} {
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("the %s does not say %q:\n%s", kind, want, text)
					}
				}
				for _, never := range c.not {
					if strings.Contains(text, never) {
						t.Errorf("the %s says %q", kind, never)
					}
				}
			}
		})
	}
	if text := string(report.Markdown(rooms)); strings.Count(text, "other (failed)") != 6 {
		t.Errorf("a variant that failed is marked %d times, not in the costs, times and peaks of two loads:\n%s", strings.Count(text, "other (failed)"), text)
	}
	// Of several rounds those that held are not the whole truth.
	rounds := roomsReport()
	last := rooms.Runs[1]
	last.Name, last.Round = "another", 2
	rounds.Runs = append(rounds.Runs, last)
	if text := string(report.Markdown(rounds)); strings.Count(text, "over 5 % never") != 1 {
		t.Errorf("a round of two is told as both:\n%s", text)
	}
	// A client that was late is no witness of either.
	late := roomsReport()
	last.Verdict, last.ClientBound = report.VerdictErrored, true
	late.Runs = append(late.Runs, last)
	if text := string(report.Markdown(late)); strings.Contains(text, "over 5 %") {
		t.Errorf("a round in which the client was late hides the others' p95:\n%s", text)
	}
	if c := report.Against(late, map[string]float64{"delivery": 9}); c.Verdict != report.VerdictPassed {
		t.Errorf("with a round in which the client was late: %+v", c)
	}
	c := report.Against(rooms, map[string]float64{"delivery": 9})
	if c.Verdict != report.VerdictErrored || !strings.Contains(c.Message, "there is no p95 of deliveries with other") || !strings.Contains(c.Message, "more than 5 % came to no good end") {
		t.Errorf("a p95 of a quarter of the messages is compared: %+v", c)
	}
}
