package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
)

// figure is a chart: a sample over the time of a run.
type figure struct {
	// series is the key of Run.Samples, and of the published figures.
	series string
	title  string
	unit   string
	// perPod is true for a value that the published test gives as the mean over its machines.
	perPod bool
}

// figures are the memory as a whole, which was not published, and the published charts in the published order.
var figures = []figure{
	{SeriesMemory, "Total memory of the virtual machines", "bytes", false},
	{SeriesPodMemory, "Total memory of the pods, as their nodes count it", "bytes", false},
	{SeriesProcesses, "Process count", "1", true},
	{SeriesMemoryBinary, "Binary memory", "bytes", true},
	{SeriesMemoryETS, "ETS memory", "bytes", true},
	{SeriesHTTPOut, "To the clients (HTTP and WebSocket out)", "bytes/s", false},
	{SeriesHTTPIn, "From the clients (HTTP and WebSocket in)", "bytes/s", false},
	{SeriesDistributionIn, "Between the nodes (distribution in)", "bytes/s", false},
	{SeriesRedisIn, "From Redis (in)", "bytes/s", false},
	{SeriesRedisOut, "To Redis (out)", "bytes/s", false},
	{SeriesCPU, "CPU", "cores", true},
}

// trip is a duration of the published test.
type trip struct {
	// duration is the key of Run.Durations, published the name of the same in the published figures.
	duration, published, title string
}

// trips are what the published test calls first render, stash and reconnect: from a message to its reply. It makes no difference between
// returns within the TTL and later ones.
var trips = []trip{
	{"join", "first_render", "First render"},
	{"stash", "stash", "Stash"},
	{"any_rejoin", "reconnect", "Reconnect, in time or late"},
}

// quantiles of the round-trip table, and how to read them.
var quantiles = []struct {
	name string
	at   float64
	of   func(Duration) float64
}{
	{"p50", 0.5, func(d Duration) float64 { return d.P50 }},
	{"p95", 0.95, func(d Duration) float64 { return d.P95 }},
	{"p99", 0.99, func(d Duration) float64 { return d.P99 }},
}

// never stands in place of a quantile where more than the rest came to no good end.
const never = "never"

// hasQuantile is whether one of the run's durations has a quantile that means something.
func (r Run) hasQuantile(name string, quantile float64) bool {
	return r.Counts == nil || r.Counts.HasQuantile(name, quantile)
}

// load is the runs with the same users and times: what can be compared.
type load struct {
	spec          Spec
	users, rate   int
	ttl, duration float64
	runs          []Run
	// variants of the whole report, by their names.
	variants map[string]variant
}

// newLoad is that of a run, without the runs of others.
func newLoad(spec Spec, run Run) load {
	return load{spec: spec, users: run.Users, rate: run.Rate, ttl: run.TTLSeconds, duration: run.DurationSeconds}
}

// layout is how its figures are shown.
func (l load) layout() *layout { return layoutOf(l.spec) }

// variantOf is what runs of the load have and others have not.
func (l load) variantOf(runs series) variant { return l.variants[runs.name()] }

// sameAs is whether two loads are the same one.
func (l load) sameAs(other load) bool {
	return l.users == other.users && l.rate == other.rate && l.ttl == other.ttl && l.duration == other.duration
}

func (l load) title() string { return l.layout().title(l) }

// sound are the runs whose figures mean something.
func (l load) sound() []Run {
	return slices.DeleteFunc(slices.Clone(l.runs), func(r Run) bool { return !r.sound() })
}

// sound is whether the run's counts and samples mean something, timed whether its times do, too: a client that is the bottleneck
// measures itself.
func (r Run) sound() bool {
	return r.timed() || r.ClientBound
}

// label tells a run from the others of its load: a variant, and of those after the first their round.
func (r Run) label() string {
	if r.Round > 1 {
		return fmt.Sprintf("%s, round %d", r.variant(), r.Round)
	}
	return r.variant()
}

// series are the runs of one variant under one load.
type series []Run

func (s series) name() string { return s[0].variant() }

func (s series) adapter() string { return s[0].Adapter }

// isAdapter is whether the variant is one adapter of several, and nothing else.
func (s series) isAdapter() bool { return s.name() == s.adapter() }

// values are a figure of the runs that have it. None when it is NaN in one: the mean of the others would leave out the worst.
func (s series) values(of func(Run) (float64, bool)) []float64 {
	var values []float64
	for _, run := range s {
		value, known := of(run)
		if known && math.IsNaN(value) {
			return nil
		}
		if known {
			values = append(values, value)
		}
	}
	return values
}

// repeated are the sound runs by variant, in the order of the variants.
func (l load) repeated() []series { return seriesOf(l.sound()) }

// byVariant are all runs by variant, in the same order.
func (l load) byVariant() []series { return seriesOf(l.runs) }

func seriesOf(runs []Run) []series {
	var all []series
	for _, run := range runs {
		if n := len(all); n > 0 && all[n-1].name() == run.variant() {
			all[n-1] = append(all[n-1], run)
			continue
		}
		all = append(all, series{run})
	}
	return all
}

// base is the name of the variant that the others are compared with.
func (l load) base() string { return cmp.Or(l.spec.Baseline, withoutLiveStash) }

// withBase says with what the baseline was measured.
func (l load) withBase() string {
	if l.base() == withoutLiveStash {
		return "without LiveStash"
	}
	return "with " + l.base()
}

// baseline are the sound runs of that variant; none when there is no such run.
func (l load) baseline() series {
	for _, runs := range l.repeated() {
		if runs.name() == l.base() {
			return runs
		}
	}
	return nil
}

// worst is the worst verdict of the runs that have ended.
func worst(runs series) Verdict {
	found := runs[0].Verdict
	for _, run := range runs {
		if severity[run.Verdict] > severity[found] {
			found = run.Verdict
		}
	}
	return found
}

var severity = map[Verdict]int{VerdictPassed: 1, VerdictFailed: 2, VerdictErrored: 3}

func (r Run) timed() bool {
	return r.Verdict == VerdictPassed || r.Verdict == VerdictFailed
}

// once is a duration from when the step began, as the published test counts it, not from when it should have begun.
func (r Run) once(name string) Duration {
	if service, differs := r.Durations[name+serviceSuffix]; differs {
		return service
	}
	return r.Durations[name]
}

// serviceSuffix is that of a duration's counterpart from when the step began.
const serviceSuffix = "_service"

// loads in the order of the runs; in each, the runs in the order of the variants.
func loads(r Report) []load {
	variants := variantsOf(r)
	var all []load
	for _, run := range r.Runs {
		i := slices.IndexFunc(all, func(l load) bool {
			return l.sameAs(newLoad(r.Spec, run))
		})
		if i < 0 {
			i = len(all)
			one := newLoad(r.Spec, run)
			one.variants = variants
			all = append(all, one)
		}
		all[i].runs = append(all[i].runs, run)
	}
	for _, l := range all {
		slices.SortStableFunc(l.runs, func(a, b Run) int { return cmp.Compare(variants[a.variant()].look, variants[b.variant()].look) })
	}
	return all
}

// comparison is one figure of one load, ours beside the published one.
type comparison struct {
	title string
	// cells, one for each run of the load.
	cells []compared
}

type compared struct {
	label           string
	ours, published string
}

// comparisons of a load with the published figures. Empty when there is none for it.
func comparisons(l load) []comparison {
	var rows []comparison
	for _, t := range trips {
		for _, q := range quantiles {
			row := comparison{title: t.title + ", " + q.name}
			for _, run := range l.sound() {
				d := run.once(t.duration)
				ours := ""
				if d.Count > 0 && run.timed() {
					ours = inUnit(q.of(d), "ms")
				}
				row.add(l, run, t.published+"_"+q.name, ours)
			}
			rows = append(rows, row)
		}
	}
	for _, f := range figures {
		row := comparison{title: f.title + ", " + f.peakTitle()}
		for _, run := range l.sound() {
			ours := ""
			if peak, ok := f.peak(run); ok {
				ours = inUnit(peak, f.unit)
			}
			row.add(l, run, f.series, ours)
		}
		rows = append(rows, row)
	}
	return slices.DeleteFunc(rows, func(c comparison) bool {
		return !slices.ContainsFunc(c.cells, func(c compared) bool { return c.published != "" })
	})
}

// rate is whether a figure is counted, and its value how much it grows in a second.
func (f figure) rate() bool { return f.unit == "bytes/s" || f.unit == "cores" }

// peakTitle says what the published test has of a figure.
func (f figure) peakTitle() string {
	title := "peak"
	if f.rate() {
		title += " over a minute"
	}
	if f.perPod {
		title += ", mean of the pods"
	}
	return title
}

// peak of a run's figure, as the published test has it.
func (f figure) peak(run Run) (float64, bool) {
	s, ok := run.Samples[f.series]
	peak := s.Peak
	ok = ok && run.SampledSeconds == nil
	if f.rate() {
		ok = ok && s.PeakMinute != nil
		peak = ptr.Deref(s.PeakMinute, 0)
	}
	if f.perPod {
		ok = ok && run.Replicas > 0
		peak /= float64(max(1, run.Replicas))
	}
	return peak, ok
}

func (c *comparison) add(l load, run Run, name, ours string) {
	theirs := ""
	if q, ok := published(name, l.spec, run); ok {
		theirs = inUnit(q.value, q.unit)
	}
	c.cells = append(c.cells, compared{run.label(), ours, theirs})
}

// fact is a name and a value.
type fact struct{ Name, Value string }

// head is what decides over every figure: when, on what, and with which versions.
func head(r Report) []fact {
	when := moment(r.StartedAt)
	if !r.StartedAt.IsZero() && !r.FinishedAt.IsZero() {
		when += " to "
		if r.StartedAt.UTC().Format(time.DateOnly) == r.FinishedAt.UTC().Format(time.DateOnly) {
			when += r.FinishedAt.UTC().Format("15:04 UTC")
		} else {
			when += moment(r.FinishedAt)
		}
	}
	var versions []string
	for _, version := range []string{prefixed("LiveStash operator ", r.Versions.Operator), prefixed("Kubernetes ", r.Versions.Kubernetes), lastPart(r.Versions.FleetImage), lastPart(r.Versions.K6Image)} {
		if version != "" {
			versions = append(versions, version)
		}
	}
	return known([]fact{{"When", when}, {"Hardware", hardware(r.Machine)}, {"Versions", strings.Join(versions, ", ")}})
}

// hardware is all nodes in a line, equal ones together.
func hardware(m Machine) string {
	var kinds []string
	count := map[string]int{}
	for _, n := range m.Nodes {
		kind := size(n)
		if count[kind]++; count[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		if count[kind] == 1 {
			kinds[i] = "1 node of " + kind
		} else {
			kinds[i] = fmt.Sprintf("%d nodes of %s each", count[kind], kind)
		}
	}
	return listed(kinds)
}

func size(n Node) string {
	unit := " CPUs"
	if n.CPU == 1 {
		unit = " CPU"
	}
	return significant(n.CPU) + unit + " and " + inUnit(float64(n.Memory), "bytes")
}

// lastPart is an image without its registry.
func lastPart(image string) string { return image[strings.LastIndex(image, "/")+1:] }

// facts about the benchmark and where it ran, without those that are not known.
func facts(r Report) []fact {
	all := []fact{
		{"Benchmark", strings.Trim(r.Namespace+"/"+r.Name, "/")},
		{"Started", moment(r.StartedAt)},
		{"Finished", moment(r.FinishedAt)},
		{"Preset", r.Spec.Preset},
		{"Scale", scale(r.Spec.Scale)},
		{"Scenario", r.Spec.Scenario},
		{"Asked", r.Spec.Asked},
		{"Target", r.Spec.Target},
		{"Routing", r.Spec.Routing},
		{"Runner", r.Spec.Runner},
		{"k6's own limit", nearestCeiling(r)},
		{"Payload", payload(r.Spec)},
		{"Thresholds", thresholds(r.Spec.Thresholds)},
		{"Operator", r.Versions.Operator},
		{"k6 image", r.Versions.K6Image},
		{"Fleet image", r.Versions.FleetImage},
		{"Kubernetes", r.Versions.Kubernetes},
	}
	for _, v := range r.Spec.Variants {
		all = append(all, fact{"Variant " + v.Name, v.words()})
	}
	for _, n := range r.Machine.Nodes {
		all = append(all, fact{"Node " + n.Name, size(n) + prefixed(", kubelet ", n.Kubelet)})
	}
	return known(all)
}

// words are what sets a variant apart.
func (v Variant) words() string {
	if v.Server == nil {
		return "adapter " + v.Adapter + prefixed(", ", v.Patch)
	}
	words := "server " + v.Server.Image + prefixed(", ", v.Server.Protocol)
	if v.Server.Redis {
		words += ", with Redis"
	}
	if v.Server.Replicas > 1 {
		words += fmt.Sprintf(", pods: %d", v.Server.Replicas)
	}
	return words
}

func known(all []fact) []fact {
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" || f.Value == "–" })
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func scale(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("1:%d", n)
}

func payload(s Spec) string {
	if s.PayloadKeys == 0 {
		return ""
	}
	words := grouped(int64(s.PayloadKeys)) + " keys for each user"
	if s.PayloadOnPage == payloadShown {
		words += ", shown on the page"
	}
	return words
}

func thresholds(all map[string]string) string {
	var words []string
	for name, value := range all {
		words = append(words, name+" "+value)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// verdict in words, also for what has none yet.
func (v Verdict) String() string {
	if v == "" {
		return "Not finished"
	}
	return string(v)
}

func title(r Report) string {
	if r.Name == "" {
		return "LiveStash benchmark"
	}
	return "LiveStash benchmark " + r.Name
}
