package dashboards

// drawStat writes the last value of each series in large digits, side by side.
func drawStat(c *canvas, p Panel, b box) {
	values := p.series(c.data)
	w := b.w / float64(len(values))
	for i, s := range values {
		last := s.points[len(s.points)-1].Value
		words, fill := s.field.written(last)
		part := box{b.x + float64(i)*w, b.y, w, b.h}
		middle := part.x + w/2
		if p.Options.GraphMode == "area" {
			c.sparkline(s.points, fill, box{part.x, part.y + part.h*0.55, part.w, part.h * 0.45})
			part.h *= 0.6
		}
		size := min(38, 0.72*w/textWidth(words, 1))
		y := part.y + part.h/2 + size*0.32
		if p.Options.TextMode == "value_and_name" {
			c.text(middle, part.y+part.h/2-18, "mid", truncated(s.name, w-4, 12))
			y += 10
		}
		c.printf(`<text class="big" style="font-size:%spx;fill:%s" x="%s" y="%s">%s</text>`, px(size), fill, px(middle), px(y), escaped(words))
	}
}

// sparkline draws a line without axes.
func (c *canvas) sparkline(points []Point, stroke string, b box) {
	l := named{color: stroke, points: points}
	lowest, highest, _ := bounds([]named{l}, Field{})
	from, to := float64(c.data.From.Unix()), float64(c.data.To.Unix())
	x := func(t float64) float64 { return b.x + (t-from)/max(to-from, 1)*b.w }
	y := func(v float64) float64 {
		if highest == lowest {
			return b.y + b.h
		}
		return b.y + b.h - (v-lowest)/(highest-lowest)*b.h
	}
	c.line(l, 12, c.data.Step.Seconds(), x, y, func(float64) float64 { return b.y + b.h })
}

// drawStateTimeline draws a row for each series, with a bar for as long as it has the same value.
func drawStateTimeline(c *canvas, p Panel, b box) {
	rows := p.series(c.data)
	room := 0.0
	for _, row := range rows {
		room = min(max(room, textWidth(row.name, 12)), b.w/3)
	}
	plot := box{b.x + room + 10, b.y, b.w - room - 10, b.h - 18}
	x := c.timeAxis(plot)
	h := plot.h / float64(len(rows))
	step, to := c.data.Step.Seconds(), float64(c.data.To.Unix())
	for i, row := range rows {
		y := plot.y + float64(i)*h
		c.text(plot.x-10, y+h/2+4, "end", truncated(row.name, room, 12))
		for _, part := range unbroken(row.points, step) {
			for len(part) > 0 {
				n := 1
				for n < len(part) && part[n].Value == part[0].Value {
					n++
				}
				words, fill := row.field.written(part[0].Value)
				from, until := x(part[0].Time), x(min(part[n-1].Time+step, to))
				bar := h * p.Options.RowHeight
				c.printf(`<rect x="%s" y="%s" width="%s" height="%s" rx="2" fill="%s" fill-opacity="%g"/>`,
					px(from), px(y+(h-bar)/2), px(max(until-from, 1)), px(bar), fill, p.FieldConfig.Defaults.Custom.FillOpacity/100)
				if textWidth(words, 12)+8 < until-from {
					c.text((from+until)/2, y+h/2+4, "ink mid", words)
				}
				part = part[n:]
			}
		}
	}
}
