package loadtest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// ExitThresholdsFailed is k6's exit code for a run that was made and did not hold its thresholds.
const ExitThresholdsFailed = 99

// k6's other exit codes, as far as they are told apart.
const (
	exitPassed        = 0
	exitInterrupted   = 105
	reasonOutOfMemory = "OOMKilled"
	exhausted         = "exhausted"
	thresholdP99      = "p99"
	maxMessage        = 1024
	// defaultClientDelay is how late k6 itself may begin 99 % of the steps.
	defaultClientDelay = 100 * time.Millisecond
	// leastTogether is the share of a run in which all runners must be at work.
	leastTogether = 0.75
	maxQuotedLine = 300
	// defaultMaxFailed is the share of steps that may fail.
	defaultMaxFailed      = 0.01
	millisecondsPerSecond = 1000.0
)

// RunnerEnd is how one k6 runner ended.
type RunnerEnd struct {
	// Ended is false when the runner, or its pod, was gone before anybody saw how it ended.
	Ended bool
	// Stopped is whether it worked on, and was stopped because another one had failed.
	Stopped bool
	// ExitCode is k6's, Reason what the kubelet calls it, Message the termination message: the report, or what else the
	// runner said last.
	ExitCode int32
	Reason   string
	Message  string
}

// Fleet is what was seen of the fleet while k6 ran.
type Fleet struct {
	// Restarted are its pods that restarted, each in words.
	Restarted []string
	// Collections are how often garbage was collected in all of it. Nil: not all of its agents told that, or not for the whole run.
	Collections *float64
	// Note says what was not seen.
	Note string
}

// Judgement is what came out of a run.
type Judgement struct {
	Verdict v1alpha1.BenchmarkVerdict
	// Message says why the verdict is not Passed, in one sentence or several.
	Message string
	// Result are the figures of the runners that left a report. Nil when none did.
	Result *Result
	// Partial is whether Result lacks runners.
	Partial bool
	// ClientBound is whether the client was the bottleneck: times say nothing about the fleet, counts do.
	ClientBound bool
	// Note is what is worth knowing of a run that passed: what could not be judged.
	Note string
}

// Errored is the judgement on a run that did not get as far as its runners' reports.
func Errored(sentence string) Judgement {
	return Judgement{Verdict: v1alpha1.VerdictErrored, Message: Short(sentence, maxMessage)}
}

// Judge decides on a run whose runners are over, in the order of their numbers. Nothing but the runners' own words count: a
// TestRun that has `finished`, or a Job that is complete, may have measured nothing.
func Judge(run Run, testID string, limits v1alpha1.BenchmarkThresholds, ends []RunnerEnd, fleet Fleet) Judgement {
	var reports []RunnerReport
	var problems []string
	limits = run.Limits(limits)
	for number := len(ends); number < int(run.Runners); number++ {
		problems = append(problems, fmt.Sprintf("%s never existed.", runnerName(number, run)))
	}
	for number, end := range ends[:min(len(ends), int(run.Runners))] {
		read, problem := readEnd(run, testID, number, end)
		if problem != "" {
			problems = append(problems, runnerName(number, run)+" "+strings.TrimSuffix(problem, ".")+".")
		}
		if read != nil {
			reports = append(reports, *read)
		}
	}
	if len(reports) == 0 {
		return Errored(strings.Join(problems, " "))
	}
	scenario := ScenarioOf(run.Scenario)
	result := Merge(scenario, reports)
	partial := len(problems) > 0
	if !partial {
		problems = unsound(run, result)
	}
	if len(problems) > 0 {
		judged := Errored(strings.Join(problems, " "))
		judged.Result, judged.Partial = &result, partial
		return judged
	}
	crashed := tooManyRestarts(limits, fleet)
	if missing := unmeasured(scenario, run, limits, result); len(missing) > 0 {
		return blame(crashed, missing, limits, result)
	}
	broken := append(brokenCounts(scenario, run, limits, reports, result), crashed...)
	if late := clientBound(limits, result); late != "" {
		if made := scenario.Made(run, result); made != "" {
			late += " " + made
		}
		if len(broken) > 0 {
			late += " The counts still stand: " + strings.Join(broken, "; ") + "."
		}
		judged := Errored(late)
		judged.Result, judged.ClientBound = &result, true
		return judged
	}
	if slow := sought(run, result); slow != "" {
		broken = append(broken, slow)
	}
	if broken = append(broken, brokenTimes(limits, result)...); len(broken) > 0 {
		return Judgement{Verdict: v1alpha1.VerdictFailed, Message: Short(strings.Join(broken, "; "), maxMessage), Result: &result}
	}
	// Last: what is broken says more, and a fleet that gives out collects less.
	if few := tooFewCollections(run, limits, fleet); few != "" {
		judged := Errored(few)
		judged.Result = &result
		return judged
	}
	return Judgement{Verdict: v1alpha1.VerdictPassed, Result: &result, Note: notJudged(scenario, run, limits, result)}
}

// Began is when the first of the runners began, as they say themselves. Zero: none says it.
func Began(ends []RunnerEnd) time.Time {
	var first time.Time
	for _, end := range ends {
		read, err := ParseRunnerReport(end.Message)
		if err == nil && !read.StartedAt.IsZero() && (first.IsZero() || read.StartedAt.Before(first)) {
			first = read.StartedAt
		}
	}
	return first
}

// usersThatMayFail is how many users of a run may never have come in.
func usersThatMayFail(run Run, limits v1alpha1.BenchmarkThresholds) int64 {
	return int64(math.Floor(float64(run.Users) * number(limits.MaxFailed, defaultMaxFailed)))
}

// clientBound says that k6 itself was too late for its times to mean anything. Empty when it was not.
func clientBound(limits v1alpha1.BenchmarkThresholds, result Result) string {
	most := defaultClientDelay
	if limits.MaxClientDelay != nil {
		most = limits.MaxClientDelay.Duration
	}
	if result.ClientDelay == nil {
		return "A runner did not say how late it was itself (client_delay), so it is taken that the client was the bottleneck: use the library of loadtests/k6."
	}
	delay := time.Duration(*result.ClientDelay * float64(time.Millisecond))
	if delay <= most {
		return ""
	}
	return fmt.Sprintf("The client was the bottleneck: k6 itself began 1 %% of the steps more than %s late, and thresholds.maxClientDelay is %s. "+
		"Its times say nothing about the fleet: give the runners more CPU, raise spec.parallelism, or take fewer users.", delay.Round(100*time.Microsecond), most)
}

// notJudged is what a run that passed says nothing about. Empty when there is nothing of the kind.
func notJudged(scenario Scenario, run Run, limits v1alpha1.BenchmarkThresholds, result Result) string {
	var notes []string
	if note := scenario.Note(run, result); note != "" {
		notes = append(notes, note)
	}
	for _, limit := range P99Limits(limits) {
		if measured := result.Durations[limit.name]; measured.P99 > limit.milliseconds {
			notes = append(notes, fmt.Sprintf("%s.%s is %.1f ms of %d, over the limit of %.1f ms, but that few may be slow by chance: only %.1f ms are certain.",
				thresholdP99, limit.Field, measured.P99, measured.Count, limit.milliseconds, measured.P99AtLeast))
		}
	}
	return strings.Join(notes, " ")
}

// Worst is the worst of verdicts; empty when there are none.
func Worst(verdicts ...v1alpha1.BenchmarkVerdict) v1alpha1.BenchmarkVerdict {
	order := []v1alpha1.BenchmarkVerdict{"", v1alpha1.VerdictPassed, v1alpha1.VerdictFailed, v1alpha1.VerdictErrored}
	worst := 0
	for _, verdict := range verdicts {
		worst = max(worst, slices.Index(order, verdict))
	}
	return order[worst]
}

// readEnd is what one runner reports, and what is wrong with how it ended: one sentence, without its subject. The report is
// there with a problem too when it holds figures that are worth keeping.
func readEnd(run Run, testID string, number int, end RunnerEnd) (*RunnerReport, string) {
	if end.Stopped {
		return nil, "was stopped, because the run could not be complete any more"
	}
	if !end.Ended {
		return nil, "was lost before it reported" + because(end)
	}
	if end.Reason == reasonOutOfMemory {
		return nil, "was killed because it took more memory than it may: raise spec.runnerTemplate.resources.limits.memory, or spec.parallelism"
	}
	read, err := ParseRunnerReport(end.Message)
	switch {
	case err != nil && end.ExitCode == exitPassed:
		return nil, fmt.Sprintf("ended with exit code 0, but %v: a script must write one to /dev/termination-log, see loadtests/k6/README.md", err)
	case err != nil:
		return nil, fmt.Sprintf("ended with exit code %d, and %v%s", end.ExitCode, err, because(end))
	case read.Problem != nil:
		return nil, "ran nothing: " + strings.TrimSuffix(*read.Problem, ".") + "." + doubtProtocol(run)
	}
	if problem := foreign(read, run, testID, number); problem != "" {
		return nil, problem
	}
	switch {
	case end.ExitCode == exitInterrupted || !read.Completed || read.RanSeconds < run.Duration.Seconds():
		return &read, fmt.Sprintf("was stopped after %s of %s", time.Duration(read.RanSeconds*float64(time.Second)).Round(time.Second), run.Duration)
	case end.ExitCode != exitPassed && end.ExitCode != ExitThresholdsFailed:
		return &read, fmt.Sprintf("ended with exit code %d%s", end.ExitCode, because(RunnerEnd{Reason: end.Reason}))
	}
	return &read, ""
}

// foreign says whose report it is, if not that of this runner of this test.
func foreign(read RunnerReport, run Run, testID string, number int) string {
	if read.TestID != testID {
		return fmt.Sprintf("left the report of another test, %q instead of %q", read.TestID, testID)
	}
	if read.Runner != number || read.Runners != int(run.Runners) {
		return fmt.Sprintf("ran another test than it should have: runner %d of %d", read.Runner+1, read.Runners)
	}
	if why := ScenarioOf(run.Scenario).Foreign(run, read); why != "" {
		return why
	}
	if read.DurationSeconds != run.Duration.Seconds() {
		return fmt.Sprintf("ran another test than it should have: for %gs instead of %s", read.DurationSeconds, run.Duration)
	}
	return ""
}

// unsound says why figures of runners that all ended well say nothing about the fleet: its users were not those of the run.
func unsound(run Run, result Result) []string {
	counts := result.Counts
	if planned, wanted := counts.Of[report.CountPlanned], int64(run.Users); planned != wanted {
		return []string{fmt.Sprintf("The runners had %d users instead of %d.", planned, wanted)}
	}
	if together := result.Together; together.Seconds() < leastTogether*run.Duration.Seconds() {
		return []string{fmt.Sprintf("The runners were at work together for %s of %s only, so the fleet never had the users of this run: "+
			"see that they start at the same time, and that the clocks of their nodes agree.", together.Round(100*time.Millisecond), run.Duration)}
	}
	if found := counts.Errors[exhausted]; found > 0 {
		return []string{fmt.Sprintf("The runners ran out of ports or file descriptors %d times, so they measured themselves: raise spec.parallelism above %d.", found, run.Runners)}
	}
	return nil
}

// unmeasured says what the users of a run should have met, and did not, so that it cannot be judged.
func unmeasured(scenario Scenario, run Run, limits v1alpha1.BenchmarkThresholds, result Result) []string {
	problems := scenario.Sound(run, result)
	for _, limit := range P99Limits(limits) {
		if result.Durations[limit.name].Count == 0 {
			problems = append(problems, fmt.Sprintf("thresholds.p99.%s cannot be judged: it was never measured.", limit.Field))
		}
	}
	return problems
}

// tooManyRestarts says, in one sentence at most, that thresholds.maxRestarts does not hold.
func tooManyRestarts(limits v1alpha1.BenchmarkThresholds, fleet Fleet) []string {
	most := ptr.Deref(limits.MaxRestarts, 0)
	if len(fleet.Restarted) <= int(most) {
		return nil
	}
	return []string{fmt.Sprintf("maxRestarts: %d of the fleet's pods restarted during the run (%s), at most %d may", len(fleet.Restarted), strings.Join(fleet.Restarted, ", "), most)}
}

// blame judges a run that did not measure what it should have. If pods of the fleet crashed, that is why, and another run would say no more.
func blame(crashed, missing []string, limits v1alpha1.BenchmarkThresholds, result Result) Judgement {
	judged := Errored(strings.Join(missing, " "))
	if len(crashed) > 0 && clientBound(limits, result) == "" {
		judged = Judgement{Verdict: v1alpha1.VerdictFailed, Message: Short(crashed[0]+". "+strings.Join(missing, " "), maxMessage)}
	}
	judged.Result = &result
	return judged
}

// tooFewCollections says that the run says nothing about settings of the garbage collector. Empty: it does. A server has no collector that could be
// asked.
func tooFewCollections(run Run, limits v1alpha1.BenchmarkThresholds, fleet Fleet) string {
	least := ptr.Deref(limits.MinCollections, 0)
	if least == 0 || run.Server != nil {
		return ""
	}
	if fleet.Collections == nil {
		return strings.TrimSpace("thresholds.minCollections cannot be judged: the agents did not tell, from the beginning of the run to its end, how often garbage was collected. " + fleet.Note)
	}
	each := *fleet.Collections / float64(max(1, run.Users))
	if each >= float64(least) {
		return ""
	}
	// Rounded down: what is not enough must not look like enough.
	return strings.TrimSpace(fmt.Sprintf("thresholds.minCollections: garbage was collected %.1f times for each user, at least %d are needed: let the run last longer "+
		"(matrix.runs.duration), or let users do more in the same time, with scenario Rooms by rooms.every. %s", math.Floor(10*each)/10, least, fleet.Note))
}

// brokenCounts are the thresholds that do not hold, each with its numbers, but those of times.
func brokenCounts(scenario Scenario, run Run, limits v1alpha1.BenchmarkThresholds, runners []RunnerReport, result Result) []string {
	broken := scenario.Broken(run, limits, result)
	// A script of the user's own may have thresholds of its own.
	for place, one := range runners {
		for _, threshold := range one.FailedThresholds {
			metric, _, _ := strings.Cut(threshold, " ")
			if !scenario.Judges(metric) && !slices.Contains(judgedAlways, metric) {
				broken = append(broken, fmt.Sprintf("%s of runner %d", threshold, place+1))
			}
		}
	}
	return broken
}

// judgedAlways are the metrics that are judged over all runners in every scenario.
var judgedAlways = []string{"failed", "client_delay", "error{reason:" + exhausted + "}"}

// tooManyFailed says that thresholds.maxFailed does not hold for the steps of a scenario. Empty: it does.
func tooManyFailed(limits v1alpha1.BenchmarkThresholds, result Result, steps string) string {
	most := number(limits.MaxFailed, defaultMaxFailed)
	if result.Failed.of() <= most {
		return ""
	}
	return fmt.Sprintf("maxFailed: %s of %d %s failed (%s), at most %s may", percent(result.Failed.of()), result.Failed.total(), steps, errorsOf(result.Counts), percent(most))
}

// brokenTimes are the limits of times that do not hold, for certain.
func brokenTimes(limits v1alpha1.BenchmarkThresholds, result Result) []string {
	var broken []string
	for _, limit := range P99Limits(limits) {
		if measured := result.Durations[limit.name]; measured.P99AtLeast > limit.milliseconds {
			broken = append(broken, fmt.Sprintf("%s.%s: at least %.1f ms (measured: %.1f ms of %d), at most %.1f ms is allowed",
				thresholdP99, limit.Field, measured.P99AtLeast, measured.P99, measured.Count, limit.milliseconds))
			continue
		}
		// What came to no good end has no time, and is slower than any: so many cannot be chance.
		if good, all := result.Counts.Timed(limit.name); good < certainRank(all, 0.99) {
			broken = append(broken, fmt.Sprintf("%s.%s: more than 1 %% came to no good end, at most %.1f ms is allowed", thresholdP99, limit.Field, limit.milliseconds))
		}
	}
	return broken
}

// P99Limit is one of spec.thresholds.p99.
type P99Limit struct {
	// Field is its name in the spec.
	Field string
	Limit time.Duration
	// name is that of what k6 measures.
	name         string
	milliseconds float64
}

// P99Limits are those that are set.
func P99Limits(limits v1alpha1.BenchmarkThresholds) []P99Limit {
	if limits.P99 == nil {
		return nil
	}
	var set []P99Limit
	add := func(field, name string, limit *metav1.Duration) {
		if limit != nil {
			set = append(set, P99Limit{field, limit.Duration, name, limit.Seconds() * millisecondsPerSecond})
		}
	}
	add("firstRender", "first_render", limits.P99.FirstRender)
	add("join", "join", limits.P99.Join)
	add("stash", "stash", limits.P99.Stash)
	add("reconnect", "reconnect", limits.P99.Reconnect)
	add("rejoin", "rejoin", limits.P99.Rejoin)
	add("lateRejoin", "late_rejoin", limits.P99.LateRejoin)
	add("reconnectDuring", "reconnect_during", limits.P99.ReconnectDuring)
	add("reconnectOutside", "reconnect_outside", limits.P99.ReconnectOutside)
	add("request", "request", limits.P99.Request)
	add("delivery", "delivery", limits.P99.Delivery)
	return set
}

// runnerName is a runner as people count.
func runnerName(number int, run Run) string {
	return fmt.Sprintf("Runner %d of %d", number+1, run.Runners)
}

// because is what the kubelet and the runner itself have said, if anything.
func because(end RunnerEnd) string {
	lines := strings.Split(strings.TrimSpace(end.Message), "\n")
	why := cmp.Or(strings.TrimSpace(lines[len(lines)-1]), end.Reason)
	if why == "" || why == "Error" {
		return ""
	}
	return ": " + Short(why, maxQuotedLine)
}

// errorsOf are errors with their commonest reasons first.
func errorsOf(counts report.Counts) string {
	total, reasons := counts.Of[report.CountError], counts.Errors
	if total == 0 {
		return "no error was seen"
	}
	names := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	parts := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), 3)] {
		parts = append(parts, fmt.Sprintf("%s %d", name, reasons[name]))
	}
	return fmt.Sprintf("%d errors: %s", total, strings.Join(parts, ", "))
}

// percent does not round a share up to a whole that it is not.
func percent(share float64) string {
	return strconv.FormatFloat(math.Floor(share*10000+1e-9)/100, 'f', -1, 64) + " %"
}

// number is a share of the spec, which the API server has checked.
func number(text string, fallback float64) float64 {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fallback
	}
	return share
}

// Short is a text, or the beginning of one that has more characters.
func Short(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}

// Milliseconds is a time of so many ms, as exact as people read it.
func Milliseconds(ms float64) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(ms * float64(time.Millisecond)).Round(100 * time.Microsecond)}
}
