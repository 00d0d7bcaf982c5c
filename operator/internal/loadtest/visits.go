package loadtest

import (
	"cmp"
	"time"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// visitPauses are the pauses of one visit, four of 5 s, and latestReturn how long the last visitors are away who come back when
	// their stash has expired, in TTLs: a run of Visits must last for both.
	visitPauses  = 20 * time.Second
	latestReturn = 1.65
)

// visits: users come, leave, and come back once, before or after their stash has expired.
type visits struct{ stashes }

func (visits) Script() string { return scripts + "visits.js" }

func (v visits) Size(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, run *Run) {
	v.stashes.Size(spec, size, run)
	run.Duration = max(run.Duration, shortestVisits(run.TTL))
}

func (v visits) Foreign(run Run, read RunnerReport) string {
	return cmp.Or(v.stashes.Foreign(run, read), named(read, "visits"))
}

func (visits) Note(run Run, result Result) string {
	expired := result.Counts.Of[report.CountExpiredRecovered] + result.Counts.Of[report.CountExpiredNotRecovered]
	if expired > 0 || !store.Of(run.Adapter).Recovers() {
		return ""
	}
	return "Expiry was not judged: the run was too short for a visitor to come back after the TTL and the cleaner, which comes round once a minute."
}

// shortestVisits is how long a run of Visits must last, in whole seconds, for somebody to come back after the TTL.
func shortestVisits(ttl time.Duration) time.Duration {
	shortest := time.Duration(latestReturn*float64(ttl)) + visitPauses
	return (shortest + time.Second - 1).Truncate(time.Second)
}
