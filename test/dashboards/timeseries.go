package dashboards

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	legendRow  = 17.0
	legendRows = 3
)

// drawTimeseries draws lines over time, with their legend below.
func drawTimeseries(c *canvas, p Panel, b box) {
	field, lines := p.FieldConfig.Defaults, p.series(c.data)
	b.h -= c.legend(lines, b)
	stacked := field.Custom.Stacking.Mode == "normal"
	bases := make([]map[float64]float64, len(lines))
	if stacked {
		stack(lines, bases)
	}

	lowest, highest, whole := bounds(lines, field)
	ticks := valueTicks(lowest, highest, field.Unit, whole)
	if field.Max == nil {
		highest = ticks[len(ticks)-1].at
	}
	lowest = ticks[0].at
	left := 0.0
	for _, t := range ticks {
		left = max(left, textWidth(t.text, 12))
	}
	left += 8
	plot := box{b.x + left, b.y + 4, b.w - left, b.h - 26}
	y := func(v float64) float64 {
		return plot.y + plot.h - (min(max(v, lowest), highest)-lowest)/(highest-lowest)*plot.h
	}
	for _, t := range ticks {
		if t.at > highest*(1+1e-9) {
			continue
		}
		c.printf(`<path class="grid" d="M%s %sh%s"/>`, px(plot.x), px(y(t.at)), px(plot.w))
		c.text(plot.x-8, y(t.at)+4, "end", t.text)
	}
	x := c.timeAxis(plot)
	for _, m := range c.marks {
		c.printf(`<path stroke="%s" stroke-width="1.2" stroke-dasharray="4 3" d="M%s %sv%s"/>`, m.color, px(x(m.at)), px(plot.y), px(plot.h))
	}
	c.limits(field, plot, lowest, highest, y)
	// The first lines of a stack are the lowest: drawn last, they lie above the areas of the others.
	for i := len(lines) - 1; i >= 0; i-- {
		base := func(t float64) float64 { return y(max(lowest, bases[i][t])) }
		c.line(lines[i], field.Custom.FillOpacity, c.data.Step.Seconds(), x, y, base)
	}
}

// stack puts each line on those before it. bases are what they stand on, at each moment.
func stack(lines []named, bases []map[float64]float64) {
	sum := map[float64]float64{}
	for i, l := range lines {
		bases[i] = map[float64]float64{}
		points := make([]Point, len(l.points))
		for j, point := range l.points {
			bases[i][point.Time] = sum[point.Time]
			sum[point.Time] += point.Value
			points[j] = Point{point.Time, sum[point.Time]}
		}
		lines[i].points = points
	}
}

// bounds are the ends of the axis, and whether there are whole numbers only.
func bounds(lines []named, field Field) (lowest, highest float64, whole bool) {
	lowest, highest, whole = math.Inf(1), math.Inf(-1), true
	for _, l := range lines {
		for _, point := range l.points {
			lowest, highest = min(lowest, point.Value), max(highest, point.Value)
			whole = whole && point.Value == math.Trunc(point.Value)
		}
	}
	if field.Min != nil {
		lowest = *field.Min
	}
	if field.Max != nil {
		highest = *field.Max
	}
	return lowest, max(lowest, highest), whole
}

// limits draws the thresholds that are in sight.
func (c *canvas) limits(field Field, plot box, lowest, highest float64, y func(float64) float64) {
	if field.Custom.ThresholdsStyle.Mode != "line" || field.Thresholds == nil {
		return
	}
	for _, step := range field.Thresholds.Steps {
		if step.Value != nil && *step.Value >= lowest && *step.Value <= highest {
			c.printf(`<path fill="none" stroke="%s" stroke-width="1.5" d="M%s %sh%s"/>`, color(step.Color), px(plot.x), px(y(*step.Value)), px(plot.w))
		}
	}
}

// line draws one line and the area below it, with gaps where there are no points.
func (c *canvas) line(l named, opacity, step float64, x, y, base func(float64) float64) {
	var path, area strings.Builder
	for _, part := range unbroken(l.points, step) {
		var pen, around pencil
		for _, point := range part {
			pen.to(x(point.Time), y(point.Value))
			around.to(x(point.Time), y(point.Value))
		}
		for i := len(part) - 1; i >= 0; i-- {
			around.to(x(part[i].Time), base(part[i].Time))
		}
		path.WriteString(pen.path())
		area.WriteString(around.path() + "z")
	}
	c.printf(`<g transform="scale(.5)"><path fill="%s" fill-opacity="%g" d="%s"/><path class="line" stroke="%s" d="%s"/></g>`,
		l.color, opacity/100, area.String(), l.color, path.String())
}

// unbroken are the parts of a line without missing points.
func unbroken(points []Point, step float64) [][]Point {
	var parts [][]Point
	for i, point := range points {
		if i == 0 || point.Time-points[i-1].Time > 1.5*step {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], point)
	}
	return parts
}

// pencil writes the data of a path, short: whole steps of half a pixel, none for points on the way of a level line.
type pencil struct{ points [][2]int }

func (p *pencil) to(x, y float64) {
	next := [2]int{int(math.Round(2 * x)), int(math.Round(2 * y))}
	if n := len(p.points); n > 1 && p.points[n-1][1] == next[1] && p.points[n-2][1] == next[1] {
		p.points = p.points[:n-1]
	}
	p.points = append(p.points, next)
}

func (p *pencil) path() string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %dl", p.points[0][0], p.points[0][1])
	if len(p.points) == 1 {
		b.WriteString("0 0") // A line's round end makes a dot of it.
	}
	for i, point := range p.points[1:] {
		for j := range point {
			step := strconv.Itoa(point[j] - p.points[i][j])
			if step[0] != '-' && i+j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// legend names the lines at the lower end of a panel, and is how high it is. Names that have no room are counted.
func (c *canvas) legend(lines []named, b box) float64 {
	const key, space, size = 18.0, 14.0, 12.0
	type place struct{ x, row float64 }
	var places []place
	names := make([]string, len(lines))
	x, row := 0.0, 0.0
	for i, l := range lines {
		names[i] = truncated(l.name, min(b.w-key, 220), size)
		w := key + textWidth(names[i], size)
		if x > 0 && x+w > b.w {
			x, row = 0, row+1
		}
		if row == legendRows {
			break
		}
		places = append(places, place{x, row})
		x += w + space
	}
	rows := min(row+1, legendRows)
	bottom := b.y + b.h - (rows-1)*legendRow
	hidden := len(lines) - len(places)
	if hidden > 0 {
		// The count takes the place of the last names.
		for room := b.w - 90; hidden < len(lines) && places[len(lines)-hidden-1].x+key+textWidth(names[len(lines)-hidden-1], size) > room; {
			hidden++
		}
	}
	shown := len(lines) - hidden
	for i, at := range places[:shown] {
		y := bottom + at.row*legendRow
		c.printf(`<path stroke="%s" stroke-width="3" d="M%s %sh12"/>`, lines[i].color, px(b.x+at.x), px(y-4))
		c.text(b.x+at.x+key, y, "", names[i])
	}
	if hidden > 0 {
		c.text(b.x+b.w, b.y+b.h, "end", fmt.Sprintf("and %d more", hidden))
	}
	return rows*legendRow + 2
}
