package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BenchmarkMatrix is variants x runs, as often as repeat says, after a warm-up if one is asked for. adapters is short for variants that
// differ in nothing else.
//
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || !has(self.variants)",message="set adapters or variants, not both: adapters is short for variants that differ in nothing else; a variant has its adapter in its field adapter"
// +kubebuilder:validation:XValidation:rule="!has(self.baseline) || (has(self.variants) ? self.variants.exists(v, v.name == self.baseline) : (has(self.adapters) ? self.adapters : ['None', 'ETS', 'BrowserMemory', 'Redis', 'Mnesia']).exists(a, a == self.baseline))",message="baseline must be the name of one of variants, or one of adapters: the others are compared with it",fieldPath=".baseline"
// +kubebuilder:validation:XValidation:rule="!has(self.seek) || self.runs.size() == 1",message="seek begins with one size, and makes the others of it: leave one entry in runs",fieldPath=".runs"
type BenchmarkMatrix struct {
	// repeat is how often each size is run with every adapter: one run after another of all adapters, and then all of them again, so that
	// what changes in the course of the hours meets all alike. Of 5 rounds and more the report tells how sure a difference is.
	// At most 20. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	Repeat int32 `json:"repeat,omitempty"`

	// warmup is how often the first of runs is run with every adapter before all others, and does not count: images are pulled then, and
	// disks and processors are as they are in the middle of a benchmark. These runs are in the status, with what became of them, and neither
	// in the verdict nor in the report. At most 3. Default 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	// +optional
	Warmup int32 `json:"warmup,omitempty"`

	// adapters to compare, when nothing else differs; instead of variants. Default: all, None first, as the baseline; with
	// scenarios Requests and Rooms None alone.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="adapters must name at least one adapter (None, ETS, BrowserMemory, Redis, Mnesia), or be left out for all of them"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="adapters names an adapter twice: remove one, each is run once for each of runs"
	// +listType=atomic
	// +optional
	Adapters []Adapter `json:"adapters,omitempty"`

	// variants to compare: fleets that differ in more than their adapter, and other servers. At most 8.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="variants is empty: name at least one, for example {name: fullsweep-20, patch: {beam: {fullsweepAfter: 20}}}, or remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(o, o.name == v.name))",message="variants has a name twice: rename or remove one, status and report tell variants by their names"
	// +listType=atomic
	// +optional
	Variants []BenchmarkVariant `json:"variants,omitempty"`

	// baseline is what the others are compared with in the report: the name of one of variants, or one of adapters. Default: the first of
	// variants; of adapters None, if it is among them.
	// +kubebuilder:validation:MaxLength=30
	// +optional
	Baseline string `json:"baseline,omitempty"`

	// runs are the sizes, each run with every variant. At most 19.
	// +kubebuilder:validation:MaxItems=19
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="runs is empty: name at least one size, for example {users: 1000, ttl: 1m}"
	// +kubebuilder:validation:XValidation:rule="self.exists(r, !has(r.users) || !has(r.ttl)) || !self.all(r, r.ttl.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$')) || self.all(r, self.exists_one(o, o.users == r.users && duration(o.ttl) == duration(r.ttl)))",message="runs has the same users and ttl twice: remove one"
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(o, o == r))",message="runs has the same run twice: remove one"
	// +listType=atomic
	// +required
	Runs []BenchmarkRun `json:"runs"`

	// seek makes each size of the one before, larger and larger, as long as it holds: the last that does is the knee of a variant. Only with
	// scenarios Requests and Rooms. Default: the sizes of runs, and no others.
	// +optional
	Seek *BenchmarkSeek `json:"seek,omitempty"`
}

// BenchmarkSeek finds how much load a variant carries. The first step is the entry of runs: its users; with scenario Requests its rate, or
// without one its connections. In each later step they are factor times as many, always more than before, with Rooms rounded up to whole
// rooms, and the ramp is longer in proportion, so that as many come in a second. A variant whose step does not hold has no further one. With
// repeat a step holds when more than half of its rounds do. Rounds that can no longer change that are not run.
type BenchmarkSeek struct {
	// steps is how many sizes there are at most. From 2 to 20.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=20
	// +required
	Steps int32 `json:"steps"`

	// factor by which a step is larger than the one before, in quotes, from "1.1" to "10". Default "2".
	// +kubebuilder:default="2"
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^(1[.][1-9][0-9]{0,2}|[2-9]([.][0-9]{1,3})?|10)$')",message="seek.factor must be a number from \"1.1\" to \"10\" in quotes, for example \"1.5\""
	// +optional
	Factor string `json:"factor,omitempty"`

	// while says when a step holds. The other thresholds must hold, too.
	// +kubebuilder:default={}
	// +optional
	While BenchmarkSeekWhile `json:"while,omitempty"`
}

// BenchmarkSeekWhile is what a step must keep.
type BenchmarkSeekWhile struct {
	// p95 is the time within which 95 % of the requests must be answered, or of the messages must have reached their whole room. Default 1s.
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) > duration('0s')",message="seek.while.p95 must be a duration above 0 with a unit, for example 1s"
	// +optional
	P95 *metav1.Duration `json:"p95,omitempty"`

	// failed is the share of requests, or messages, that may fail, from "0" to "1"; in place of thresholds.maxFailed. With more than "0.05"
	// that fail, or with a rate are never sent, there is no p95, and the step does not hold. Default "0.01".
	// +kubebuilder:default="0.01"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="seek.while.failed must be a share from \"0\" to \"1\", for example \"0.01\""
	// +optional
	Failed string `json:"failed,omitempty"`
}

// BenchmarkRun is one size of a matrix.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ttl) || ![self.ttl, has(self.ramp) ? self.ramp : '0s', has(self.duration) ? self.duration : '0s'].all(d, d.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$')) || (has(self.ramp) ? duration(self.ramp) : duration('0s')) + duration(self.ttl) <= (has(self.duration) ? duration(self.duration) : duration(self.ttl) + duration(self.ttl) + duration(self.ttl))",messageExpression="'ttl ' + self.ttl + ' is too short for this ramp, or duration too short for both: after the ramp (' + (has(self.ramp) ? self.ramp : '3/4 of ttl') + ') the run must last one ttl at least, and its duration is ' + (has(self.duration) ? self.duration : '3 x ttl') + '; make ramp shorter, or ttl or duration longer'",message="ttl is too short for ramp: ramp + ttl must be at most duration (default 3 x ttl)"
type BenchmarkRun struct {
	// users at the same time, over all runners. Needed but with scenario Requests; with Rooms a multiple of rooms.size.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000000",message="users must be from 1 to 1000000: a run without users measures nothing"
	// +optional
	Users int32 `json:"users,omitempty"`

	// connections over all runners, with scenario Requests, each of which asks again when it has its answer: as many requests as that makes.
	// Rounded up to a multiple of parallelism. From 1 to 100000. Default, with rate: 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Connections int32 `json:"connections,omitempty"`

	// rate is so many requests a second that are due, with scenario Requests, dealt out over connections, whatever the server does. Their time
	// counts from when they were due. From 1 to 1000000. Default: none, each connection asks as often as it can.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Rate int32 `json:"rate,omitempty"`

	// ttl of the stashes, whole seconds from 10s to 24h. Needed but with scenarios Requests and Rooms, which stash nothing.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="ttl must be whole seconds from 10s to 24h with a unit, for example 1m"
	// +optional
	TTL metav1.Duration `json:"ttl,omitzero"`

	// duration of the run, ramp included, at most 72h. Default 3 x ttl, as published; with scenario Visits at least 1.65 x ttl + 20s.
	// With Requests 1m, with Rooms 5m; there the ramp and the longest rooms.every must fit into it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('1s') && duration(self) <= duration('72h')",message="duration must be whole seconds with a unit, for example 3m, and at most 72h"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// ramp is the time in which the users arrive, evenly. Default 3/4 of ttl; the published runs had 45s, 3m45s and 11m25s
	// with TTLs of 1m, 5m and 15m. With scenario Rooms 1/4 of duration. At most 72h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) <= duration('72h')",message="ramp must be whole seconds of at most 72h with a unit, for example 45s; 0s for all users at once"
	// +optional
	Ramp *metav1.Duration `json:"ramp,omitempty"`
}
