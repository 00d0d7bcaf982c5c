package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostTold are how many limits that do not hold a message names.
const mostTold = 3

// Comparison is what came out of holding a report against an earlier one.
type Comparison struct {
	// With is the ConfigMap of the earlier report, and StartedAt when its first run began; or the name of the baseline.
	With      string    `json:"with"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Verdict is Passed when every limit holds, Failed when one does not, and Errored when the reports cannot be compared.
	Verdict Verdict `json:"verdict"`
	// Message says which limits do not hold, or why the reports cannot be compared.
	Message string `json:"message,omitempty"`
	// Figures are those that were compared, in the order of the runs.
	Figures []Compared `json:"figures,omitempty"`
}

// Compared is one figure of one variant under one load, in this report and in the earlier one.
type Compared struct {
	Variant    string  `json:"variant"`
	Adapter    string  `json:"adapter"`
	Users      int     `json:"users"`
	TTLSeconds float64 `json:"ttlSeconds"`
	// Figure is its name in spec.compareWith.atMost.
	Figure string `json:"figure"`
	// Unit is bytes, s or ms.
	Unit string `json:"unit"`
	// Now and Before are the means over the runs, Rounds the number of runs on the side that has fewer.
	Now    float64 `json:"now"`
	Before float64 `json:"before"`
	Rounds int     `json:"rounds"`
	// AtMost is the limit as a factor of Before, Holds whether it holds.
	AtMost float64 `json:"atMost"`
	Holds  bool    `json:"holds"`
}

// comparables are the figures that can have a limit, by its name in the specification, in the order in which they are told.
var comparables = []struct {
	name, unit, words string
	of                func(Run) (float64, bool)
}{
	{"memory", "bytes", "memory at its peak", memoryPeak},
	{"cpu", "s", "CPU time", cpuTotal},
	{"firstRender", "ms", "p95 of first renders", timedP95("first_render")},
	{"stash", "ms", "p95 of stashes", timedP95("stash")},
	{"reconnect", "ms", "p95 of returns", timedP95("reconnect")},
	{"request", "ms", "p95 of requests", timedP95(DurationRequest)},
	{"delivery", "ms", "p95 of deliveries", timedP95(DurationDelivery)},
}

// Compare holds the figures of a report against those of an earlier one, which was in a ConfigMap of that name. Limits are factors by
// the names of the figures.
func Compare(now, before Report, with string, limits map[string]float64) Comparison {
	c := Comparison{With: with, StartedAt: before.StartedAt, Verdict: VerdictPassed}
	if why := incomparable(now, before); why != "" {
		return c.errored(why)
	}
	if now.Spec.hasServers() != before.Spec.hasServers() {
		return c.errored("one of the two compares servers, whose memory and CPU are those of their pods, and the other fleets alone")
	}
	now, before = measuredAlike(now), measuredAlike(before)
	groups := alikeRuns(now)
	if len(groups) == 0 {
		return c.errored("no run of this benchmark is sound")
	}
	earlier := alikeRuns(before)
	var broken []string
	for _, runs := range groups {
		place := slices.IndexFunc(earlier, func(other series) bool { return sameLoad(runs[0], other[0]) })
		if place < 0 {
			return c.errored(fmt.Sprintf("it has no sound run with %s", loadOf(now.Spec, runs[0])))
		}
		more, unmeasured := c.hold(now.Spec, runs, earlier[place], limits, "there")
		if unmeasured != "" {
			return c.errored(unmeasured)
		}
		broken = append(broken, more...)
	}
	return c.told("comparison", broken)
}

// Against holds the variants of a report against its baseline under the same load. Limits are factors by the names of the figures.
func Against(r Report, limits map[string]float64) Comparison {
	r = measuredAlike(r)
	base := cmp.Or(r.Spec.Baseline, withoutLiveStash)
	c := Comparison{With: base, StartedAt: r.StartedAt, Verdict: VerdictPassed}
	groups := alikeRuns(r)
	var broken []string
	for _, run := range r.Runs {
		if run.variant() != base && !run.sound() {
			return c.errored(fmt.Sprintf("%s has no sound run of its own", run.Name))
		}
	}
	for _, runs := range groups {
		if runs.name() == base {
			continue
		}
		place := slices.IndexFunc(groups, func(other series) bool { return other.name() == base && sameSize(runs[0], other[0]) })
		if place < 0 {
			return c.errored(fmt.Sprintf("it has no sound run under the load of %s", runs[0].Name))
		}
		more, unmeasured := c.hold(r.Spec, runs, groups[place], limits, "with "+base)
		if unmeasured != "" {
			return c.errored(unmeasured)
		}
		broken = append(broken, more...)
	}
	return c.told("against", broken)
}

// hold holds runs against others, and returns the limits that do not hold, in words, or what was not measured in both.
func (c *Comparison) hold(spec Spec, runs, others series, limits map[string]float64, where string) (broken []string, unmeasured string) {
	for _, figure := range comparables {
		limit, wanted := limits[figure.name]
		if !wanted {
			continue
		}
		for _, run := range slices.Concat(runs, others) {
			if run.timed() && !run.hasQuantile(figure.name, 0.95) {
				return nil, fmt.Sprintf("there is no %s with %s: more than 5 %% came to no good end in %s", figure.words, loadOf(spec, runs[0]), run.Name)
			}
		}
		mine, theirs := runs.values(figure.of), others.values(figure.of)
		if len(mine) == 0 || len(theirs) == 0 || mean(theirs) == 0 {
			return nil, fmt.Sprintf("%s was not measured in both with %s: remove the limit %s", figure.words, loadOf(spec, runs[0]), figure.name)
		}
		one := Compared{
			Variant: runs.name(), Adapter: runs.adapter(), Users: runs[0].Users, TTLSeconds: runs[0].TTLSeconds, Figure: figure.name, Unit: figure.unit,
			Now: mean(mine), Before: mean(theirs), Rounds: min(len(mine), len(theirs)), AtMost: limit, Holds: !over(mine, theirs, limit),
		}
		c.Figures = append(c.Figures, one)
		if !one.Holds {
			broken = append(broken, fmt.Sprintf("%s: %s %s, and %s %s: %s times as much, at most %s times is allowed",
				loadOf(spec, runs[0]), figure.words, inUnitOf(one.Now, one.Unit), inUnitOf(one.Before, one.Unit), where, significant(one.Now/one.Before), significant(limit)))
		}
	}
	return broken, ""
}

// told is the comparison with what does not hold. The field of the report has all of it.
func (c Comparison) told(field string, broken []string) Comparison {
	if len(broken) > mostTold {
		broken = append(broken[:mostTold], fmt.Sprintf("%d more, see %s in report.json", len(broken)-mostTold, field))
	}
	if len(broken) > 0 {
		c.Verdict, c.Message = VerdictFailed, fmt.Sprintf("Compared with %s: %s.", c.With, strings.Join(broken, "; "))
	}
	return c
}

// ComparableFigures are the names of the figures that can have a limit.
func ComparableFigures() []string {
	names := make([]string, 0, len(comparables))
	for _, figure := range comparables {
		names = append(names, figure.name)
	}
	return names
}

// sentence is the comparison in words.
func (c Comparison) sentence() string {
	if c.Verdict == VerdictPassed {
		return fmt.Sprintf("Compared with %s, of %s: all limits of compareWith hold (%d).", c.With, moment(c.StartedAt), len(c.Figures))
	}
	return c.Message
}

// errored is the comparison that cannot be made.
func (c Comparison) errored(why string) Comparison {
	c.Verdict, c.Message, c.Figures = VerdictErrored, fmt.Sprintf("This cannot be compared with %s: %s.", c.With, why), nil
	return c
}

// over is whether figures are more than limit times the others: for certain where there are enough for that, else by their means.
func over(mine, theirs []float64, limit float64) bool {
	a, known := intervalOf(mine)
	b, too := intervalOf(theirs)
	if known && too {
		return a.low > limit*b.high
	}
	return mean(mine) > limit*mean(theirs)
}

// incomparable says what two reports differ in so that their figures mean different things. Empty: nothing.
func incomparable(now, before Report) string {
	for _, both := range []struct{ what, now, before string }{
		{"scenario", now.Spec.Scenario, before.Spec.Scenario},
		{"requests or rooms", now.Spec.Asked, before.Spec.Asked},
		{"routing", now.Spec.Routing, before.Spec.Routing},
		{"payload", payload(now.Spec), payload(before.Spec)},
		{"machines", machines(now), machines(before)},
	} {
		if both.now != both.before {
			return fmt.Sprintf("its %s: %.80s, and here: %s", both.what, cmp.Or(both.before, "not known"), cmp.Or(both.now, "not known"))
		}
	}
	return ""
}

// machines are the sizes of the nodes, each once.
func machines(r Report) string {
	var sizes []string
	for _, node := range r.Machine.Nodes {
		sizes = append(sizes, significant(node.CPU)+" CPUs")
	}
	slices.Sort(sizes)
	return listed(slices.Compact(sizes))
}

// alikeRuns are the sound runs by variant and load.
func alikeRuns(r Report) []series {
	var all []series
	for _, run := range r.Runs {
		if !run.sound() {
			continue
		}
		place := slices.IndexFunc(all, func(other series) bool { return sameLoad(run, other[0]) })
		if place < 0 {
			all = append(all, series{run})
			continue
		}
		all[place] = append(all[place], run)
	}
	return all
}

func sameLoad(a, b Run) bool {
	if !slices.EqualFunc(a.Events, b.Events, func(one, other Event) bool { return one.Kind == other.Kind }) {
		return false
	}
	return a.variant() == b.variant() && a.Adapter == b.Adapter && a.Replicas == b.Replicas && sameSize(a, b)
}

// sameSize is whether two runs had as many users, for as long.
func sameSize(a, b Run) bool {
	return a.Users == b.Users && a.Rate == b.Rate && a.TTLSeconds == b.TTLSeconds && a.DurationSeconds == b.DurationSeconds && a.RampSeconds == b.RampSeconds
}

func loadOf(spec Spec, run Run) string {
	text := fmt.Sprintf("%s, %s, %s with a ramp of %s", run.variant(), newLoad(spec, run).title(), span(run.DurationSeconds), span(run.RampSeconds))
	if run.Replicas > 0 {
		text += fmt.Sprintf(", pods: %d", run.Replicas)
	}
	return text
}

func inUnitOf(value float64, unit string) string {
	if unit == "s" {
		return significant(value) + " s"
	}
	return inUnit(value, unit)
}
