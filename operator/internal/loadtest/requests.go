package loadtest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// What a run of Requests has where the matrix does not say.
const (
	defaultRequestsDuration = time.Minute
	// connectionsOfRate carry a rate.
	connectionsOfRate = 100
	defaultPath       = "/api/sum"
	// longestAsked is how much of a body the report holds.
	longestAsked = 200
)

// requests: connections ask a JSON API, again and again, or so many times a second.
type requests struct{}

// requestFigures are the fields of its runners' reports.
type requestFigures struct {
	Method            string  `json:"method"`
	Path              string  `json:"path"`
	ConnectionsWanted int64   `json:"connections_wanted"`
	Rate              float64 `json:"rate"`
	Requests          int64   `json:"requests"`
	WrongAnswers      int64   `json:"wrong"`
	Unsent            int64   `json:"unsent"`
}

func (f requestFigures) counts() map[string]int64 {
	return map[string]int64{report.CountRequests: f.Requests, report.CountWrongAnswers: f.WrongAnswers, report.CountUnsent: f.Unsent}
}

func (requests) Script() string { return scripts + "requests.js" }

// Size deals connections out evenly: each runner has as many as the others.
func (requests) Size(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, run *Run) {
	run.Users = cmp.Or(size.Connections, connectionsOfRate)
	run.Runners = ptr.Deref(spec.Parallelism, run.LeastRunners())
	run.Users, run.Rate = ceilDiv(run.Users, run.Runners)*run.Runners, size.Rate
	run.Duration = ptr.Deref(size.Duration, defaultDuration(defaultRequestsDuration)).Duration
	asked := ptr.Deref(spec.Requests, v1alpha1.BenchmarkRequests{})
	asked.Method, asked.Path = cmp.Or(asked.Method, http.MethodPost), cmp.Or(asked.Path, defaultPath)
	run.Requests = &asked
}

func (requests) Options(run Run, _ v1alpha1.BenchmarkThresholds) []corev1.EnvVar {
	options := []corev1.EnvVar{
		{Name: "CONNECTIONS", Value: strconv.Itoa(int(run.Users))},
		{Name: "RATE", Value: strconv.Itoa(int(run.Rate))},
		{Name: "DURATION", Value: seconds(run.Duration)},
		{Name: "METHOD", Value: run.Requests.Method},
		{Name: "REQUEST_PATH", Value: run.Requests.Path},
	}
	if run.Requests.Body != "" {
		options = append(options, corev1.EnvVar{Name: "BODY", Value: run.Requests.Body})
	}
	return options
}

func (requests) Foreign(run Run, read RunnerReport) string {
	if why := named(read, "requests"); why != "" {
		return why
	}
	if read.Method != run.Requests.Method || read.Path != run.Requests.Path || read.ConnectionsWanted != int64(run.Users) || read.Rate != float64(run.Rate) {
		return fmt.Sprintf("ran another test than it should have: %.10s %.200s on %d connections, %g a second", read.Method, read.Path, read.ConnectionsWanted, read.Rate)
	}
	return ""
}

func (requests) Load(run Run) string {
	if run.Rate > 0 {
		return fmt.Sprintf("%d requests a second on %d connections", run.Rate, run.Users)
	}
	return fmt.Sprintf("%d connections", run.Users)
}

func (requests) Asked(run Run) string {
	words := run.Requests.Method + " " + run.Requests.Path
	if run.Requests.Body != "" {
		words += " " + Short(run.Requests.Body, longestAsked)
	}
	return words
}

func (requests) Sound(_ Run, result Result) []string {
	if result.Failed.No > 0 {
		return nil
	}
	return []string{fmt.Sprintf("No request got a good answer: %d were sent, and %s.", result.Counts.Of[report.CountRequests], errorsOf(result.Counts))}
}

func (requests) Broken(run Run, limits v1alpha1.BenchmarkThresholds, result Result) []string {
	var broken []string
	if wrong := result.Counts.Of[report.CountWrongAnswers]; wrong > 0 {
		broken = append(broken, fmt.Sprintf("wrong: %d of %d answers were wrong, none may be", wrong, result.Failed.total()))
	}
	// Requests of a connection that waits in vain each time are few among those that the others make meanwhile. A script of the user's own need not
	// count connections.
	few, connected := usersThatMayFail(run, limits), result.Counts.Of[report.CountConnected]
	if never := askedOf(run) - connected; never > few && connected > 0 {
		broken = append(broken, fmt.Sprintf("maxFailed: %d connections never got a good answer, with %d connections at most %d may", never, run.Users, few))
	}
	if text := tooManyFailed(limits, result, "requests"); text != "" {
		broken = append(broken, text)
	}
	return broken
}

// askedOf is how many connections have a request to send before the run is over: of a low rate not all have a turn.
func askedOf(run Run) int64 {
	if run.Rate == 0 {
		return int64(run.Users)
	}
	return min(int64(run.Users), int64(float64(run.Rate)*run.Duration.Seconds()))
}

func (requests) Judges(metric string) bool {
	return slices.Contains([]string{"requests", "wrong"}, metric)
}

// Made is how much of the rate was answered.
func (requests) Made(run Run, result Result) string {
	if result.Counts.Of[report.CountUnsent] == 0 {
		return ""
	}
	return fmt.Sprintf("Of %d requests a second that were due %s were answered well.", run.Rate, perSecond(result.Failed.No, run.Duration))
}

// Note says what part of its rate the server did not take.
func (s requests) Note(run Run, result Result) string {
	made := s.Made(run, result)
	if made == "" {
		return ""
	}
	return fmt.Sprintf("%d requests were due and not sent when the run ended, because all connections waited for answers. %s", result.Counts.Of[report.CountUnsent], made)
}

func (requests) Figures(read RunnerReport) map[string]int64 {
	return withOutcome(read.requestFigures.counts(), read.Failed)
}

func (requests) Headline(run Run, result Result, timed bool, row *v1alpha1.BenchmarkRunStatus) {
	row.PerSecond = perSecond(result.Failed.No, run.Duration)
	row.AnswerP95 = answerP95(result, report.DurationRequest, timed)
}
