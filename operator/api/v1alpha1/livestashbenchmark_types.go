package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LiveStashBenchmark runs a matrix of load tests, one after another, judges each and keeps a report.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=lsb,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Scenario",type=string,JSONPath=`.spec.scenario`,description="What the users do"
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`,description="Runs that are over, of all"
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`,description="The worst verdict of the runs that are over"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="What the benchmark is doing"
// +kubebuilder:printcolumn:name="Left",type=string,priority=1,JSONPath=`.status.timeLeft`,description="About how long it still takes"
// +kubebuilder:printcolumn:name="Status",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`,description="The same in a sentence"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 30 characters, only a-z, 0-9 and '-', starting with a letter: the names of its fleets and runners are made of it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.compareWith) || (has(self.spec.compareWith.benchmarkRef) ? self.spec.compareWith.benchmarkRef.name != self.metadata.name : !has(self.spec.compareWith.configMapRef) || self.spec.compareWith.configMapRef.name != self.metadata.name + '-report')",message="compareWith names this benchmark's own report, which is only being made: name an earlier one",fieldPath=".spec.compareWith"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.startedAt) || (self.spec.target == oldSelf.spec.target && has(self.spec.preset) == has(oldSelf.spec.preset) && has(self.spec.matrix) == has(oldSelf.spec.matrix) && (!has(self.spec.matrix) || self.spec.matrix == oldSelf.spec.matrix) && self.spec.scale == oldSelf.spec.scale && self.spec.scenario == oldSelf.spec.scenario && has(self.spec.script) == has(oldSelf.spec.script) && (!has(self.spec.script) || self.spec.script == oldSelf.spec.script) && has(self.spec.requests) == has(oldSelf.spec.requests) && (!has(self.spec.requests) || self.spec.requests == oldSelf.spec.requests) && has(self.spec.rooms) == has(oldSelf.spec.rooms) && (!has(self.spec.rooms) || self.spec.rooms == oldSelf.spec.rooms) && has(self.spec.payload) == has(oldSelf.spec.payload) && (!has(self.spec.payload) || self.spec.payload == oldSelf.spec.payload) && has(self.spec.events) == has(oldSelf.spec.events) && (!has(self.spec.events) || self.spec.events == oldSelf.spec.events))",message="what is measured (target, preset, matrix, scale, scenario, script, requests, rooms, payload, events) cannot change once the benchmark has started, or its rows could not be compared: make a new LiveStashBenchmark",fieldPath=".spec"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.startedAt) || (self.spec.routing == oldSelf.spec.routing && has(self.spec.proxy) == has(oldSelf.spec.proxy) && (!has(self.spec.proxy) || self.spec.proxy == oldSelf.spec.proxy) && has(self.spec.parallelism) == has(oldSelf.spec.parallelism) && (!has(self.spec.parallelism) || self.spec.parallelism == oldSelf.spec.parallelism) && self.spec.thresholds == oldSelf.spec.thresholds && self.spec.runner == oldSelf.spec.runner && self.spec.runnerTemplate == oldSelf.spec.runnerTemplate && has(self.spec.prometheusRemoteWrite) == has(oldSelf.spec.prometheusRemoteWrite) && (!has(self.spec.prometheusRemoteWrite) || self.spec.prometheusRemoteWrite == oldSelf.spec.prometheusRemoteWrite) && has(self.spec.cooldown) == has(oldSelf.spec.cooldown) && (!has(self.spec.cooldown) || self.spec.cooldown == oldSelf.spec.cooldown) && has(self.spec.runDeadline) == has(oldSelf.spec.runDeadline) && (!has(self.spec.runDeadline) || self.spec.runDeadline == oldSelf.spec.runDeadline) && has(self.spec.compareWith) == has(oldSelf.spec.compareWith) && (!has(self.spec.compareWith) || self.spec.compareWith == oldSelf.spec.compareWith))",message="only suspend and ttlSecondsAfterFinished can change once the benchmark has started: make a new LiveStashBenchmark",fieldPath=".spec"
type LiveStashBenchmark struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to measure.
	// +required
	Spec LiveStashBenchmarkSpec `json:"spec"`
	// status is how far the operator is with the benchmark, and what came out.
	// Before it has seen the object, observedGeneration is -1: else tools that wait by kstatus, such as Flux and Helm, would take an
	// object that nobody has looked at for done.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status LiveStashBenchmarkStatus `json:"status,omitempty"`
}

// LiveStashBenchmarkList is a list of LiveStashBenchmarks.
//
// +kubebuilder:object:root=true
type LiveStashBenchmarkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LiveStashBenchmark `json:"items"`
}

// LiveStashBenchmarkSpec is what to measure. Required are a target, and a preset or a matrix. Once the first run has
// begun only suspend and ttlSecondsAfterFinished can change.
//
// +kubebuilder:validation:XValidation:rule="has(self.preset) != has(self.matrix)",message="set exactly one of preset (a published matrix) and matrix (your own)"
// +kubebuilder:validation:XValidation:rule="!has(self.preset) || has(self.target.template)",message="a preset runs several adapters and TTLs, so it needs a fresh fleet for each run: set target.template, or a matrix with the one adapter that the target has",fieldPath=".preset"
// +kubebuilder:validation:XValidation:rule="has(self.target.template) || !has(self.matrix) || (has(self.matrix.variants) ? self.matrix.variants.size() == 1 : has(self.matrix.adapters) && self.matrix.adapters.size() == 1)",message="matrix.adapters must name the one adapter that the target has, or matrix.variants have one entry: a fleet that exists, or a URL, cannot change; for several set target.template",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="has(self.target.template) || !has(self.matrix) || !has(self.matrix.variants) || !self.matrix.variants.exists(v, has(v.patch))",message="matrix.variants: a patch changes the fresh fleet of a run, so it needs target.template: remove patch, or set that",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="has(self.target.template) || !has(self.matrix) || !has(self.matrix.variants) || !self.matrix.variants.exists(v, has(v.server))",message="matrix.variants: a server is made anew for each run, as the fleets of target.template are, beside which it stands: set that, or remove server; of a server that exists set target.url",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || !has(self.matrix.variants) || self.scenario in ['Requests', 'Rooms'] || !self.matrix.variants.exists(v, has(v.server))",message="matrix.variants: a server stashes nothing, so it needs scenario Requests or Rooms: set one of them, or remove server",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || !has(self.matrix.variants) || self.scenario != 'Rooms' || self.matrix.variants.all(v, !has(v.server) || has(v.server.protocol))",message="matrix.variants: with scenario Rooms a server needs protocol: Phoenix, WebSocket or ActionCable, whichever its rooms speak",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || !has(self.matrix.variants) || self.scenario != 'Requests' || !self.matrix.variants.exists(v, has(v.server) && has(v.server.protocol))",message="matrix.variants: protocol of a server is for scenario Rooms: remove it, Requests speaks HTTP",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || !has(self.matrix.seek) || self.scenario in ['Requests', 'Rooms']",message="matrix.seek needs scenario Requests or Rooms: set one of them, or remove seek",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.thresholds.against) || !has(self.matrix) || (has(self.matrix.variants) ? self.matrix.variants.size() > 1 : has(self.matrix.adapters) ? self.matrix.adapters.size() > 1 && (has(self.matrix.baseline) || self.matrix.adapters.exists(a, a == 'None')) : !(self.scenario in ['Requests', 'Rooms']))",message="thresholds.against holds the other variants against the baseline: name two variants, or two adapters, at least, one of which is None or matrix.baseline",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="!has(self.thresholds.against) || !has(self.matrix) || !has(self.matrix.seek)",message="thresholds.against compares variants under the same load, and with matrix.seek each comes as far as it can: remove one of them",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="!has(self.thresholds.minCollections) || !has(self.target.url)",message="thresholds.minCollections is asked of the agents of a fleet, and target.url has none: remove it, or set target.template or target.clusterRef",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="has(self.target.template) || self.scale == 1",message="scale divides TTLs, and a fleet that exists, or a URL, keeps its own: remove scale and write smaller numbers into matrix.runs, or set target.template",fieldPath=".scale"
// +kubebuilder:validation:XValidation:rule="has(self.target.template) || !has(self.payload)",message="payload is what the pods of a fresh fleet are told to stash, so it needs target.template: remove payload, and set STASH_PAYLOAD_KEYS in the env of the fleet that exists",fieldPath=".payload"
// +kubebuilder:validation:XValidation:rule="(self.scenario == 'Script') == has(self.script)",message="script and scenario Script go together: set both for a script of your own, or neither",fieldPath=".script"
// +kubebuilder:validation:XValidation:rule="!has(self.events) || has(self.target.template)",message="events are for a fresh fleet in each run: set target.template; nothing is done to a fleet that has users of its own",fieldPath=".events"
// +kubebuilder:validation:XValidation:rule="!has(self.events) || self.routing == 'Service'",message="events need routing: Service: they take pods away and bring others, and RoundRobin and Proxy send users to the pods that were there at the start",fieldPath=".events"
// +kubebuilder:validation:XValidation:rule="(self.routing == 'Proxy') == has(self.proxy)",message="routing: Proxy and proxy go together: set both, for example proxy: {image: docker.io/nginxinc/nginx-unprivileged:1.29-alpine}, or neither",fieldPath=".proxy"
// +kubebuilder:validation:XValidation:rule="!has(self.proxy) || !has(self.target.url)",message="proxy stands in front of pods, and target.url is reached as it is: remove routing and proxy, or set target.template or target.clusterRef",fieldPath=".proxy"
// +kubebuilder:validation:XValidation:rule="!has(self.events) || has(self.matrix) && self.scale == 1",message="events need a matrix and no scale: their times are not scaled, because a fleet takes as long as it takes",fieldPath=".events"
// +kubebuilder:validation:XValidation:rule="has(self.matrix) && self.matrix.runs.exists(r, !has(r.ttl)) || !has(self.events) || !has(self.matrix) || !self.events.all(e, e.at.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && e.within.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$')) || !self.matrix.runs.all(r, r.ttl.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && (!has(r.duration) || r.duration.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$'))) || self.events.all(e, self.matrix.runs.all(r, duration(e.at) + duration(e.within) <= (has(r.duration) ? duration(r.duration) : duration(r.ttl) + duration(r.ttl) + duration(r.ttl))))",message="an event must be over before the run is: at + within must be at most the duration of every run (default 3 x ttl); make at or within shorter, or duration longer",fieldPath=".events"
// +kubebuilder:validation:XValidation:rule="has(self.events) || !has(self.thresholds.p99) || !has(self.thresholds.p99.reconnectDuring) && !has(self.thresholds.p99.reconnectOutside)",message="thresholds.p99.reconnectDuring and reconnectOutside are measured around events only: set events, or set thresholds.p99.reconnect",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="!has(self.thresholds.p99) || !has(self.thresholds.p99.lateRejoin) || self.scenario != 'Reconnect'",message="thresholds.p99.lateRejoin is never measured with scenario Reconnect, where nobody comes back after the TTL: remove it, or set scenario Visits",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="has(self.matrix) && self.matrix.runs.exists(r, !has(r.ttl)) || !has(self.matrix) || self.scenario != 'Visits' || !self.matrix.runs.all(r, r.ttl.matches('^[0-9]+([.][0-9]+)?(ms|s|m|h)$') && (!has(r.duration) || r.duration.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$'))) || self.matrix.runs.all(r, !has(r.duration) || duration(r.duration).getSeconds() * 100 >= duration(r.ttl).getSeconds() * 165 + 2000)",message="with scenario Visits the duration of a run must be at least 1.65 x its ttl + 20s: else no visitor comes back after the TTL; make duration longer, or remove it (default 3 x ttl)",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="has(self.matrix) && self.matrix.runs.exists(r, !has(r.users)) || !has(self.parallelism) || (has(self.matrix) ? self.matrix.runs.all(r, self.parallelism <= r.users) : self.parallelism <= 1000)",message="parallelism is more than the users of a run: a runner without a user proves nothing; set parallelism to the smallest number of users or less, or remove it",fieldPath=".parallelism"
// +kubebuilder:validation:XValidation:rule="has(self.matrix) && self.matrix.runs.exists(r, !has(r.users)) || !has(self.parallelism) || ((has(self.matrix) && self.matrix.runs.size() > 0 ? self.matrix.runs.map(r, r.users).max() : 25000) + self.scale - 1) / self.scale <= self.parallelism * 19500",messageExpression="'parallelism %d is too small: a runner has 20,000 file descriptors, enough for 19,500 users, so %d users need %d runners; set parallelism to that, or remove it (the default is enough)'.format([self.parallelism, ((has(self.matrix) && self.matrix.runs.size() > 0 ? self.matrix.runs.map(r, r.users).max() : 25000) + self.scale - 1) / self.scale, (((has(self.matrix) && self.matrix.runs.size() > 0 ? self.matrix.runs.map(r, r.users).max() : 25000) + self.scale - 1) / self.scale + 19499) / 19500])",message="parallelism is too small: a runner has file descriptors for 19,500 users",fieldPath=".parallelism"
// +kubebuilder:validation:XValidation:rule="has(self.matrix) && self.matrix.runs.exists(r, !has(r.ttl)) || !has(self.runDeadline) || !has(self.matrix) || self.scale != 1 || !self.runDeadline.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') || !self.matrix.runs.all(r, r.ttl.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && (!has(r.duration) || r.duration.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$'))) || self.matrix.runs.all(r, (has(r.duration) ? duration(r.duration) : duration(r.ttl) + duration(r.ttl) + duration(r.ttl)) + duration('30s') <= duration(self.runDeadline))",message="runDeadline must be at least 30s longer than the longest run (its duration, default 3 x ttl), because it includes the start of the fleet and of the runners: make it longer, or remove it (default: the run's duration + 10m)",fieldPath=".runDeadline"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario in ['Requests', 'Rooms'] || self.matrix.runs.all(r, has(r.users) && has(r.ttl))",message="each of matrix.runs needs users and ttl with this scenario, for example {users: 1000, ttl: 1m}",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario == 'Requests' || self.matrix.runs.all(r, !has(r.connections) && !has(r.rate))",message="connections and rate of matrix.runs are for scenario Requests: remove them, or set that",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Requests' || self.matrix.runs.all(r, (has(r.connections) || has(r.rate)) && !has(r.users) && !has(r.ttl) && !has(r.ramp))",message="with scenario Requests each of matrix.runs has connections or rate, or both, and no users, ttl or ramp, for example {connections: 12} or {rate: 500}",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Rooms' || self.matrix.runs.all(r, has(r.users) && !has(r.ttl))",message="with scenario Rooms each of matrix.runs has users and no ttl, for example {users: 2500, ramp: 30s, duration: 5m}",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Rooms' || self.matrix.runs.all(r, !has(r.users) || r.users % (has(self.rooms) ? self.rooms.size : 50) == 0)",message="with scenario Rooms users of each of matrix.runs must be a multiple of rooms.size (50 unless it is set): rooms are whole",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Rooms' || !has(self.parallelism) || self.matrix.runs.all(r, !has(r.users) || self.parallelism * (has(self.rooms) ? self.rooms.size : 50) <= r.users)",message="parallelism is more than there are rooms, and a room is not divided: set it to users / rooms.size or less, or remove it",fieldPath=".parallelism"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Rooms' || !has(self.parallelism) || self.matrix.runs.all(r, !has(r.users) || (r.users / (has(self.rooms) ? self.rooms.size : 50) + self.parallelism - 1) / self.parallelism * (has(self.rooms) ? self.rooms.size : 50) <= 19500)",message="parallelism is too small for whole rooms: a runner has file descriptors for 19,500 members, and all members of a room are in one runner; raise parallelism, or remove it for as many as are needed",fieldPath=".parallelism"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.scenario != 'Rooms' || has(self.rooms) && !self.rooms.every.matches('^[1-9][0-9]{0,6}(ms|s|m)(-[1-9][0-9]{0,6}(ms|s|m))?$') || !self.matrix.runs.all(r, [has(r.ramp) ? r.ramp : '0s', has(r.duration) ? r.duration : '0s'].all(d, d.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$'))) || self.matrix.runs.all(r, has(r.ramp) ? duration(r.ramp) + duration(has(self.rooms) ? self.rooms.every.split('-')[self.rooms.every.split('-').size() - 1] : '60s') <= duration(has(r.duration) ? r.duration : '5m') : duration(has(self.rooms) ? self.rooms.every.split('-')[self.rooms.every.split('-').size() - 1] : '60s').getSeconds() * 4 <= duration(has(r.duration) ? r.duration : '5m').getSeconds() * 3)",message="duration of each of matrix.runs (default 5m) must be at least its ramp (default 1/4 of it) and the longest rooms.every (default 60s) together: else some members would never speak",fieldPath=".matrix"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || !has(self.parallelism) || self.matrix.runs.all(r, !has(r.connections) || self.parallelism <= r.connections && r.connections <= self.parallelism * 19500)",message="parallelism does not fit connections: each runner has at least one of them, and file descriptors for 19,500; remove it for as many as are needed",fieldPath=".parallelism"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.scenario == 'Requests'",message="requests is for scenario Requests: set that, or remove requests",fieldPath=".requests"
// +kubebuilder:validation:XValidation:rule="!has(self.rooms) || self.scenario == 'Rooms'",message="rooms is for scenario Rooms: set that, or remove rooms",fieldPath=".rooms"
// +kubebuilder:validation:XValidation:rule="!(self.scenario in ['Requests', 'Rooms']) || !has(self.preset) && !has(self.payload) && !has(self.events) && !has(self.thresholds.maxLost) && self.scale == 1",message="scenarios Requests and Rooms stash nothing: remove preset, payload, events, thresholds.maxLost and scale",fieldPath=".scenario"
// +kubebuilder:validation:XValidation:rule="!has(self.thresholds.p99) || (self.scenario == 'Requests' || !has(self.thresholds.p99.request)) && (self.scenario == 'Rooms' || !has(self.thresholds.p99.delivery)) && (!(self.scenario in ['Requests', 'Rooms']) || !has(self.thresholds.p99.firstRender) && !has(self.thresholds.p99.stash) && !has(self.thresholds.p99.reconnect) && !has(self.thresholds.p99.rejoin) && !has(self.thresholds.p99.lateRejoin)) && (self.scenario != 'Requests' || !has(self.thresholds.p99.join))",message="thresholds.p99 has a limit that this scenario never measures: Requests measures request, Rooms join and delivery, and the others all but request and delivery",fieldPath=".thresholds"
// +kubebuilder:validation:XValidation:rule="!has(self.matrix) || self.matrix.repeat * (has(self.matrix.seek) ? self.matrix.seek.steps : self.matrix.runs.size()) * (has(self.matrix.variants) ? self.matrix.variants.size() : has(self.matrix.adapters) ? self.matrix.adapters.size() : self.scenario in ['Requests', 'Rooms'] ? 1 : 5) <= 99",message="repeat x runs (or seek.steps) x adapters (or variants) is more than 99 runs: a smaller repeat, fewer runs or fewer adapters",fieldPath=".matrix"
type LiveStashBenchmarkSpec struct {
	// target is what the users connect to: a fresh fleet for each run, a fleet that exists, or a URL.
	// +required
	Target BenchmarkTarget `json:"target"`

	// preset is a published matrix; instead of matrix. livestash-2026: 1,000, 5,000, 10,000, 17,000 and 25,000 users with a
	// TTL of 1m, 25,000 with 5m and 25,000 with 15m, each with all five adapters: 35 runs, about 7 hours. Source:
	// https://swmansion.com/blog/live-stash-performance-tests/
	// +optional
	Preset BenchmarkPreset `json:"preset,omitempty"`

	// matrix is your own: adapters, or variants, x runs. For each of runs, in their order, every one of them is run, in their order.
	// +optional
	Matrix *BenchmarkMatrix `json:"matrix,omitempty"`

	// scale divides users and times of every run, so that a large matrix runs small on a laptop. Users are rounded up and
	// never less than parallelism. The TTL never gets shorter than 10s (one that is shorter already stays); duration
	// and ramp are divided by as much as the TTL, rounded to whole seconds, and with scenario Visits the duration is never
	// shorter than 1.65 x TTL + 20s. Only with target.template. Default 1: the numbers as they are.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Scale int32 `json:"scale,omitempty"`

	// scenario is what the users do. Visits: they come and go as in the published test, and half of them come back
	// after their stash has expired. Reconnect: they stay, and reconnect as often as they can. Script: what script says. Requests: connections ask a JSON
	// API. Rooms: users are in chat rooms; measured is when the last member of a room has heard a message.
	// Default Visits. See loadtests/k6/README.md.
	// +kubebuilder:default=Visits
	// +optional
	Scenario BenchmarkScenario `json:"scenario,omitempty"`

	// script is a k6 script of your own, with scenario Script. It gets the options of loadtests/k6/README.md as
	// environment variables, may import that folder's library by its path in the image (/loadtests/k6/lib), and must
	// leave the same report in /dev/termination-log: without it every run is Errored.
	// +optional
	Script *BenchmarkScript `json:"script,omitempty"`

	// requests is what is asked for, with scenario Requests. Default: POST /api/sum.
	// +optional
	Requests *BenchmarkRequests `json:"requests,omitempty"`

	// rooms is what the users talk in, with scenario Rooms. Default: rooms of 50.
	// +optional
	Rooms *BenchmarkRooms `json:"rooms,omitempty"`

	// payload is what each user has stashed. Only with target.template.
	// Default: 150 keys, 5,556 bytes, as the shallow map of 5 KB of the published test.
	// +optional
	Payload *BenchmarkPayload `json:"payload,omitempty"`

	// events are done to the fleet in the middle of every run, one after another: what a deploy costs, in a number of users. Needs target.template
	// and routing Service. Sockets that end during an event and steps that fail then are no failed steps, and pods that it replaces have not
	// restarted: set thresholds.maxLost and thresholds.p99.reconnectDuring for what it may cost. At most 8. Default: none.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.size() > 0",message="events is empty: name at least one, for example {at: 1m, kind: Rollout}, or remove it"
	// +kubebuilder:validation:XValidation:rule="!self.all(e, e.at.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && e.within.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$')) || self.all(e, self.exists_one(o, duration(o.at) < duration(e.at) + duration(e.within) && duration(e.at) < duration(o.at) + duration(o.within)))",message="events overlap: an event must be over before the next one begins; at of the next must be at least at + within of the one before (within is 2m unless it is set)"
	// +listType=atomic
	// +optional
	Events []BenchmarkEvent `json:"events,omitempty"`

	// routing is how users reach the pods. RoundRobin: each connection goes to the next pod by its own name, so that every
	// reconnect lands on another pod than before: the worst case. Service: through the fleet's client Service. Proxy: through an nginx, as in
	// the published test: see proxy. Not read with target.url. Default RoundRobin.
	// +kubebuilder:default=RoundRobin
	// +optional
	Routing BenchmarkRouting `json:"routing,omitempty"`

	// proxy is the nginx in front of the pods, with routing Proxy, which needs it. It is made anew for each run and removed after it, and gives each
	// connection to the pod that has the fewest (least_conn, as in the published test). Default: none.
	// +optional
	Proxy *BenchmarkProxy `json:"proxy,omitempty"`

	// parallelism is the number of k6 runners that share the users of a run. A runner has file descriptors for 19,500
	// users. Default: as many as that needs, so one up to 19,500 users and two for 25,000.
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="parallelism must be from 1 to 100: it is the number of k6 runners; remove it for as many as the users need"
	// +optional
	Parallelism *int32 `json:"parallelism,omitempty"`

	// thresholds decide between Passed and Failed, on the numbers of all runners together.
	// +kubebuilder:default={}
	// +optional
	Thresholds BenchmarkThresholds `json:"thresholds,omitempty"`

	// compareWith is an earlier benchmark whose report the figures are held against when all runs are over: a gate for changes. What is over
	// its limit makes the benchmark Failed, with both numbers; a report that cannot be compared makes it Errored. Default: none.
	// +optional
	CompareWith *BenchmarkComparison `json:"compareWith,omitempty"`

	// runner is what runs k6. K6Operator: a TestRun of k6-operator, whose runners start at the same moment. Job: an indexed
	// Job of this operator's. Auto: K6Operator where its kind TestRun is served, else Job. Default Auto.
	// +kubebuilder:default=Auto
	// +optional
	Runner BenchmarkRunner `json:"runner,omitempty"`

	// runnerTemplate are settings of the runners' pods.
	// +kubebuilder:default={}
	// +optional
	RunnerTemplate BenchmarkRunnerTemplate `json:"runnerTemplate,omitempty"`

	// prometheusRemoteWrite makes the runners send their metrics to a Prometheus too, tagged testid=<name of the run> and
	// runner=<its number, from 0>, with k6-operator instance_id. Verdict and report do not need it. Default: none.
	//
	// k6 gets these tags as flags, and flags replace `options.tags` of a script of your own: a threshold on such a tag finds
	// no samples. Give the tags to the script's scenarios instead.
	// +optional
	PrometheusRemoteWrite *BenchmarkRemoteWrite `json:"prometheusRemoteWrite,omitempty"`

	// cooldown is the pause between two runs, after the first one's fleet is gone. Default 10s, with preset livestash-2026 60s as
	// in the published test.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) <= duration('24h')",message="cooldown must be a duration of at most 24h with a unit, for example 10s"
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`

	// runDeadline is how long one run may take, from making its fleet to the last runner's report. A run that takes longer is
	// stopped and Errored. At least 30s longer than the longest run, at most 168h. Default: the run's duration + 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="runDeadline must be a duration of at least 1m with a unit, for example 30m, and at most 168h: it includes the start of the fleet and of the runners"
	// +optional
	RunDeadline *metav1.Duration `json:"runDeadline,omitempty"`

	// suspend stops the run that is under way and begins no other; without it again, that run starts anew. Default false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// ttlSecondsAfterFinished removes the LiveStashBenchmark, with its report, that many seconds after it has finished.
	// Default: never.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// BenchmarkPreset is a published matrix.
//
// +kubebuilder:validation:Enum=livestash-2026
type BenchmarkPreset string

// PresetLiveStash2026 is the matrix of LiveStash's published test.
const PresetLiveStash2026 BenchmarkPreset = "livestash-2026"

// BenchmarkScenario is what the users of a run do.
//
// +kubebuilder:validation:Enum=Visits;Reconnect;Script;Requests;Rooms
type BenchmarkScenario string

// The scenarios.
const (
	// ScenarioVisits: users come, leave, and come back once, before or after their stash has expired.
	ScenarioVisits BenchmarkScenario = "Visits"
	// ScenarioReconnect: users stay, and reconnect over and over.
	ScenarioReconnect BenchmarkScenario = "Reconnect"
	// ScenarioScript: what spec.script says.
	ScenarioScript BenchmarkScenario = "Script"
	// ScenarioRequests: connections ask a JSON API, again and again, or so many times a second.
	ScenarioRequests BenchmarkScenario = "Requests"
	// ScenarioRooms: users are in rooms, and say something now and then.
	ScenarioRooms BenchmarkScenario = "Rooms"
)

// BenchmarkScript is a k6 script of the user's own.
type BenchmarkScript struct {
	// configMapRef is the ConfigMap key that holds the script.
	// +required
	ConfigMapRef ConfigMapKeyReference `json:"configMapRef"`
}

// ConfigMapKeyReference is one key of a ConfigMap in the namespace of the object that names it.
type ConfigMapKeyReference struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// key in the ConfigMap's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key"`
}

// BenchmarkPayload is what each user has stashed.
type BenchmarkPayload struct {
	// keys of the map that the application stashes beside its counter (STASH_PAYLOAD_KEYS). 150 are 5,556 bytes as an
	// Erlang term. Default 150.
	// +kubebuilder:default=150
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Keys *int32 `json:"keys,omitempty"`

	// onPage says whether the page shows what it stashes (STASH_PAYLOAD_ON_PAGE), and so sends it with each render, as that of the
	// published test does: with 150 keys about 10 kB each time. Default: Shown with preset livestash-2026, else Hidden.
	// +optional
	OnPage BenchmarkPayloadOnPage `json:"onPage,omitempty"`
}

// BenchmarkPayloadOnPage says whether the page shows what it stashes.
//
// +kubebuilder:validation:Enum=Shown;Hidden
type BenchmarkPayloadOnPage string

// Whether the page shows what it stashes.
const (
	PayloadShown  BenchmarkPayloadOnPage = "Shown"
	PayloadHidden BenchmarkPayloadOnPage = "Hidden"
)

// BenchmarkRouting is how users reach the pods.
//
// +kubebuilder:validation:Enum=RoundRobin;Service;Proxy
type BenchmarkRouting string

// The ways to the pods.
const (
	// RoutingRoundRobin: each connection to the next pod, by its own name.
	RoutingRoundRobin BenchmarkRouting = "RoundRobin"
	// RoutingService: through the fleet's client Service.
	RoutingService BenchmarkRouting = "Service"
	// RoutingProxy: through an nginx.
	RoutingProxy BenchmarkRouting = "Proxy"
)

// BenchmarkProxy is an nginx that the operator runs for each run of a benchmark, in one pod beside those of target.template: its imagePullPolicy, its
// imagePullSecrets, and the nodeSelector and tolerations of its podTemplate are the proxy's, too.
type BenchmarkProxy struct {
	// image with nginx 1.20 or later, and a sh, which runs as user 65534 without a file system that can be written: for example
	// docker.io/nginxinc/nginx-unprivileged:1.29-alpine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="proxy.image must be the reference of an nginx image in ASCII and without spaces, for example docker.io/nginxinc/nginx-unprivileged:1.29-alpine"
	// +required
	Image string `json:"image"`

	// resources are the requests and limits of nginx. Default: requests of 100m of CPU and 128Mi of memory, and no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// BenchmarkRunner is what runs k6.
//
// +kubebuilder:validation:Enum=Auto;K6Operator;Job
type BenchmarkRunner string

// The runners.
const (
	// RunnerAuto: K6Operator where its kind TestRun is served, else Job.
	RunnerAuto BenchmarkRunner = "Auto"
	// RunnerK6Operator: a TestRun of k6-operator.
	RunnerK6Operator BenchmarkRunner = "K6Operator"
	// RunnerJob: an indexed Job.
	RunnerJob BenchmarkRunner = "Job"
)

// BenchmarkRunnerTemplate are settings of the runners' pods.
type BenchmarkRunnerTemplate struct {
	// image with k6 and the scenarios. Default: the operator's setting, the image that is released with it.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]+$')",message="image must be the reference of a k6 image in ASCII and without spaces, for example ghcr.io/livestash-dev/livestash-k6:0.1.0"
	// +optional
	Image string `json:"image,omitempty"`

	// imagePullPolicy says when the kubelet pulls the image: Always, IfNotPresent or Never.
	// Default: Kubernetes' own (Always for the tag latest, else IfNotPresent).
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets names the Secrets, in the namespace of the LiveStashBenchmark, with registry credentials.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// resources are the requests and limits of each runner. k6 that is short of CPU measures its own queue: give a runner
	// a whole core, and 200 KiB of memory for each user. Default none.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// nodeSelector keeps the runners on nodes with these labels, for example away from the fleet's.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations let the runners on nodes with taints.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// BenchmarkRemoteWrite is a Prometheus that takes metrics.
type BenchmarkRemoteWrite struct {
	// url of the remote-write endpoint, for example http://prometheus-operated.monitoring:9090/api/v1/write.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^ \\t\\n]+$')",message="url must start with http:// or https://, for example http://prometheus-operated.monitoring:9090/api/v1/write"
	// +required
	URL string `json:"url"`
}
