package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// The size of a chart in its own units, which are about a pixel of a phone: text in it is readable there.
const (
	chartWidth  = 360.0
	chartHeight = 216.0
	plotLeft    = 58.0
	plotRight   = chartWidth - 14
	plotTop     = 10.0
	plotBottom  = chartHeight - 34
	// markEvery is the number of points from one marker to the next.
	markEvery = 15
	// mostTicks bounds those of an axis, whatever its figures are. Axes have at most seven.
	mostTicks = 20
	day       = 86400
)

// line is one variant's line in a chart.
type line struct {
	variant variant
	failed  bool
	points  [][2]float64
}

// chart draws the lines over one pair of axes, and a band for each of the events. It returns nothing for lines without points.
//
// Variants differ in colour, in the shape of their marks, and in the order of the legend: no one has to tell colours apart.
func chart(name, unit string, lines []line, events ...Event) markup {
	lines = believed(lines)
	var tMax, vMax float64
	var n int
	for _, l := range lines {
		for _, p := range l.points {
			tMax, vMax = max(tMax, p[0]), max(vMax, p[1])
			n++
		}
	}
	if n == 0 {
		return ""
	}
	vStep, tStep := niceStep(vMax, 5, unit == "1"), niceTime(tMax)
	vTop := vStep * max(1, math.Ceil(vMax/vStep-1e-9))
	tMax = max(tMax, 1)
	x := func(t float64) float64 { return plotLeft + t/tMax*(plotRight-plotLeft) }
	y := func(v float64) float64 { return plotBottom - v/vTop*(plotBottom-plotTop) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, chartWidth, chartHeight, html.EscapeString(name))
	for _, e := range events[:min(len(events), mostTicks)] {
		if plausible.Seconds(e.AtSeconds) && plausible.Seconds(e.TookSeconds) && e.AtSeconds < tMax {
			from, to := x(e.AtSeconds), x(min(tMax, e.AtSeconds+e.TookSeconds))
			fmt.Fprintf(&b, `<rect class="event" x="%s" y="%g" width="%s" height="%g"/>`, pixel(from), plotTop, pixel(max(1, to-from)), plotBottom-plotTop)
		}
	}
	for _, v := range ticks(vTop, vStep) {
		fmt.Fprintf(&b, `<path class="grid" d="M%g %sH%g"/><text class="y" x="%g" y="%s">%s</text>`,
			plotLeft, pixel(y(v)), plotRight, plotLeft-8, pixel(y(v)+3.5), tick(v, vTop, unit))
	}
	for _, t := range ticks(tMax, tStep) {
		fmt.Fprintf(&b, `<path class="tick" d="M%s %gv4"/><text class="x" x="%s" y="%g">%s</text>`,
			pixel(x(t)), plotBottom, pixel(x(t)), plotBottom+15, timeTick(t, tStep))
	}
	fmt.Fprintf(&b, `<path class="axis" d="M%g %gH%g"/><text class="x" x="%g" y="%g">time into the run (%s)</text>`,
		plotLeft, plotBottom, plotRight, (plotLeft+plotRight)/2, chartHeight-4, timeUnit(tStep))
	for _, l := range lines {
		drawLine(&b, l, x, y)
	}
	b.WriteString("</svg>")
	return markup(b.String())
}

// believed are the lines without the points that no run has: who wrote them may have written anything.
func believed(lines []line) []line {
	sound := slices.Clone(lines)
	for i := range sound {
		sound[i].points = slices.DeleteFunc(slices.Clone(sound[i].points), func(p [2]float64) bool {
			return !plausible.Seconds(p[0]) || !plausible.Figure(p[1])
		})
	}
	return sound
}

// ticks are the places of an axis, from 0 to its end. They are counted, not added up: an end that a step does not move would never be reached.
func ticks(end, step float64) []float64 {
	places := []float64{0}
	for n := 1.0; n < mostTicks && n*step <= end*1.0001; n++ {
		places = append(places, n*step)
	}
	return places
}

func drawLine(b *strings.Builder, l line, x, y func(float64) float64) {
	if len(l.points) == 0 {
		return
	}
	class := "line " + string(l.variant.class())
	if l.failed {
		class += " failed"
	}
	fmt.Fprintf(b, `<g class="%s"><path class="trace" d="`, class)
	trace(b, l.points, x, y)
	b.WriteString(`"/><path class="mark" d="`)
	// The marks of different variants start apart, so that those of equal lines do not hide each other.
	for i := min(l.variant.look%len(adapterOrder)*markEvery/len(adapterOrder), len(l.points)-1); i < len(l.points); i += markEvery {
		b.WriteString(l.variant.mark(x(l.points[i][0]), y(l.points[i][1])))
	}
	b.WriteString(`"/></g>`)
}

// trace writes the data of a path, short: from each point to the next in whole steps of half a unit.
func trace(b *strings.Builder, points [][2]float64, x, y func(float64) float64) {
	var last [2]int
	for i, p := range points {
		next := [2]int{int(math.Round(2 * x(p[0]))), int(math.Round(2 * y(p[1])))}
		if i == 0 {
			fmt.Fprintf(b, "M%d %dl0 0", next[0], next[1])
		} else {
			for _, step := range []int{next[0] - last[0], next[1] - last[1]} {
				if step >= 0 {
					b.WriteByte(' ')
				}
				b.WriteString(strconv.Itoa(step))
			}
		}
		last = next
	}
}

// legendMark is the sample of a line for a legend.
func legendMark(v variant) markup {
	return markup(fmt.Sprintf(
		`<svg class="key" viewBox="0 0 28 12" aria-hidden="true"><g class="line %s"><polyline points="0,6 28,6"/><path class="mark" d="%s"/></g></svg>`,
		v.class(), v.mark(14, 6)))
}

// niceStep is 1, 2 or 5 times a power of ten, so that at most n steps reach the largest value. Counts have whole steps.
func niceStep(largest float64, n int, whole bool) float64 {
	// Below that, a power of ten is nothing.
	if largest < 1e-12 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(largest/float64(n))))
	step := 10 * power
	for _, m := range []float64{1, 2, 5} {
		if m*power*float64(n) >= largest {
			step = m * power
			break
		}
	}
	if whole {
		return max(1, step)
	}
	return step
}

// niceTime is a step in seconds that people count in.
func niceTime(largest float64) float64 {
	steps := []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200}
	for _, s := range steps {
		if largest/s <= 6 {
			return s
		}
	}
	return day * math.Ceil(largest/day/6)
}

// Steps of minutes are written in minutes.
func timeUnit(step float64) string {
	if step >= 60 {
		return "min"
	}
	return "s"
}

func timeTick(t, step float64) string {
	if timeUnit(step) == "min" {
		return significant(t / 60)
	}
	return significant(t)
}

// tick writes a value of the y axis in the unit of the axis's end, so that all ticks have the same.
func tick(v, top float64, unit string) string {
	var units []string
	switch unit {
	case "bytes":
		units = []string{"B", "kB", "MB", "GB", "TB"}
	case "bytes/s":
		units = []string{"B/s", "kB/s", "MB/s", "GB/s"}
	default:
		return significant(v)
	}
	i := 0
	for i < len(units)-1 && top >= 1000 {
		v, top, i = v/1000, top/1000, i+1
	}
	return significant(v) + " " + units[i]
}

func pixel(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
