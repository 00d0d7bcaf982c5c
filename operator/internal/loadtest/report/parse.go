package report

import (
	"encoding/json"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// mostRuns is more than any matrix has.
const mostRuns = 1000

// Parse reads a report back that was written as JSON. Between writing and reading anybody who may edit its ConfigMap can have changed it, so
// a report with figures that cannot be is refused.
func Parse(text []byte) (Report, error) {
	var read Report
	if err := json.Unmarshal(text, &read); err != nil {
		return Report{}, err
	}
	if read.SchemaVersion != SchemaVersion {
		return Report{}, fmt.Errorf("its schema version is %d, and this operator writes %d", read.SchemaVersion, SchemaVersion)
	}
	if len(read.Runs) > mostRuns {
		return Report{}, fmt.Errorf("it has %d runs", len(read.Runs))
	}
	for _, node := range read.Machine.Nodes {
		if !plausible.Figure(node.CPU) || !plausible.Counts(node.Memory) {
			return Report{}, fmt.Errorf("it tells of a node with %g CPUs and %d bytes", node.CPU, node.Memory)
		}
	}
	for i := range read.Runs {
		if err := read.Runs[i].check(); err != nil {
			return Report{}, fmt.Errorf("run %d: %w", i, err)
		}
	}
	return read, nil
}

// check finds what no run can have.
func (r *Run) check() error {
	if !plausible.Seconds(r.TTLSeconds) || !plausible.Seconds(r.DurationSeconds) || !plausible.Seconds(r.RampSeconds) {
		return fmt.Errorf("its times are %g, %g and %g seconds", r.TTLSeconds, r.DurationSeconds, r.RampSeconds)
	}
	if !plausible.Counts(int64(r.Users), int64(r.Replicas), int64(r.Runners), int64(r.Round), int64(r.Rate)) {
		return fmt.Errorf("it has %d users, %d replicas and %d runners", r.Users, r.Replicas, r.Runners)
	}
	if err := ptr.Deref(r.Counts, Counts{}).check(); err != nil {
		return err
	}
	for _, event := range r.Events {
		if err := event.check(); err != nil {
			return err
		}
	}
	figures := plausible.Named{"cores": r.CPULimit, "cores after the ramp": ptr.Deref(r.CPUAfterRamp, 0), "client's delay": ptr.Deref(r.ClientDelay, 0)}
	if err := figures.Check(); err != nil {
		return err
	}
	if !plausible.Seconds(ptr.Deref(r.SampledSeconds, 0)) {
		return fmt.Errorf("it was sampled for %g seconds", *r.SampledSeconds)
	}
	for name, d := range r.Durations {
		if err := d.check(); err != nil {
			return fmt.Errorf("its durations of %q: %w", name, err)
		}
	}
	for name, series := range r.Samples {
		if err := series.check(); err != nil {
			return fmt.Errorf("its series %q: %w", name, err)
		}
	}
	return nil
}

// check finds what no event can have.
func (e Event) check() error {
	if !plausible.Seconds(e.AtSeconds) || !plausible.Seconds(e.TookSeconds) {
		return fmt.Errorf("it has an event at %g s that took %g s", e.AtSeconds, e.TookSeconds)
	}
	return nil
}

// check finds what no durations can have.
func (d Duration) check() error {
	if !plausible.Counts(d.Count) {
		return fmt.Errorf("there are %d of them", d.Count)
	}
	return plausible.Named{"min": d.Min, "max": d.Max, "p50": d.P50, "p95": d.P95, "p99": d.P99, "p99AtLeast": d.P99AtLeast,
		"errorBound": d.ErrorBound, "rankBound": d.RankBound}.Check()
}

// check finds what no series can have.
func (s Series) check() error {
	if len(s.Points) > MaxPoints {
		return fmt.Errorf("it has %d points", len(s.Points))
	}
	for _, point := range s.Points {
		if !plausible.Seconds(point[0]) || !plausible.Figure(point[1]) {
			return fmt.Errorf("it has a point at %g s of %g", point[0], point[1])
		}
	}
	figures := plausible.Named{"peak": s.Peak}
	if s.Total != nil {
		figures["total"] = *s.Total
	}
	if s.PeakMinute != nil {
		figures["peak over a minute"] = *s.PeakMinute
	}
	return figures.Check()
}
