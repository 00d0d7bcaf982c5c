// Package loadtest turns a LiveStashBenchmark into runs, and what they leave behind into figures and verdicts. It is pure:
// nothing here talks to anybody.
package loadtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// usersPerRunner is what 20,000 file descriptors allow, less 500 that k6 and closing connections need.
	usersPerRunner = 19500
	// slack is what a run may take besides its duration, for its fleet and runners to start and stop.
	slack = 10 * time.Minute
	// LeastSlack is the least of it: a spec.runDeadline without it cannot be kept.
	LeastSlack = 30 * time.Second
	// defaultWithin is how long an event may take.
	defaultWithin = 2 * time.Minute
	// eventLead is how much earlier than the operator the runners take an event to begin: their load begins a moment after the operator
	// has let them go, and who was to come then may be held up by what happens.
	eventLead = 5 * time.Second
	// defaultPayloadKeys make a stash of 5,556 bytes as a term, as the published shallow map of 5 KB.
	defaultPayloadKeys = 150
)

// Run is one cell of a matrix.
type Run struct {
	// Name is unique in the namespace: <benchmark>-<number>-<variant>.
	Name string
	// Warmup is whether it comes before those that count.
	Warmup bool
	// Scenario is what the users do.
	Scenario v1alpha1.BenchmarkScenario
	// Variant is the name of what is compared, Adapter that of its fleet, and Patch what its fleet has otherwise than the template.
	Variant string
	Adapter v1alpha1.Adapter
	Patch   *v1alpha1.BenchmarkPatch
	// Server is what is measured in place of a fleet. Nil: a fleet is.
	Server *v1alpha1.BenchmarkServer
	// Round is the how manieth run of this size and variant it is, from 1.
	Round int32
	// Users over all Runners; with Requests its connections.
	Users   int32
	Runners int32
	// Rate of requests a second, 0 for as many as the connections make, Requests and Rooms what is asked for or talked in; each in its scenario.
	Rate     int32
	Requests *v1alpha1.BenchmarkRequests
	Rooms    *v1alpha1.BenchmarkRooms
	// TTL of the stashes, 0 where nobody stashes; Duration of the load, the Ramp in which the users arrive included.
	TTL, Duration, Ramp time.Duration
	// Deadline for everything, from making the fleet to the last report.
	Deadline time.Duration
	// Events in the order in which they come.
	Events []Event
	// While is what the run must keep where knees are sought, nil elsewhere; Step counts from 0.
	While *v1alpha1.BenchmarkSeekWhile
	Step  int
}

// LeastRunners is how many runners the users need, because of the file descriptors that each has, and because rooms are not divided.
func (r Run) LeastRunners() int32 {
	if r.Rooms == nil {
		return ceilDiv(r.Users, usersPerRunner)
	}
	return ceilDiv(ceilDiv(r.Users, r.Rooms.Size), max(1, usersPerRunner/r.Rooms.Size))
}

// Event is something that is done to the fleet in the middle of a run.
type Event struct {
	v1alpha1.BenchmarkEvent
	// Begins and Ends are counted from the start of the load: it begins then, and must be over by then.
	Begins, Ends time.Duration
}

// presets are the published matrices.
var presets = map[v1alpha1.BenchmarkPreset][]v1alpha1.BenchmarkRun{
	// Source: https://swmansion.com/blog/live-stash-performance-tests/
	v1alpha1.PresetLiveStash2026: {
		published(1000, time.Minute, 45*time.Second),
		published(5000, time.Minute, 45*time.Second),
		published(10000, time.Minute, 45*time.Second),
		published(17000, time.Minute, 45*time.Second),
		published(25000, time.Minute, 45*time.Second),
		published(25000, 5*time.Minute, 3*time.Minute+45*time.Second),
		published(25000, 15*time.Minute, 11*time.Minute+25*time.Second),
	},
}

// adapters in the order in which they are run: the baseline first.
var adapters = []v1alpha1.Adapter{
	v1alpha1.AdapterNone, v1alpha1.AdapterETS, v1alpha1.AdapterBrowserMemory, v1alpha1.AdapterRedis, v1alpha1.AdapterMnesia,
}

// longestShortName is what names of tests have room for beside a benchmark's, with what k6-operator adds to them.
const longestShortName = 9

// shortName of the variant is short enough for object names, and fit for them: of an adapter its first word.
func (r Run) shortName() string {
	if r.isAdapter() {
		word, _, _ := strings.Cut(store.Of(r.Adapter).Name(), "_")
		return word
	}
	return strings.TrimRight(r.Variant[:min(len(r.Variant), longestShortName)], "-")
}

// isAdapter is whether the variant is one adapter of several, and nothing else.
func (r Run) isAdapter() bool { return r.Variant == string(r.Adapter) }

// Compared is what the run has and others have not, in words: adapter ETS.
func (r Run) Compared() string {
	if r.isAdapter() {
		return "adapter " + r.Variant
	}
	return "variant " + r.Variant
}

func published(users int32, ttl, ramp time.Duration) v1alpha1.BenchmarkRun {
	return v1alpha1.BenchmarkRun{Users: users, TTL: metav1.Duration{Duration: ttl}, Ramp: &metav1.Duration{Duration: ramp}}
}

// Plan is all runs of a benchmark, in their order: the warm-up, and then for each size, every variant, as often as the matrix says.
func Plan(b *v1alpha1.LiveStashBenchmark) []Run {
	sizes, rounds, warmups := presets[b.Spec.Preset], int32(1), int32(0)
	if matrix := b.Spec.Matrix; matrix != nil {
		sizes, rounds, warmups = steps(&b.Spec), max(1, matrix.Repeat), matrix.Warmup
	}
	wanted := variants(&b.Spec)
	var runs []Run
	for round := range warmups {
		for _, run := range roundOf(&b.Spec, sizes[0], round, wanted) {
			run.Warmup = true
			run.Name = fmt.Sprintf("%s-w%d-%s", b.Name, len(runs)+1, run.shortName())
			runs = append(runs, run)
		}
	}
	warm := len(runs)
	for step, size := range sizes {
		for round := range rounds {
			for _, run := range roundOf(&b.Spec, size, round, wanted) {
				if b.Spec.Matrix != nil && b.Spec.Matrix.Seek != nil {
					run.While, run.Step = &b.Spec.Matrix.Seek.While, step
				}
				run.Name = fmt.Sprintf("%s-%02d-%s", b.Name, len(runs)-warm+1, run.shortName())
				runs = append(runs, run)
			}
		}
	}
	return runs
}

// variants are those that are compared, in the order in which they are run. Adapters are variants of their own names.
func variants(spec *v1alpha1.LiveStashBenchmarkSpec) []v1alpha1.BenchmarkVariant {
	wanted := adapters
	if Stashless(spec.Scenario) {
		wanted = adapters[:1]
	}
	if matrix := spec.Matrix; matrix != nil {
		if len(matrix.Variants) > 0 {
			return matrix.Variants
		}
		if len(matrix.Adapters) > 0 {
			wanted = matrix.Adapters
		}
	}
	all := make([]v1alpha1.BenchmarkVariant, 0, len(wanted))
	for _, adapter := range wanted {
		all = append(all, v1alpha1.BenchmarkVariant{Name: string(adapter), Adapter: adapter})
	}
	return all
}

// Baseline is the variant that the others are compared with. Empty: there is none.
func Baseline(spec *v1alpha1.LiveStashBenchmarkSpec) string {
	if spec.Matrix != nil && spec.Matrix.Baseline != "" {
		return spec.Matrix.Baseline
	}
	if spec.Matrix != nil && len(spec.Matrix.Variants) > 0 {
		return spec.Matrix.Variants[0].Name
	}
	for _, one := range variants(spec) {
		if one.Adapter == v1alpha1.AdapterNone {
			return one.Name
		}
	}
	return ""
}

// roundOf is one run of a size with every variant, without names. Rounds count from 0.
func roundOf(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, round int32, wanted []v1alpha1.BenchmarkVariant) []Run {
	runs := make([]Run, 0, len(wanted))
	for _, variant := range wanted {
		run := planned(spec, size)
		run.Variant, run.Adapter, run.Patch, run.Round = variant.Name, cmp.Or(variant.Adapter, v1alpha1.AdapterNone), variant.Patch, round+1
		run.Server = variant.Server
		runs = append(runs, run)
	}
	return runs
}

// The pauses between two runs where the benchmark does not say: the published one is long enough for the stashes of a run to be gone
// from a fleet that stays.
const (
	defaultCooldown   = 10 * time.Second
	publishedCooldown = time.Minute
)

// Cooldown is the pause between two runs.
func Cooldown(spec *v1alpha1.LiveStashBenchmarkSpec) time.Duration {
	switch {
	case spec.Cooldown != nil:
		return spec.Cooldown.Duration
	case spec.Preset == v1alpha1.PresetLiveStash2026:
		return publishedCooldown
	}
	return defaultCooldown
}

// Payload is what the pods of a fresh fleet are told to stash, with its defaults.
func Payload(spec *v1alpha1.LiveStashBenchmarkSpec) (keys int32, onPage v1alpha1.BenchmarkPayloadOnPage) {
	asked := ptr.Deref(spec.Payload, v1alpha1.BenchmarkPayload{})
	onPage = v1alpha1.PayloadHidden
	if spec.Preset == v1alpha1.PresetLiveStash2026 {
		onPage = v1alpha1.PayloadShown
	}
	return ptr.Deref(asked.Keys, defaultPayloadKeys), cmp.Or(asked.OnPage, onPage)
}

// planned is a size of the matrix with its defaults, divided by the scale.
func planned(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun) Run {
	run := Run{Scenario: spec.Scenario}
	ScenarioOf(spec.Scenario).Size(spec, size, &run)
	run.Events = events(spec.Events)
	run.Deadline = run.Duration + slack
	if spec.RunDeadline != nil {
		run.Deadline = spec.RunDeadline.Duration
	}
	return run
}

// Load is the size of the run in words.
func (r Run) Load() string { return ScenarioOf(r.Scenario).Load(r) }

// Asked is what all runs of the benchmark ask for, or talk in, in words. Empty where they stash.
func Asked(spec *v1alpha1.LiveStashBenchmarkSpec) string {
	return ScenarioOf(spec.Scenario).Asked(planned(spec, v1alpha1.BenchmarkRun{}))
}

// MessageBytes is the length of a message with scenario Rooms, 0 with others.
func MessageBytes(spec *v1alpha1.LiveStashBenchmarkSpec) int32 {
	return ptr.Deref(planned(spec, v1alpha1.BenchmarkRun{}).Rooms, v1alpha1.BenchmarkRooms{}).Bytes
}

// events are those of the specification, in the order of their times.
func events(wanted []v1alpha1.BenchmarkEvent) []Event {
	var all []Event
	for _, one := range wanted {
		begins := one.At.Duration
		all = append(all, Event{one, begins, begins + ptr.Deref(one.Within, metav1.Duration{Duration: defaultWithin}).Duration})
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Compare(a.Begins, b.Begins) })
	return all
}

// Options are the environment of the scenario (loadtests/k6/README.md), without the number of runners and where they
// leave their report, which are the runner's business. testID names the attempt, bases are the servers' URLs.
func (r Run) Options(testID string, bases []string, limits v1alpha1.BenchmarkThresholds) []corev1.EnvVar {
	options := []corev1.EnvVar{
		{Name: "TESTID", Value: testID},
		{Name: "BASE_URLS", Value: strings.Join(bases, ",")},
	}
	options = append(options, ScenarioOf(r.Scenario).Options(r, limits)...)
	if limits.MaxFailed != "" {
		options = append(options, corev1.EnvVar{Name: "MAX_FAILED", Value: limits.MaxFailed})
	}
	if limits.MaxClientDelay != nil {
		options = append(options, corev1.EnvVar{Name: "MAX_CLIENT_DELAY", Value: seconds(limits.MaxClientDelay.Duration)})
	}
	return options
}

// windows are the times of events, for the runners.
func windows(events []Event) string {
	words := make([]string, 0, len(events))
	for _, event := range events {
		words = append(words, seconds(event.Begins-eventLead)+"+"+seconds(event.Ends-event.Begins+eventLead))
	}
	return strings.Join(words, ",")
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

func ceilDiv(a, b int32) int32 {
	return (a + b - 1) / b
}
