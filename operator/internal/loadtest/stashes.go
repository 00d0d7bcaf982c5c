package loadtest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// shortestTTL is the least that scale makes of a TTL.
const shortestTTL = 10 * time.Second

// stashes is what the scenarios have in common in which users stash, and come back for it: Visits, Reconnect, and scripts of one's own.
type stashes struct{ quiet }

// stashFigures are the fields of their runners' reports.
type stashFigures struct {
	Adapter    string  `json:"adapter"`
	TTLSeconds float64 `json:"ttl_s"`
	Cycles     int64   `json:"cycles"`
	Recovered  Share   `json:"recovered"`
	Late       Share   `json:"late"`
	Expired    Share   `json:"expired"`
	Cut        int64   `json:"cut"`
	NotFound   int64   `json:"not_found"`
	WrongCount int64   `json:"wrong_count"`
}

func (f stashFigures) counts() map[string]int64 {
	counts := map[string]int64{
		report.CountCycles:              f.Cycles,
		report.CountRecovered:           f.Recovered.Yes,
		report.CountNotRecovered:        f.Recovered.No,
		report.CountLateRecovered:       f.Late.Yes,
		report.CountLateNotRecovered:    f.Late.No,
		report.CountExpiredRecovered:    f.Expired.Yes,
		report.CountExpiredNotRecovered: f.Expired.No,
		report.CountNotFound:            f.NotFound,
		report.CountWrong:               f.WrongCount,
	}
	if f.Cut != 0 {
		counts[report.CountCut] = f.Cut
	}
	return counts
}

// pooled are durations of which another one is made: the published test makes no difference between returns within the TTL and later ones.
var pooled = map[string][2]string{"any_rejoin": {"rejoin", "late_rejoin"}}

// Size divides users and times by the scale. A TTL does not get shorter than shortestTTL.
func (stashes) Size(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, run *Run) {
	scale := max(1, spec.Scale)
	run.Users = max(ceilDiv(size.Users, scale), ptr.Deref(spec.Parallelism, 1))
	run.TTL, run.Duration, run.Ramp = size.TTL.Duration, 3*size.TTL.Duration, size.TTL.Duration*3/4
	if size.Duration != nil {
		run.Duration = size.Duration.Duration
	}
	if size.Ramp != nil {
		run.Ramp = size.Ramp.Duration
	}
	if scaled := max((run.TTL / time.Duration(scale)).Round(time.Second), shortestTTL); scaled < run.TTL {
		shorter := func(d time.Duration) time.Duration {
			return time.Duration(float64(d) * float64(scaled) / float64(run.TTL)).Round(time.Second)
		}
		run.Duration, run.Ramp = shorter(run.Duration), shorter(run.Ramp)
		run.TTL = scaled
	}
	run.Runners = ptr.Deref(spec.Parallelism, run.LeastRunners())
}

func (stashes) Options(run Run, limits v1alpha1.BenchmarkThresholds) []corev1.EnvVar {
	options := []corev1.EnvVar{
		{Name: "ADAPTER", Value: store.Of(run.Adapter).Name()},
		{Name: "USERS", Value: strconv.Itoa(int(run.Users))},
		{Name: "TTL", Value: seconds(run.TTL)},
		{Name: "DURATION", Value: seconds(run.Duration)},
		{Name: "RAMP", Value: seconds(run.Ramp)},
	}
	if len(run.Events) > 0 {
		options = append(options, corev1.EnvVar{Name: "EVENTS", Value: windows(run.Events)})
	}
	if limits.MinRecovered != "" {
		options = append(options, corev1.EnvVar{Name: "MIN_RECOVERED", Value: limits.MinRecovered})
	}
	if limits.MaxWrong != nil {
		options = append(options, corev1.EnvVar{Name: "MAX_WRONG", Value: strconv.FormatInt(*limits.MaxWrong, 10)})
	}
	return options
}

func (stashes) Foreign(run Run, read RunnerReport) string {
	if read.Users != int64(run.Users) || read.Adapter != store.Of(run.Adapter).Name() {
		return fmt.Sprintf("ran another test than it should have: runner %d of %d, %d users, adapter %s", read.Runner+1, read.Runners, read.Users, read.Adapter)
	}
	if read.TTLSeconds != run.TTL.Seconds() || read.DurationSeconds != run.Duration.Seconds() {
		return fmt.Sprintf("ran another test than it should have: %gs with a TTL of %gs instead of %s and %s", read.DurationSeconds, read.TTLSeconds, run.Duration, run.TTL)
	}
	return ""
}

func (stashes) Load(run Run) string { return fmt.Sprintf("%d users, TTL %s", run.Users, run.TTL) }

func (stashes) Asked(Run) string { return "" }

func (stashes) Sound(_ Run, result Result) []string {
	of := result.Counts.Of
	if of[report.CountCycles] == 0 {
		return []string{fmt.Sprintf("No user got as far as a stash: %d of %d connected, and %s.", of[report.CountConnected], of[report.CountPlanned], errorsOf(result.Counts))}
	}
	if _, returns := result.Recovered(); returns == 0 {
		return []string{"No return within the TTL came to an end, so thresholds.minRecovered cannot be judged: make duration longer, or take more users."}
	}
	return nil
}

func (stashes) Broken(run Run, limits v1alpha1.BenchmarkThresholds, result Result) []string {
	var broken []string
	fails := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	recovers, of := store.Of(run.Adapter).Recovers(), result.Counts.Of

	recovered, returns := result.Recovered()
	least := number(limits.MinRecovered, 0.99)
	switch {
	case !recovers && of[report.CountRecovered] > 0:
		fails("recovered: %d of %d returns brought the state back, and with adapter %s none can: the target stashes after all",
			of[report.CountRecovered], returns, run.Adapter)
	case recovers && recovered < least:
		fails("minRecovered: %s of %d returns brought the state back, at least %s must", percent(recovered), returns, percent(least))
	}
	if lost := of[report.CountNotRecovered]; limits.MaxLost != nil && recovers && lost > *limits.MaxLost {
		fails("maxLost: %d of %d returns did not bring the state back, at most %d may", lost, returns, *limits.MaxLost)
	}
	if most := ptr.Deref(limits.MaxWrong, 0); of[report.CountWrong] > most {
		fails("maxWrong: %d recovered states were not the last acknowledged one, at most %d may be", of[report.CountWrong], most)
	}
	// Who never came in is a few failed steps among those of all the others, and in no time. A script of one's own need not count them.
	few := usersThatMayFail(run, limits)
	if never := of[report.CountPlanned] - of[report.CountConnected]; never > few && of[report.CountConnected] > 0 {
		fails("maxFailed: %d users never came in, with %d users at most %d may", never, run.Users, few)
	}
	if text := tooManyFailed(limits, result, "steps"); text != "" {
		broken = append(broken, text)
	}
	if found := of[report.CountExpiredRecovered]; found > 0 && recovers {
		fails("expiry: %d of %d visitors who came back after the TTL and the cleaner found their state: the target does not expire stashes after %s",
			found, found+of[report.CountExpiredNotRecovered], run.TTL)
	}
	return broken
}

func (stashes) Judges(metric string) bool {
	return slices.Contains([]string{"recovered", "wrong_count", "cycles", "expired_recovered"}, metric)
}

func (stashes) Figures(read RunnerReport) map[string]int64 { return read.stashFigures.counts() }

func (stashes) Headline(_ Run, result Result, timed bool, row *v1alpha1.BenchmarkRunStatus) {
	if share, returns := result.Recovered(); returns > 0 {
		row.Recovered, row.Lost = strconv.FormatFloat(share, 'f', 4, 64), ptr.To(result.Counts.Of[report.CountNotRecovered])
	}
	if back := result.Durations["reconnect"]; back.Count > 0 && timed {
		row.ReconnectP95 = Milliseconds(back.P95)
	}
}
