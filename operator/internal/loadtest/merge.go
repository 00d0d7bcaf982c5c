package loadtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// runnerReportVersion is the version of the runners' reports that is understood here.
const runnerReportVersion = 3

// mostCounted is more than any runner counts: a thousand runners still add up to what a report may hold.
const mostCounted = 1e12

// RunnerReport is what one k6 runner leaves in its termination message (loadtests/k6/README.md, "The report").
type RunnerReport struct {
	Version          int                  `json:"version"`
	TestID           string               `json:"testid"`
	Scenario         string               `json:"scenario"`
	Runner           int                  `json:"runner"`
	Runners          int                  `json:"runners"`
	Users            int64                `json:"users"`
	DurationSeconds  float64              `json:"duration_s"`
	StartedAt        time.Time            `json:"started_at"`
	EndedAt          time.Time            `json:"ended_at"`
	RanSeconds       float64              `json:"ran_s"`
	Completed        bool                 `json:"completed"`
	FailedThresholds []string             `json:"failed_thresholds"`
	Problem          *string              `json:"problem"`
	Planned          int64                `json:"planned"`
	Connected        int64                `json:"connected"`
	Dropped          int64                `json:"dropped"`
	Failed           Share                `json:"failed"`
	Unfinished       int64                `json:"unfinished"`
	ConnectFailed    int64                `json:"connect_failed"`
	Error            int64                `json:"error"`
	Errors           map[string]int64     `json:"errors"`
	ClientDelay      Delay                `json:"client_delay"`
	Durations        map[string]Histogram `json:"durations"`
	// What only some scenarios have.
	stashFigures
	requestFigures
	roomFigures
}

// counts are those that every scenario has, by their names in the report.
func (r *RunnerReport) counts() map[string]int64 {
	return map[string]int64{
		report.CountPlanned: r.Planned, report.CountConnected: r.Connected, report.CountDropped: r.Dropped,
		report.CountUnfinished: r.Unfinished, report.CountConnectFailed: r.ConnectFailed, report.CountError: r.Error,
	}
}

// Delay is how late steps began because of k6 itself, in ms. P99 is nil when none was measured.
type Delay struct {
	Count int64    `json:"count"`
	P99   *float64 `json:"p99"`
}

// Share counts what did and what did not.
type Share struct {
	Yes int64 `json:"yes"`
	No  int64 `json:"no"`
}

// total is how many there were.
func (s Share) total() int64 { return s.Yes + s.No }

// of is the share of those that did, from 0 to 1; 0 when there were none.
func (s Share) of() float64 {
	if s.total() == 0 {
		return 0
	}
	return float64(s.Yes) / float64(s.total())
}

// ErrNoReport says that a message is something else than a runner's report: the end of a log, or nothing.
var ErrNoReport = errors.New("it left no report")

// ParseRunnerReport reads a runner's termination message.
func ParseRunnerReport(message string) (RunnerReport, error) {
	var read RunnerReport
	if err := json.Unmarshal([]byte(message), &read); err != nil {
		return RunnerReport{}, ErrNoReport
	}
	if read.Version != runnerReportVersion {
		return RunnerReport{}, fmt.Errorf("its report has version %d, and this operator reads version %d: "+
			"use the k6 image that is released with the operator", read.Version, runnerReportVersion)
	}
	return read, read.check()
}

// check finds what no report can have: its runner's image is the user's, and may write anything.
func (r *RunnerReport) check() error {
	counts := []int64{int64(r.Runner), int64(r.Runners), r.Users, r.Failed.Yes, r.Failed.No, r.ClientDelay.Count, r.ConnectionsWanted, r.RoomSize, r.Speakers, r.Bytes}
	for _, more := range []map[string]int64{r.counts(), r.stashFigures.counts(), r.requestFigures.counts(), r.roomFigures.counts(), r.Errors} {
		counts = slices.AppendSeq(counts, maps.Values(more))
	}
	if slices.Min(counts) < 0 || slices.Max(counts) > mostCounted {
		return fmt.Errorf("its report has counts from %d to %d, which no run has", slices.Min(counts), slices.Max(counts))
	}
	if !plausible.Seconds(r.DurationSeconds) || !plausible.Seconds(r.RanSeconds) || !plausible.Seconds(r.TTLSeconds) {
		return fmt.Errorf("its report tells of %g and %g seconds and a TTL of %g, which no run takes", r.DurationSeconds, r.RanSeconds, r.TTLSeconds)
	}
	if err := (plausible.Named{"the client's delay": ptr.Deref(r.ClientDelay.P99, 0)}).Check(); err != nil {
		return fmt.Errorf("its report tells of a delay that no client has: %w", err)
	}
	for name, histogram := range r.Durations {
		if err := histogram.check(); err != nil {
			return fmt.Errorf("its report has no sound histogram of %s: %w", name, err)
		}
	}
	return nil
}

// Result are the figures of all runners of a run together.
type Result struct {
	Counts report.Counts
	// Durations by the names that k6 knows them by.
	Durations map[string]report.Duration
	// ClientDelay is how late k6 itself began 99 % of the steps at most, in ms: that of the latest runner. Nil when one of them
	// did not measure it.
	ClientDelay *float64
	// Together is for how long all runners were at work at the same time.
	Together time.Duration
	// Failed are the steps of users that failed, and those that did not.
	Failed Share
}

// Recovered is the share of returns within the TTL that brought the state back, and how many returns there were.
func (r Result) Recovered() (share float64, returns int64) {
	recovered := Share{Yes: r.Counts.Of[report.CountRecovered], No: r.Counts.Of[report.CountNotRecovered]}
	return recovered.of(), recovered.total()
}

// completeService adds to the durations from when a step began those of the runners that left them out, because they are the same as from when it
// should have begun: else those of one runner would stand for all.
func completeService(parts map[string][]Histogram, name string, runners []RunnerReport) {
	whole, is := strings.CutSuffix(name, "_service")
	if !is {
		return
	}
	for _, one := range runners {
		_, told := one.Durations[name]
		if same, has := one.Durations[whole]; has && !told {
			parts[name] = append(parts[name], same)
		}
	}
}

// Merge adds the reports of a run's runners up.
func Merge(of Scenario, runners []RunnerReport) Result {
	sum := Result{Counts: report.Counts{Of: map[string]int64{}, Errors: map[string]int64{}}, Durations: map[string]report.Duration{}}
	parts := map[string][]Histogram{}
	delays := make([]*float64, 0, len(runners))
	var began, ended time.Time
	for i, one := range runners {
		if i == 0 || one.StartedAt.After(began) {
			began = one.StartedAt
		}
		if i == 0 || one.EndedAt.Before(ended) {
			ended = one.EndedAt
		}
		delays = append(delays, one.ClientDelay.P99)
		sum.Counts.Add(one.counts(), one.Errors)
		sum.Counts.Add(of.Figures(one), nil)
		sum.Failed.Yes += one.Failed.Yes
		sum.Failed.No += one.Failed.No
		for name, histogram := range one.Durations {
			parts[name] = append(parts[name], histogram)
		}
	}
	sum.Together = max(0, ended.Sub(began))
	if len(delays) > 0 && !slices.Contains(delays, nil) {
		sum.ClientDelay = slices.MaxFunc(delays, func(a, b *float64) int { return cmp.Compare(*a, *b) })
	}
	for name := range parts {
		completeService(parts, name, runners)
	}
	for name, of := range pooled {
		if late := parts[of[1]]; len(late) > 0 {
			parts[name] = slices.Concat(parts[of[0]], late)
		}
	}
	for name, histograms := range parts {
		sum.Durations[name] = merged(histograms)
	}
	return sum
}
