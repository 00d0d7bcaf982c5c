package report_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// What reports say of k6's ceiling is what the load tests' README has measured.
func TestCeilingsAreTheMeasuredOnes(t *testing.T) {
	text, err := os.ReadFile("../../../../loadtests/k6/README.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]float64{}
	for _, row := range regexp.MustCompile(`(?m)^\| ((?:deliveries|requests), [^|]+) \| ([0-9,]+) a second \|`).FindAllStringSubmatch(string(text), -1) {
		if measured[row[1]], err = strconv.ParseFloat(strings.ReplaceAll(row[2], ",", ""), 64); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(measured, report.Ceilings()); diff != "" {
		t.Errorf("the README (-) and reports (+) differ:\n%s", diff)
	}
}

// A report says how near its runners came to what k6 can do, and what to do when that was near.
func TestReportsSayHowNearK6CameToItsCeiling(t *testing.T) {
	rooms := func(bytes int, perSecond int64, server *report.Server) report.Report {
		r := roomsReport()
		r.Spec.MessageBytes, r.Spec.Variants = bytes, []report.Variant{{Name: "plain"}, {Name: "other", Server: server}}
		for i := range r.Runs {
			r.Runs[i].Runners = 2
			// Heard in the four minutes after the ramp, half of them too late.
			r.Runs[i].Counts.Of[report.CountDeliveries], r.Runs[i].Counts.Of[report.CountLateDeliveries] = 120*perSecond, 120*perSecond
		}
		return r
	}
	requests := requestsReport()
	for i := range requests.Runs {
		requests.Runs[i].Runners = 1
	}
	const near, every = "take more runners", "k6's own limit"
	for name, c := range map[string]struct {
		report report.Report
		says   []string
		not    string
	}{
		"far from it":           {rooms(64, 4844, nil), []string{"2,422 deliveries a second for each runner in the busiest run, 10 % of the 24,220 that"}, near},
		"near it":               {rooms(10_000, 14_000, nil), []string{"7,000 deliveries a second", "53 % of the 13,330", near}, "NaN"},
		"the protocol counts":   {rooms(64, 48_440, &report.Server{Protocol: "ActionCable"}), []string{"24,220 deliveries a second", ", 100 % of the 24,220", near}, "48,888"},
		"no such long messages": {rooms(20_000, 14_000, nil), nil, every},
		"an earlier report":     {rooms(0, 14_000, nil), nil, every},
		"requests":              {requests, []string{"500 answers a second for each runner in the busiest run, 11 % of the 4,588"}, near},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, text := range map[string]string{"page": breakable(c.report), "Markdown": string(report.Markdown(c.report))} {
				for _, want := range c.says {
					if !strings.Contains(text, want) {
						t.Errorf("the %s does not say %q", kind, want)
					}
				}
				if strings.Contains(text, c.not) {
					t.Errorf("the %s says %q", kind, c.not)
				}
			}
		})
	}
}
