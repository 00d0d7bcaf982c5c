package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed page.css
var pageStyle string

// HTML renders a report as one page with nothing outside of it: no script, no font, no image.
func HTML(r Report) []byte {
	var w pageWriter
	newPage(measuredAlike(r)).write(&w)
	return w.Bytes()
}

// page is what is written.
type page struct {
	Layout *layout
	// Heading of the columns with what is compared: Adapter or Variant.
	Heading         string
	Title, Subtitle string
	Verdict         Verdict
	Style           markup
	// Head is when, on what and with which versions it ran.
	Head []fact
	// Costs of the load that tells most, Others of the other ones.
	Costs       *costTable
	Others      []costTable
	Thousand    *thousand
	Answer      answer
	Summary     []string
	Trips       []tripTable
	Figures     []figureSection
	Comparisons []comparisonTable
	Runs        []runRow
	Facts       []fact
	Source, URL string
}

type tripTable struct {
	Title  string
	Trips  []trip
	Charts []figureChart
	// Note says how to read the charts, and which variants are in none of them.
	Note string
	Rows []tripRow
}

type tripRow struct {
	Variant variant
	Label   string
	Verdict Verdict
	// Cells are p50, p95 and p99 of each trip.
	Cells []string
	// Untimed is whether the times say nothing about the fleet.
	Untimed bool
	// Note stands in place of the cells.
	Note string
}

type figureSection struct {
	Title    string
	Variants []variant
	Charts   []figureChart
}

type figureChart struct {
	Title string
	SVG   markup
	// Missing says which variants have no line, and why.
	Missing string
}

type comparisonTable struct {
	Title  string
	Labels []string
	Rows   []comparisonRow
}

type comparisonRow struct {
	Title string
	Cells []comparisonCell
}

type comparisonCell struct{ Ours, Published string }

type runRow struct {
	Name, Variant, Load, Length, Pods, Done, Wrong, Errors, Client, Message string
	Verdict                                                                 Verdict
	// Events says what was done to the fleet in the run, and what that cost its users.
	Events string
}

func newPage(r Report) page {
	p := page{
		Layout:  layoutOf(r.Spec),
		Heading: heading(r),
		Title:   title(r),
		Verdict: r.Verdict,
		Style:   markup(pageStyle),
		Head:    head(r),
		Answer:  costs(r),
		Summary: summary(r),
		Facts:   facts(r),
		Source:  Source,
		URL:     SourceURL,
	}
	p.Subtitle = fmt.Sprintf("%d runs, %s", len(r.Runs), r.Spec.Scenario)
	if r.Spec.Scenario == "" {
		p.Subtitle = fmt.Sprintf("%d runs", len(r.Runs))
	}
	first, _ := heaviest(r)
	for _, l := range loads(r) {
		if t, sound := newCostTable(l); sound {
			if p.Costs == nil && l.sameAs(first) {
				p.Costs = &t
			} else {
				p.Others = append(p.Others, t)
			}
		}
		p.Trips = append(p.Trips, newTripTable(l))
		if rows := comparisons(l); len(rows) > 0 {
			p.Comparisons = append(p.Comparisons, newComparisonTable(l, rows))
		}
	}
	if t, compared := newThousand(first); compared {
		p.Thousand = &t
	}
	for _, f := range p.Layout.charts() {
		if s := newFigureSection(f, loads(r)); len(s.Charts) > 0 {
			p.Figures = append(p.Figures, s)
		}
	}
	for _, run := range r.Runs {
		p.Runs = append(p.Runs, newRunRow(r, run))
	}
	return p
}

func newTripTable(l load) tripTable {
	t := tripTable{Title: l.title(), Trips: l.layout().trips}
	t.Charts, t.Note = newTripCharts(l)
	for _, run := range l.runs {
		row := tripRow{Variant: l.variants[run.variant()], Label: run.label(), Verdict: run.Verdict}
		if !run.sound() {
			row.Note = "no sound run: " + run.Verdict.String()
		} else {
			row.Untimed = !run.timed()
			for _, trip := range t.Trips {
				row.Cells = append(row.Cells, cells(run, trip.duration)...)
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// newTripCharts are a load's charts of round trips, and what is to be said about all of them.
func newTripCharts(l load) ([]figureChart, string) {
	var charts []figureChart
	absent := map[string]bool{}
	for _, trip := range l.layout().trips {
		all, missing := latencies(l, trip.duration)
		svg := latencyChart(trip.title+", "+l.title(), all)
		if svg == "" {
			continue
		}
		c := figureChart{Title: trip.title, SVG: svg}
		if len(missing) > 0 {
			c.Missing = "Not shown: " + strings.Join(missing, ", ") + "."
		}
		absent[c.Missing] = true
		charts = append(charts, c)
	}
	note := whiskers(l)
	if len(absent) == 1 && charts[0].Missing != "" {
		note = charts[0].Missing + " " + note
		for i := range charts {
			charts[i].Missing = ""
		}
	}
	return charts, note
}

// drawnPoints are those of a line in a chart, which has 290 units for them.
const drawnPoints = 40

// fewest is the number of durations of which one is above the p99 with 95 % certainty. Of fewer, none can be said to be the p99.
const fewest = 299

// cells are a duration's p50, p95 and p99: from when the step should have begun and, where that differs, in brackets from when it did. Never: too
// many requests or messages came to no good end.
func cells(run Run, name string) []string {
	d, service := run.Durations[name], run.Durations[name+serviceSuffix]
	if d.Count == 0 {
		return []string{"–", "–", "–"}
	}
	texts := make([]string, 0, len(quantiles))
	for _, q := range quantiles {
		text := significant(q.of(d))
		switch {
		case !run.hasQuantile(name, q.at):
			text = never
		case service.Count > 0:
			text += " (" + significant(q.of(service)) + ")"
		}
		texts = append(texts, text)
	}
	if d.Count < fewest && texts[len(texts)-1] != never {
		texts[len(texts)-1] = "≥ " + significant(d.P99AtLeast)
	}
	return texts
}

func newFigureSection(f figure, all []load) figureSection {
	s := figureSection{Title: f.title}
	for _, l := range all {
		var lines []line
		var missing []string
		for _, run := range l.runs {
			series := run.Samples[f.series]
			switch {
			case !run.sound():
				missing = append(missing, run.label()+" ("+strings.ToLower(run.Verdict.String())+")")
			case len(series.Points) == 0:
				missing = append(missing, run.label()+" (no samples)")
			default:
				lines = append(lines, line{l.variants[run.variant()], run.Verdict == VerdictFailed, Thin(series.Points, drawnPoints)})
				if one := l.variants[run.variant()]; !slices.Contains(s.Variants, one) {
					s.Variants = append(s.Variants, one)
				}
			}
		}
		svg := chart(f.title+", "+l.title(), f.unit, lines, l.events()...)
		if svg == "" {
			continue
		}
		c := figureChart{Title: l.title(), SVG: svg}
		if len(missing) > 0 {
			c.Missing = "Not shown: " + strings.Join(missing, ", ") + "."
		}
		if failed := failedVariants(lines); len(failed) > 0 {
			c.Missing = strings.TrimSpace(c.Missing + " Dashed, because a threshold failed: " + listed(failed) + ".")
		}
		s.Charts = append(s.Charts, c)
	}
	slices.SortStableFunc(s.Variants, func(a, b variant) int { return a.look - b.look })
	if f.unit == "cores" {
		s.Title += " (cores)"
	}
	return s
}

func failedVariants(lines []line) []string {
	var names []string
	for _, l := range lines {
		if l.failed {
			names = append(names, l.variant.name)
		}
	}
	return names
}

func newComparisonTable(l load, rows []comparison) comparisonTable {
	t := comparisonTable{Title: l.title()}
	for _, c := range rows[0].cells {
		t.Labels = append(t.Labels, c.label)
	}
	for _, row := range rows {
		r := comparisonRow{Title: row.title}
		for _, c := range row.cells {
			r.Cells = append(r.Cells, comparisonCell{c.ours, c.published})
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func newRunRow(r Report, run Run) runRow {
	row := runRow{
		Name:    run.Name,
		Variant: run.variant(),
		Load:    newLoad(r.Spec, run).title(),
		Length:  span(run.DurationSeconds) + ", ramp " + span(run.RampSeconds),
		Verdict: run.Verdict,
		Message: run.Message,
	}
	row.Events = eventsTold(run)
	if run.Replicas > 0 {
		row.Pods = fmt.Sprintf("%d pods", run.Replicas)
	}
	row.Done, row.Wrong, row.Errors, row.Client = "–", "–", "–", "–"
	if run.ClientDelay != nil {
		row.Client = inUnit(*run.ClientDelay, "ms")
	}
	if c := run.Counts; c != nil {
		of := layoutOf(r.Spec).done
		done, all, _ := of.of(run)
		row.Done = fmt.Sprintf("%s of %s (%s)", grouped(done), grouped(all), shareOf(done, all))
		row.Wrong, row.Errors = grouped(c.Of[of.wrong]), grouped(c.Of[CountError])
		if reasons := errorReasons(c.Errors); reasons != "" {
			row.Errors += " (" + reasons + ")"
		}
	}
	return row
}

func errorReasons(errors map[string]int64) string {
	var words []string
	for reason, n := range errors {
		words = append(words, reason+" "+grouped(n))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
