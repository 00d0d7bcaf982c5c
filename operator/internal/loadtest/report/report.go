// Package report is what a LiveStashBenchmark leaves behind: its figures as JSON, and the same as Markdown and as a page.
//
// Rendering is pure: the same Report gives the same bytes.
package report

import "time"

// SchemaVersion is the version of the report's JSON. It rises when a field changes its meaning or goes; a new field does
// not raise it. docs/reference/benchmark-report.md describes every field.
const SchemaVersion = 2

// Verdict is how a run, or all of a benchmark, ended. It is empty for what has not ended.
type Verdict string

// The verdicts, from the best to the worst. Those of a benchmark are the worst of its runs.
const (
	// VerdictPassed says that every threshold holds.
	VerdictPassed Verdict = "Passed"
	// VerdictFailed says that the run is sound and that a threshold does not hold. Its figures count.
	VerdictFailed Verdict = "Failed"
	// VerdictErrored says that there was no sound run. Its figures, if there are any, say nothing about the adapter.
	VerdictErrored Verdict = "Errored"
)

// Report is a benchmark and its results.
type Report struct {
	// SchemaVersion is the SchemaVersion it was written with.
	SchemaVersion int `json:"schemaVersion"`
	// Name and Namespace are those of the LiveStashBenchmark.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Spec is what was asked for, as far as it is the same for all runs.
	Spec Spec `json:"spec"`
	// StartedAt and FinishedAt are in UTC. FinishedAt is left out while runs are to come.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Verdict is the worst of the runs' verdicts, of that of the comparison, and of that against the baseline. Where knees are sought it is
	// the worst of theirs.
	Verdict Verdict `json:"verdict,omitempty"`
	// Message is a sentence about the benchmark as a whole, when there is one: why it did not start, what was left out.
	Message string `json:"message,omitempty"`
	// Comparison with an earlier report, when one was asked for and all runs are over.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Against is what came of holding the variants against the baseline, when that was asked for and all runs are over.
	Against *Comparison `json:"against,omitempty"`
	// Knees are how much each variant carries, when that was sought and all runs are over.
	Knees []Knee `json:"knees,omitempty"`
	// Machine is where it ran.
	Machine Machine `json:"machine"`
	// Versions of what ran.
	Versions Versions `json:"versions"`
	// Runs in the order in which they were made.
	Runs []Run `json:"runs"`
}

// Spec is what all runs of a benchmark have in common.
type Spec struct {
	// Preset is the name of the published matrix, empty for a matrix of one's own.
	Preset string `json:"preset,omitempty"`
	// Scale is what users and times of the matrix were divided by; 1 changes nothing.
	Scale int `json:"scale,omitempty"`
	// Scenario is what a user does: Reconnect, Visits, Requests, Rooms, or Script for a script of one's own.
	Scenario string `json:"scenario,omitempty"`
	// Asked is what is asked for with scenario Requests, or what the users talk in with Rooms, in words.
	Asked string `json:"asked,omitempty"`
	// MessageBytes is the length of a message with Rooms, 0 with other scenarios.
	MessageBytes int `json:"messageBytes,omitempty"`
	// Baseline is the name of the variant that the others are compared with; empty when there is none.
	Baseline string `json:"baseline,omitempty"`
	// Variants are what is compared, where that is more than adapters.
	Variants []Variant `json:"variants,omitempty"`
	// Target says what was tested: "template" for a fresh fleet in each run, "cluster NAME" or a URL.
	Target string `json:"target,omitempty"`
	// Routing is RoundRobin (over the pods), Service or Proxy; empty when the target is a URL.
	Routing string `json:"routing,omitempty"`
	// Runner is what started k6: K6Operator or Job.
	Runner string `json:"runner,omitempty"`
	// PayloadKeys is the number of keys in each user's stash, 0 when unknown. 150 keys are 5,556 bytes as a term.
	PayloadKeys int `json:"payloadKeys,omitempty"`
	// PayloadOnPage is Shown when the page shows what it stashes, as that of the published test does, else Hidden; empty when unknown.
	PayloadOnPage string `json:"payloadOnPage,omitempty"`
	// Thresholds are what the runs were judged by, in the words of the specification: {"minRecovered": "0.99"}.
	Thresholds map[string]string `json:"thresholds,omitempty"`
}

// Variant is one of those that are compared.
type Variant struct {
	// Name of the variant, which its runs have.
	Name string `json:"name"`
	// Adapter of its fleet.
	Adapter string `json:"adapter"`
	// Patch is what its fleet has otherwise than the template, as JSON; of a long one its beginning.
	Patch string `json:"patch,omitempty"`
	// Server is what is measured in place of a fleet; left out for a fleet.
	Server *Server `json:"server,omitempty"`
}

// Server is a server that is no fleet.
type Server struct {
	// Image of the server.
	Image string `json:"image"`
	// Protocol that its rooms speak, with scenario Rooms: Phoenix, WebSocket or ActionCable.
	Protocol string `json:"protocol,omitempty"`
	// Replicas is the number of its pods.
	Replicas int `json:"replicas"`
	// Redis is whether there is one in its pod.
	Redis bool `json:"redis,omitempty"`
}

// Machine is where a benchmark ran. Figures of different machines cannot be compared.
type Machine struct {
	// Nodes of the Kubernetes cluster.
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is one node of the Kubernetes cluster.
type Node struct {
	// Name of the Node object.
	Name string `json:"name"`
	// CPU in cores and Memory in bytes: the node's capacity.
	CPU    float64 `json:"cpu"`
	Memory int64   `json:"memory"`
	// Kubelet is the version of the node's kubelet; empty where unknown. The kernel's is not told: the namespace's users may read the report,
	// and not the node.
	Kubelet string `json:"kubelet,omitempty"`
}

// Versions of what ran; empty where unknown.
type Versions struct {
	// Operator is the operator's version.
	Operator string `json:"operator,omitempty"`
	// K6Image and FleetImage are the images of the load test and of the tested application.
	K6Image    string `json:"k6Image,omitempty"`
	FleetImage string `json:"fleetImage,omitempty"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Run is one cell of the matrix: one variant under one load.
type Run struct {
	// Name of the run; unique in the benchmark.
	Name string `json:"name"`
	// Variant is the name of what is compared: one of the matrix's variants, or the adapter.
	Variant string `json:"variant,omitempty"`
	// Adapter of its fleet is None, ETS, BrowserMemory, Redis or Mnesia.
	Adapter string `json:"adapter"`
	// Round is the how manieth run with this variant and this load it is, from 1.
	Round int `json:"round,omitempty"`
	// Users of the whole run, as it was made (after division by the scale); with scenario Requests its connections.
	Users int `json:"users"`
	// Rate is so many requests a second that were due, 0 for as many as the connections made. Only with scenario Requests.
	Rate int `json:"rate,omitempty"`
	// TTLSeconds is the stashes' time to live, DurationSeconds the length of the run with its ramp, and RampSeconds the time
	// over which the users arrive.
	TTLSeconds      float64 `json:"ttlSeconds"`
	DurationSeconds float64 `json:"durationSeconds"`
	RampSeconds     float64 `json:"rampSeconds"`
	// Replicas is the number of the fleet's pods, 0 when unknown.
	Replicas int `json:"replicas,omitempty"`
	// CPULimit is how many cores the applications in all of its pods may use together, 0 when that has no limit, or what is beside them has none.
	CPULimit float64 `json:"cpuLimit,omitempty"`
	// CPUAfterRamp is how many cores all containers of its pods used on average from when all users were to be there. Left out when that was not
	// sampled as a whole.
	CPUAfterRamp *float64 `json:"cpuAfterRamp,omitempty"`
	// Runners is the number of k6 processes that shared the users.
	Runners int `json:"runners,omitempty"`
	// Verdict of this run.
	Verdict Verdict `json:"verdict,omitempty"`
	// Message says which threshold does not hold or why there was no sound run; with Passed, what is worth knowing (lost
	// samples).
	Message string `json:"message,omitempty"`
	// StartedAt and FinishedAt are in UTC.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// ClientDelay is how late k6 itself began 99 % of the steps at most, in ms: that of the latest of the runners. Left out when
	// it was not measured.
	ClientDelay *float64 `json:"clientDelay,omitempty"`
	// ClientBound says that this was too late: the client was the bottleneck. Durations say nothing about the fleet then, and
	// counts and samples still stand.
	ClientBound bool `json:"clientBound,omitempty"`
	// Events that were done to the fleet, in their order.
	Events []Event `json:"events,omitempty"`
	// Counts of all runners together; left out when no runner reported.
	Counts *Counts `json:"counts,omitempty"`
	// Durations of all runners together, by the names that k6 knows them by: first_render, join, stash, reconnect, rejoin,
	// late_rejoin, any_rejoin (rejoin and late_rejoin together), with events reconnect_during and reconnect_outside, and
	// first_render_service, stash_service and reconnect_service where they differ (loadtests/k6/README.md).
	Durations map[string]Duration `json:"durations,omitempty"`
	// SampledSeconds is for how many seconds all of the fleet's agents answered, where that is not the run from its beginning to its end: Samples
	// then hold peaks and totals of a part, which are neither shown nor compared. Left out for a run that was sampled as a whole.
	SampledSeconds *float64 `json:"sampledSeconds,omitempty"`
	// Samples of the fleet's agents by name: see the constants Series...; summed over the pods.
	Samples map[string]Series `json:"samples,omitempty"`

	// ByPods is whether its memory and CPU time are told by what the nodes count for its pods.
	ByPods bool `json:"-"`
}

// Event is what was done to the fleet in the middle of a run.
type Event struct {
	// Kind is Rollout, DeletePod or Scale.
	Kind string `json:"kind"`
	// AtSeconds is when it began, after StartedAt of the run, and TookSeconds how long it took until the fleet was whole again.
	AtSeconds   float64 `json:"atSeconds"`
	TookSeconds float64 `json:"tookSeconds"`
}

// Duration is the distribution of one kind of duration, in milliseconds.
type Duration struct {
	// Count is the number of durations. With 0 all others are 0.
	Count int64 `json:"count"`
	// Min and Max are exact.
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	// P50, P95 and P99 are quantiles of the merged histograms of all runners.
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	// P99AtLeast is what the p99 of such a fleet is at least, for certain (19 times out of 20): a few slow ones among few durations
	// may be chance.
	P99AtLeast float64 `json:"p99AtLeast"`
	// ErrorBound is by which share a quantile can be off: 0.011 is 1.1 % up or down.
	ErrorBound float64 `json:"errorBound"`
	// RankBound is by how much its rank can be off, to the slower side: 0.001 makes a p95 at most a p95.1.
	RankBound float64 `json:"rankBound"`
}

// The durations of what comes to a good end or does not: from when a request was due to its good answer, and from when a message was said until
// the last member of its room had it.
const (
	DurationRequest  = "request"
	DurationDelivery = "delivery"
)

// Series is one value over the time of a run.
type Series struct {
	// Unit is "1" (a count), "1/s", "bytes", "bytes/s" or "cores".
	Unit string `json:"unit"`
	// Points are [seconds since StartedAt of the run, value], at most MaxPoints, in order of time. What is counted (network,
	// CPU) is a rate: its growth since the point before, divided by the time between them.
	Points [][2]float64 `json:"points"`
	// Peak is the largest value seen before Points were thinned.
	Peak float64 `json:"peak"`
	// PeakMinute is the largest mean over a minute (60 to 70 s) of what is counted, as the published test has its rates; left out for
	// other series, and for runs that are shorter.
	PeakMinute *float64 `json:"peakMinute,omitempty"`
	// Total is the growth over the whole run of what is counted, in bytes, CPU seconds or times; left out for other series.
	Total *float64 `json:"total,omitempty"`
}

// MaxPoints is how many points of a series a report keeps for one run.
const MaxPoints = 60

// The names of the samples, and their units.
const (
	// SeriesProcesses counts the BEAM's processes ("1").
	SeriesProcesses = "processes"
	// SeriesMemory is the BEAM's memory as a whole, the others are parts of it ("bytes").
	SeriesMemory          = "memory"
	SeriesMemoryProcesses = "memoryProcesses"
	SeriesMemoryBinary    = "memoryBinary"
	SeriesMemoryETS       = "memoryEts"
	// SeriesStashes counts the stashes in the fleet's own tables ("1"), SeriesStashBytes is their memory ("bytes").
	SeriesStashes    = "stashes"
	SeriesStashBytes = "stashBytes"
	// Bytes moved to and from clients, other nodes of the fleet, and Redis ("bytes/s").
	SeriesHTTPIn          = "httpIn"
	SeriesHTTPOut         = "httpOut"
	SeriesDistributionIn  = "distributionIn"
	SeriesDistributionOut = "distributionOut"
	SeriesRedisIn         = "redisIn"
	SeriesRedisOut        = "redisOut"
	// SeriesCPU is the CPU time used per second ("cores").
	SeriesCPU = "cpu"
	// SeriesCollections is how often garbage was collected, over all processes ("1/s").
	SeriesCollections = "collections"
	// SeriesPodMemory ("bytes") and SeriesPodCPU ("cores") are what the kernel counts for all containers of the pods, which is what the
	// nodes pay. There are none where the agents see no control group.
	SeriesPodMemory = "podMemory"
	SeriesPodCPU    = "podCpu"
)
