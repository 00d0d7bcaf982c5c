package loadtest

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Scenario is what the users of a run do. All that the operator knows of it is in its type, one file each; in the report it has a
// layout of its own (package report).
type Scenario interface {
	// Script is the scenario's file in the image of k6. Empty for a script of the user's own.
	Script() string

	// Size fills in what a size of the matrix makes of a run: its users or connections, its times, its runners.
	Size(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, run *Run)

	// Options are the environment of the script (loadtests/k6/README.md), without what all scripts are told.
	Options(run Run, limits v1alpha1.BenchmarkThresholds) []corev1.EnvVar

	// Foreign says what a runner's report shows that is not of this run. Empty: nothing.
	Foreign(run Run, read RunnerReport) string

	// Load is the size of a run in words: 1000 users, TTL 1m0s.
	Load(run Run) string

	// Asked is what all runs have in common that other benchmarks of the scenario may have otherwise, in words. Empty: nothing.
	Asked(run Run) string

	// Sound says why the figures of runners that ended well say nothing about the target, each in a sentence. Empty: they do.
	Sound(run Run, result Result) []string

	// Broken are the thresholds that do not hold, but those of times, each with its numbers.
	Broken(run Run, limits v1alpha1.BenchmarkThresholds, result Result) []string

	// Judges is whether a metric's threshold in k6 is judged here, over all runners: what one of them thinks of its part does not count then.
	Judges(metric string) bool

	// Made says what came of a load that is told by its rate, where that was not all of it. Empty: it was, or there is no rate.
	Made(run Run, result Result) string

	// Note is what a run that passed says nothing about. Empty: there is nothing of the kind.
	Note(run Run, result Result) string

	// Figures are the counts of one runner by their names in the report, but those that every scenario has.
	Figures(read RunnerReport) map[string]int64

	// Headline puts the figures that tell most into the run's row. Times that mean nothing are left out.
	Headline(run Run, result Result, timed bool, row *v1alpha1.BenchmarkRunStatus)
}

// quiet is a scenario that says no more of a run than its figures and its thresholds do.
type quiet struct{}

func (quiet) Made(Run, Result) string { return "" }

func (quiet) Note(Run, Result) string { return "" }

// scenarios by their names in the API.
var scenarios = map[v1alpha1.BenchmarkScenario]Scenario{
	v1alpha1.ScenarioVisits:    visits{},
	v1alpha1.ScenarioReconnect: reconnect{},
	v1alpha1.ScenarioScript:    script{},
	v1alpha1.ScenarioRequests:  requests{},
	v1alpha1.ScenarioRooms:     rooms{},
}

// ScenarioOf is the scenario of that name, which the API server has checked.
func ScenarioOf(name v1alpha1.BenchmarkScenario) Scenario { return scenarios[name] }

// scripts is the folder of the scenarios in the image of k6.
const scripts = "/loadtests/k6/scenarios/"

// named says which scenario a report is of, if not of that one.
func named(read RunnerReport, name string) string {
	if read.Scenario == name {
		return ""
	}
	return "ran the scenario " + read.Scenario + " instead of " + name
}
