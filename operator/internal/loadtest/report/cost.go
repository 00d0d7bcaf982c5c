package report

import (
	"fmt"
	"math"
	"slices"
)

// costTable is what a load cost with each variant: the first thing that the page shows.
type costTable struct {
	Title   string
	Columns []column
	Rows    []costRow
	// Notes say what the figures hold, and which of them do not count.
	Notes []string
}

// costRow is one variant: the means of its sound runs.
type costRow struct {
	Variant variant
	Verdict Verdict
	// Cells, one for each of the columns.
	Cells []costCell
	// Note stands in place of the cells.
	Note string
}

// costCell is a figure, how long its bar is beside the largest one of its column (0 to 1), and what else is to be said.
type costCell struct {
	Value, More string
	// Pods is the same figure of the pods as their nodes count it, where that is known.
	Pods string
	Bar  float64
	// State is empty, untimed for a time that does not count, lost for states that did not come back, all for none of those, and none
	// where there is no figure.
	State string
}

// peakOf is the peak of a series that was seen as a whole.
func peakOf(name string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		s, known := r.Samples[name]
		return s.Peak, known && r.SampledSeconds == nil
	}
}

// memoryPeak is the memory at its peak of what is measured, and cpuTotal its CPU time: of the virtual machines, or beside servers that have
// none, of the pods.
func memoryPeak(r Run) (float64, bool) {
	if r.ByPods {
		return peakOf(SeriesPodMemory)(r)
	}
	return peakOf(SeriesMemory)(r)
}

func cpuTotal(r Run) (float64, bool) {
	if r.ByPods {
		return totalOf(SeriesPodCPU)(r)
	}
	return totalOf(SeriesCPU)(r)
}

// measuredAlike is the report with all runs measured by their pods if one of its variants is a server, which has no virtual machine to ask.
func measuredAlike(r Report) Report {
	if !r.Spec.hasServers() {
		return r
	}
	r.Runs = slices.Clone(r.Runs)
	for i := range r.Runs {
		r.Runs[i].ByPods = true
	}
	return r
}

// hasServers is whether one of the variants is a server and no fleet.
func (s Spec) hasServers() bool {
	return slices.ContainsFunc(s.Variants, func(one Variant) bool { return one.Server != nil })
}

// moved are all bytes that the fleet moves. What goes from one pod to another is counted once, where it arrives.
var moved = []string{SeriesHTTPIn, SeriesHTTPOut, SeriesDistributionIn, SeriesRedisIn, SeriesRedisOut}

// percent writes a share. What is not all must not look like all.
func percent(part float64) string {
	of := 100 * part
	if part < 1 {
		of = min(of, 99.99)
	}
	return trimmed(of, 2) + " %"
}

// newCostTable is the cost of a load, or nothing without a sound run.
func newCostTable(l load) (costTable, bool) {
	all := l.repeated()
	if len(all) == 0 {
		return costTable{}, false
	}
	t := costTable{Title: l.title(), Columns: l.layout().columns}
	for _, runs := range l.byVariant() {
		row := costRow{Variant: l.variantOf(runs), Verdict: worst(runs)}
		if i := slices.IndexFunc(all, func(s series) bool { return s.name() == runs.name() }); i < 0 {
			row.Note = "no sound run: " + runs[0].Verdict.String()
		} else {
			for _, column := range t.Columns {
				row.Cells = append(row.Cells, newCostCell(l, all[i], column, largest(all, column)))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = costNotes(l, all)
	return t, true
}

// largest is the longest bar of a column.
func largest(all []series, column column) float64 {
	most := 0.0
	for _, runs := range all {
		most = max(most, mean(runs.values(column.of)))
	}
	return most
}

func newCostCell(l load, runs series, of column, most float64) costCell {
	base := l.baseline()
	if timed := timedOnly(runs); of.timed && len(timed) > 0 {
		// Of several runs, those with an honest clock.
		runs, base = timed, timedOnly(base)
	}
	values := runs.values(of.of)
	if len(values) == 0 {
		return costCell{Value: "–", State: "none", More: whyNone(runs, of)}
	}
	value := mean(values)
	cell := costCell{Value: of.write(value)}
	if most > 0 {
		cell.Bar = value / most
	}
	cell.Pods = podsInWords(runs, of)
	switch {
	case of.isShare:
		cell.Bar, cell.State = value, "all"
		var done, all int64
		for _, run := range runs {
			mine, of, _ := l.layout().done.of(run)
			done, all = done+mine, all+of
		}
		if cell.More = grouped(done) + " of " + grouped(all); done < all {
			cell.State = "lost"
		}
		return cell
	case of.timed && !slices.ContainsFunc(runs, Run.timed):
		cell.State, cell.More = "untimed", "client too slow"
		return cell
	case of.timed && l.starved():
		cell.State, cell.More = "untimed", "machine too slow"
		return cell
	}
	if len(base) > 0 && runs.name() != base.name() {
		cell.More = overBase(values, base.values(of.of), base.name(), of.write)
	}
	return cell
}

// whyNone says why there is no time: too much came to no good end. Empty for what was not measured.
func whyNone(runs series, of column) string {
	for _, run := range runs {
		if value, known := of.of(run); known && math.IsNaN(value) {
			return "over 5 % " + never
		}
	}
	return ""
}

// podsInWords is what the whole pods took, where the value is the application's own and all runs have it.
func podsInWords(runs series, of column) string {
	if of.pods == nil || runs[0].ByPods {
		return ""
	}
	pods := runs.values(of.pods)
	if len(pods) != len(runs) {
		return ""
	}
	return "pods " + of.write(mean(pods))
}

// timedOnly are the runs whose times mean something.
func timedOnly(runs series) series {
	return slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return !r.timed() })
}

// overBase is what runs took more than the baseline: "+3.8 MB (3 %)".
func overBase(values, bases []float64, name string, write func(float64) string) string {
	if len(bases) == 0 {
		return ""
	}
	base := mean(bases)
	delta := mean(values) - base
	if same(values, bases) {
		return "as " + name
	}
	sign := "+"
	if delta < 0 {
		sign = "−"
	}
	text := sign + write(math.Abs(delta))
	if base > 0 {
		text += fmt.Sprintf(" (%.0f %%)", 100*math.Abs(delta)/base)
	}
	return text
}

// costNotes say what one has to know to read the table.
func costNotes(l load, all []series) []string {
	base := l.baseline()
	notes := []string{"The sum over all pods of the fleet, and what that is over " + l.base() + ". " + l.layout().note}
	if len(base) == 0 {
		notes[0] = "The sum over all pods of the fleet. " + l.layout().note
	}
	switch {
	case l.spec.hasServers():
		notes = append(notes, "Memory and CPU are what the nodes count for the containers of the pods: of a fleet those of the application and livestash-probe, of a server "+
			"its own, that of its Redis if it has one, and livestash-usage. The bytes that a server moves are not counted.")
	case slices.ContainsFunc(all, func(s series) bool { return len(s.values(peakOf(SeriesPodMemory))) > 0 }):
		notes = append(notes, "Memory and CPU are those of the virtual machines. Pods: what their nodes count for their containers, those of the application and livestash-probe.")
	}
	if slices.ContainsFunc(all, func(s series) bool { return s.adapter() == "Redis" }) {
		notes = append(notes, "Redis itself is another server: its memory and CPU are not in these figures.")
	}
	if slices.ContainsFunc(all, func(s series) bool { return !slices.ContainsFunc(s, Run.timed) }) {
		notes = append(notes, "Amber: the client was the bottleneck. This time says nothing about the fleet; all other figures stand.")
	} else if l.starved() {
		notes = append(notes, "Amber: "+l.withBase()+" a return took "+inUnit(mean(base.values(returnP95)), "ms")+", so the fleet or the runners waited. These times say nothing about adapters; all other figures stand.")
	}
	return notes
}

// thousand is what 1,000 users cost: for the baseline all of it, for each other variant what is over that.
type thousand struct {
	Title   string
	Base    string
	Columns []thousandColumn
	Rows    []thousandRow
}

type thousandRow struct {
	Variant variant
	// Cells, one for each of the columns.
	Cells []string
}

// rateOf is what was counted over a run, for each second of it.
func rateOf(total func(Run) (float64, bool)) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		sum, known := total(r)
		return sum / max(1, r.DurationSeconds), known && r.DurationSeconds > 0
	}
}

// newThousand is the table for 1,000 users of a load, or nothing without a sound run of the baseline and of another.
func newThousand(l load) (thousand, bool) {
	base, columns := l.baseline(), l.layout().perThousand
	all := l.repeated()
	if len(base) == 0 || len(all) < 2 || l.users == 0 || len(columns) == 0 {
		return thousand{}, false
	}
	t := thousand{Title: l.title(), Base: base.name(), Columns: columns}
	for _, runs := range all {
		row := thousandRow{Variant: l.variantOf(runs)}
		for _, column := range columns {
			values, bases := runs.values(column.of), base.values(column.of)
			text := "–"
			switch {
			case len(values) == 0 || len(bases) == 0:
			case runs.name() == base.name():
				text = inUnit(mean(values)*1000/float64(l.users), column.unit)
			case same(values, bases):
				text = "as " + base.name()
			default:
				delta := (mean(values) - mean(bases)) * 1000 / float64(l.users)
				text = map[bool]string{true: "+", false: "−"}[delta >= 0] + inUnit(math.Abs(delta), column.unit)
			}
			row.Cells = append(row.Cells, text)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, true
}
