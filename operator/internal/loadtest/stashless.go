package loadtest

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// Stashless is whether nobody stashes in a scenario.
func Stashless(name v1alpha1.BenchmarkScenario) bool {
	return name == v1alpha1.ScenarioRequests || name == v1alpha1.ScenarioRooms
}

// withOutcome adds what came to a good end, and what did not.
func withOutcome(counts map[string]int64, failed Share) map[string]int64 {
	counts[report.CountGood], counts[report.CountFailed] = failed.No, failed.Yes
	return counts
}

// answerP95 is the p95 of a duration of what came to a good end, where that is the p95 of all and says something about the server.
func answerP95(result Result, duration string, timed bool) *metav1.Duration {
	measured := result.Durations[duration]
	if measured.Count == 0 || !timed || !result.Counts.HasQuantile(duration, 0.95) {
		return nil
	}
	return Milliseconds(measured.P95)
}

// perSecond is how many there were a second.
func perSecond(count int64, in time.Duration) string {
	return strconv.FormatFloat(float64(count)/max(1, in.Seconds()), 'f', 1, 64)
}

func defaultDuration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
