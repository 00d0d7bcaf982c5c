package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The size of a chart of round trips, in the units of the other charts.
const (
	latencyLeft = 104.0
	latencyRow  = 24.0
	latencyTop  = 6.0
)

// latency is a round trip with one variant: the means of its timed runs, in ms.
type latency struct {
	variant       variant
	p50, p95, end float64
	// low and high hold the p95.
	low, high float64
	// runs are how many there are. Of several low and high are known.
	runs int
}

// latencies of a load, by variant, and the variants that have none.
func latencies(l load, name string) (found []latency, missing []string) {
	for _, runs := range l.byVariant() {
		timed := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { _, known := timedP95(name)(r); return !known })
		if len(timed.values(timedP95(name))) == 0 {
			why := "no such times"
			switch {
			case slices.ContainsFunc(timed, func(r Run) bool { return !r.hasQuantile(name, 0.95) }):
				why = "more than 5 % " + never + " were"
			case slices.ContainsFunc(runs, func(r Run) bool { return r.ClientBound }):
				why = "the client was the bottleneck"
			case !runs[0].sound():
				why = strings.ToLower(runs[0].Verdict.String())
			}
			missing = append(missing, runs.name()+" ("+why+")")
			continue
		}
		of := func(figure func(Duration) float64) []float64 {
			return timed.values(func(r Run) (float64, bool) { return figure(r.Durations[name]), true })
		}
		p95 := of(func(d Duration) float64 { return d.P95 })
		one := latency{variant: l.variantOf(runs), p50: mean(of(func(d Duration) float64 { return d.P50 })), p95: mean(p95), runs: len(timed)}
		one.end = max(one.p95, mean(of(func(d Duration) float64 {
			if d.Count < fewest {
				return d.P99AtLeast
			}
			return d.P99
		})))
		one.low, one.high = slices.Min(p95), slices.Max(p95)
		if interval, known := intervalOf(p95); known {
			one.low, one.high = max(0, interval.low), interval.high
		}
		found = append(found, one)
	}
	return found, missing
}

// latencyChart draws a round trip of a load: for each variant a band from its p50 to its p99, its mark at the p95, and whiskers
// where several runs say how sure that is.
func latencyChart(name string, all []latency) markup {
	if len(all) == 0 {
		return ""
	}
	most := 0.0
	for _, l := range all {
		most = max(most, l.end, l.high)
	}
	step := niceStep(most, 5, false)
	top := step * max(1, math.Ceil(most/step-1e-9))
	bottom := latencyTop + latencyRow*float64(len(all))
	x := func(v float64) float64 { return latencyLeft + v/top*(plotRight-latencyLeft) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="latency" viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, bottom+36, html.EscapeString(name))
	for _, v := range ticks(top, step) {
		fmt.Fprintf(&b, `<path class="grid" d="M%s %gV%g"/><text class="x" x="%s" y="%g">%s</text>`,
			pixel(x(v)), latencyTop, bottom, pixel(x(v)), bottom+15, significant(v))
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%g %gH%g"/><text class="x" x="%g" y="%g">ms</text>`, latencyLeft, bottom, plotRight, (latencyLeft+plotRight)/2, bottom+31)
	for i, l := range all {
		y := latencyTop + latencyRow*(float64(i)+0.5)
		fmt.Fprintf(&b, `<text class="y" x="%g" y="%s">%s</text><g class="line %s"><path class="band" d="M%s %sH%s"/>`,
			latencyLeft-10, pixel(y+3.5), html.EscapeString(l.variant.name), l.variant.class(), pixel(x(l.p50)), pixel(y), pixel(x(l.end)))
		if l.runs > 1 {
			fmt.Fprintf(&b, `<path class="whisker" d="M%s %sv12m0-6H%sm0-6v12"/>`, pixel(x(l.low)), pixel(y-6), pixel(x(l.high)))
		}
		fmt.Fprintf(&b, `<path class="mark" d="%s"/></g>`, l.variant.mark(x(l.p95), y))
	}
	b.WriteString("</svg>")
	return markup(b.String())
}

// whiskers says what those of a load's charts are.
func whiskers(l load) string {
	fewest, most := math.MaxInt, 0
	for _, trip := range l.layout().trips {
		found, _ := latencies(l, trip.duration)
		for _, one := range found {
			fewest, most = min(fewest, one.runs), max(most, one.runs)
		}
	}
	switch {
	case most < 2:
		return "One run each, so nothing says how much of a difference is chance."
	case fewest < fewestRounds:
		return fmt.Sprintf("Whiskers: the lowest and the highest p95 of up to %d runs.", most)
	}
	return fmt.Sprintf("Whiskers: the 95 %% interval of the p95, from %d runs at least.", fewest)
}
