package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LiveStashBenchmarkStatus is how far the benchmark is and what came out.
type LiveStashBenchmarkStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase is what the benchmark is doing. Pending: it was just made. Waiting: for another benchmark on the same target.
	// Running, Suspended. Finished: all runs are over, and the verdict is final.
	// +optional
	Phase BenchmarkPhase `json:"phase,omitempty"`

	// progress is the number of runs that are over, of all: 12/35.
	// +optional
	Progress string `json:"progress,omitempty"`

	// timeLeft is about how long the benchmark still takes. Unset when it has finished.
	// +kubebuilder:validation:Type=string
	// +optional
	TimeLeft *metav1.Duration `json:"timeLeft,omitempty"`

	// verdict is the worst of the runs that are over, warm-ups apart, of the comparison, and of thresholds.against. Passed: every threshold held.
	// Failed: one did not. Errored: a run did not measure what it should have. With matrix.seek it is what became of the knees: Failed is a
	// variant whose first step does not hold.
	// +optional
	Verdict BenchmarkVerdict `json:"verdict,omitempty"`

	// startedAt is when the first run began. From then on the spec is fixed.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// finishedAt is when the last run was over.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`

	// runs are the cells of the matrix, in the order in which they are run.
	// +listType=map
	// +listMapKey=name
	// +optional
	Runs []BenchmarkRunStatus `json:"runs,omitempty"`

	// comparison is what came out of spec.compareWith. Set when all runs are over.
	// +optional
	Comparison *BenchmarkComparisonStatus `json:"comparison,omitempty"`

	// against is what came out of thresholds.against. Set when all runs are over.
	// +optional
	Against *BenchmarkAgainstStatus `json:"against,omitempty"`

	// knees are what matrix.seek has found, in the order of the variants. Set when all runs are over.
	// +listType=map
	// +listMapKey=variant
	// +optional
	Knees []BenchmarkKneeStatus `json:"knees,omitempty"`

	// report is where the report is. Set as soon as there is one; it grows with every run.
	// +optional
	Report *BenchmarkReportReference `json:"report,omitempty"`

	// conditions: Complete, TargetReady, ReportReady, ReconcileSucceeded; Passed and Failed, once it has finished.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BenchmarkPhase is what a benchmark is doing.
//
// +kubebuilder:validation:Enum=Pending;Waiting;Running;Suspended;Finished
type BenchmarkPhase string

// The phases of a benchmark.
const (
	// BenchmarkPending: it was just made.
	BenchmarkPending BenchmarkPhase = "Pending"
	// BenchmarkWaiting: for another benchmark on the same target.
	BenchmarkWaiting BenchmarkPhase = "Waiting"
	// BenchmarkRunning: runs are under way.
	BenchmarkRunning BenchmarkPhase = "Running"
	// BenchmarkSuspended: spec.suspend stopped it.
	BenchmarkSuspended BenchmarkPhase = "Suspended"
	// BenchmarkFinished: all runs are over.
	BenchmarkFinished BenchmarkPhase = "Finished"
)

// BenchmarkVerdict is what came out of a run, or of all.
//
// +kubebuilder:validation:Enum=Passed;Failed;Errored
type BenchmarkVerdict string

// The verdicts, from the best to the worst.
const (
	// VerdictPassed: every threshold held.
	VerdictPassed BenchmarkVerdict = "Passed"
	// VerdictFailed: a threshold did not hold.
	VerdictFailed BenchmarkVerdict = "Failed"
	// VerdictErrored: the run did not measure what it should have.
	VerdictErrored BenchmarkVerdict = "Errored"
)

// BenchmarkRunStatus is one cell of the matrix.
type BenchmarkRunStatus struct {
	// name of the run: <benchmark>-<number>-<variant>, of a warm-up <benchmark>-w<number>-<variant>, with the beginning of the variant's name.
	// With target.template also that of its fleet.
	// +required
	Name string `json:"name"`

	// warmup says that the run does not count, see spec.matrix.warmup.
	// +optional
	Warmup bool `json:"warmup,omitempty"`

	// variant is the name of what is compared: one of spec.matrix.variants, or the adapter.
	// +optional
	Variant string `json:"variant,omitempty"`

	// adapter of the run.
	// +required
	Adapter Adapter `json:"adapter"`

	// users of the run, over all runners; with scenario Requests its connections.
	// +required
	Users int32 `json:"users"`

	// rate of requests a second that are due, with scenario Requests. Unset when each connection asks as often as it can.
	// +optional
	Rate int32 `json:"rate,omitempty"`

	// ttl of the stashes. 0s with scenarios in which nobody stashes.
	// +kubebuilder:validation:Type=string
	// +required
	TTL metav1.Duration `json:"ttl"`

	// phase is how far the run is. Pending: its turn has not come. Preparing: its fleet is being made. Running: k6 runs.
	// Cooling: its objects are being removed, or the pause after it is not over. Finished.
	// +optional
	Phase BenchmarkRunPhase `json:"phase,omitempty"`

	// attempt counts how often the run was started: more than once after spec.suspend.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// runner is the name of the TestRun, or Job, of the last attempt.
	// +optional
	Runner string `json:"runner,omitempty"`

	// verdict of the run. Passed: every threshold held. Failed: one did not. Errored: it did not measure what it should have. Unset until
	// it is over.
	// +optional
	Verdict BenchmarkVerdict `json:"verdict,omitempty"`

	// message says why the run is not Passed: which thresholds did not hold, with their numbers, or what went wrong.
	// +optional
	Message string `json:"message,omitempty"`

	// recovered is the share of returns within the TTL that brought the state back, for example "0.9987".
	// +optional
	Recovered string `json:"recovered,omitempty"`

	// lost is the number of returns within the TTL that did not bring the state back.
	// +optional
	Lost *int64 `json:"lost,omitempty"`

	// events are those of spec.events in this run, as far as they have come.
	// +listType=atomic
	// +optional
	Events []BenchmarkEventStatus `json:"events,omitempty"`

	// reconnectP95 is the time within which 95 % of the returns were rendered.
	// +kubebuilder:validation:Type=string
	// +optional
	ReconnectP95 *metav1.Duration `json:"reconnectP95,omitempty"`

	// perSecond is how many requests a second got a good answer (scenario Requests), or how often something was heard by somebody who was to
	// (Rooms), over all runners, for example "4588.1".
	// +optional
	PerSecond string `json:"perSecond,omitempty"`

	// answerP95 is the time within which 95 % of the requests were answered (scenario Requests), or of the messages had reached their whole
	// room (Rooms). Not set when more than 5 % did not.
	// +kubebuilder:validation:Type=string
	// +optional
	AnswerP95 *metav1.Duration `json:"answerP95,omitempty"`

	// clientDelay is how late k6 itself began 99 % of the steps at most, over the latest of its runners. The times of the run are
	// no better than that.
	// +kubebuilder:validation:Type=string
	// +optional
	ClientDelay *metav1.Duration `json:"clientDelay,omitempty"`

	// startedAt is when the last attempt began: when its fleet was asked for.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// loadStartedAt is when k6 began, as far as the operator saw.
	// +optional
	LoadStartedAt *metav1.Time `json:"loadStartedAt,omitempty"`

	// finishedAt is when the verdict was known.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}

// BenchmarkRunPhase is how far a run is.
//
// +kubebuilder:validation:Enum=Pending;Preparing;Running;Cooling;Finished
type BenchmarkRunPhase string

// The phases of a run.
const (
	// RunPending: its turn has not come.
	RunPending BenchmarkRunPhase = "Pending"
	// RunPreparing: its fleet is being made.
	RunPreparing BenchmarkRunPhase = "Preparing"
	// RunRunning: k6 runs.
	RunRunning BenchmarkRunPhase = "Running"
	// RunCooling: its objects are being removed, or the pause after it is not over.
	RunCooling BenchmarkRunPhase = "Cooling"
	// RunFinished: nothing of it is left but its numbers.
	RunFinished BenchmarkRunPhase = "Finished"
)

// BenchmarkReportReference is where a report is.
type BenchmarkReportReference struct {
	// configMap with the keys report.json, report.md and report.html, in the namespace of the LiveStashBenchmark.
	// +required
	ConfigMap string `json:"configMap"`
}

// BenchmarkComparisonStatus is what came out of a comparison with an earlier report.
type BenchmarkComparisonStatus struct {
	// configMap is where the earlier report was.
	// +required
	ConfigMap string `json:"configMap"`

	// verdict is Passed when every limit of spec.compareWith holds, Failed when one does not, and Errored when the two could not be compared.
	// +required
	Verdict BenchmarkVerdict `json:"verdict"`

	// message says which limits do not hold, with both numbers, or why the two could not be compared.
	// +optional
	Message string `json:"message,omitempty"`
}

// BenchmarkAgainstStatus is what came out of holding the variants against the baseline.
type BenchmarkAgainstStatus struct {
	// baseline is the name of the variant that the others are held against.
	// +required
	Baseline string `json:"baseline"`

	// verdict is Passed when every limit of thresholds.against holds, Failed when one does not, and Errored when variants could not be compared.
	// +required
	Verdict BenchmarkVerdict `json:"verdict"`

	// message says which limits do not hold, with both numbers, or what could not be compared.
	// +optional
	Message string `json:"message,omitempty"`
}

// BenchmarkKneeStatus is how much a variant carries.
type BenchmarkKneeStatus struct {
	// variant is the name of the variant.
	// +required
	Variant string `json:"variant"`

	// size is the last step that held: so many users, connections, or requests a second. 0 when the first did not.
	// +required
	Size int32 `json:"size"`

	// atLeast says that the variant carries this much at least: the client gave out, or there was no larger step.
	// +optional
	AtLeast bool `json:"atLeast,omitempty"`

	// verdict is Passed when a step held, Failed when the first did not, and Errored when the step after it measured nothing.
	// +required
	Verdict BenchmarkVerdict `json:"verdict"`

	// message is the same in words, with what ended it.
	// +optional
	Message string `json:"message,omitempty"`
}

// BenchmarkEventStatus is an event in one run.
type BenchmarkEventStatus struct {
	// kind of the event.
	// +required
	Kind BenchmarkEventKind `json:"kind"`

	// pod that is deleted, with kind DeletePod.
	// +optional
	Pod string `json:"pod,omitempty"`

	// podUID tells it from the one that takes its place.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`

	// startedAt is when it began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// finishedAt is when the fleet was whole again.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
}
