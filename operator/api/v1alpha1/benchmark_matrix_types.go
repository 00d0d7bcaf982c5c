package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BenchmarkMatrix is variants x runs, as often as repeat says, after a warm-up if one is asked for. adapters is short for variants that
// differ in nothing else.
//
// +kubebuilder:validation:XValidation:rule="!has(self.adapters) || !has(self.variants)",message="set adapters or variants, not both: adapters is short for variants that differ in nothing else; a variant has its adapter in its field adapter"
// +kubebuilder:validation:XValidation:rule="self.repeat * self.runs.size() * (has(self.variants) ? self.variants.size() : has(self.adapters) ? self.adapters.size() : 5) <= 99",message="repeat x runs x adapters (or variants) is more than 99 runs: a smaller repeat, fewer runs or fewer adapters"
// +kubebuilder:validation:XValidation:rule="!has(self.baseline) || (has(self.variants) ? self.variants.exists(v, v.name == self.baseline) : (has(self.adapters) ? self.adapters : ['None', 'ETS', 'BrowserMemory', 'Redis', 'Mnesia']).exists(a, a == self.baseline))",message="baseline must be the name of one of variants, or one of adapters: the others are compared with it",fieldPath=".baseline"
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

	// adapters to compare, when nothing else differs; instead of variants. Default: all, None first, as the baseline.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="adapters must name at least one adapter (None, ETS, BrowserMemory, Redis, Mnesia), or be left out for all of them"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="adapters names an adapter twice: remove one, each is run once for each of runs"
	// +listType=atomic
	// +optional
	Adapters []Adapter `json:"adapters,omitempty"`

	// variants to compare: fleets that differ in more than their adapter. At most 8.
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
	// +kubebuilder:validation:XValidation:rule="!self.all(r, r.ttl.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$')) || self.all(r, self.exists_one(o, o.users == r.users && duration(o.ttl) == duration(r.ttl)))",message="runs has the same users and ttl twice: remove one"
	// +listType=atomic
	// +required
	Runs []BenchmarkRun `json:"runs"`
}

// BenchmarkRun is one size of a matrix.
//
// +kubebuilder:validation:XValidation:rule="![self.ttl, has(self.ramp) ? self.ramp : '0s', has(self.duration) ? self.duration : '0s'].all(d, d.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$')) || (has(self.ramp) ? duration(self.ramp) : duration('0s')) + duration(self.ttl) <= (has(self.duration) ? duration(self.duration) : duration(self.ttl) + duration(self.ttl) + duration(self.ttl))",messageExpression="'ttl ' + self.ttl + ' is too short for this ramp, or duration too short for both: after the ramp (' + (has(self.ramp) ? self.ramp : '3/4 of ttl') + ') the run must last one ttl at least, and its duration is ' + (has(self.duration) ? self.duration : '3 x ttl') + '; make ramp shorter, or ttl or duration longer'",message="ttl is too short for ramp: ramp + ttl must be at most duration (default 3 x ttl)"
type BenchmarkRun struct {
	// users at the same time, over all runners.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000000",message="users must be from 1 to 1000000: a run without users measures nothing"
	// +required
	Users int32 `json:"users"`

	// ttl of the stashes, whole seconds from 10s to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="ttl must be whole seconds from 10s to 24h with a unit, for example 1m"
	// +required
	TTL metav1.Duration `json:"ttl"`

	// duration of the run, ramp included, at most 72h. Default 3 x ttl, as published; with scenario Visits at least 1.65 x ttl + 20s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('1s') && duration(self) <= duration('72h')",message="duration must be whole seconds with a unit, for example 3m, and at most 72h"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// ramp is the time in which the users arrive, evenly. Default 3/4 of ttl; the published runs had 45s, 3m45s and 11m25s
	// with TTLs of 1m, 5m and 15m. At most 72h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) <= duration('72h')",message="ramp must be whole seconds of at most 72h with a unit, for example 45s; 0s for all users at once"
	// +optional
	Ramp *metav1.Duration `json:"ramp,omitempty"`
}
