package report

import (
	"fmt"
	"math"
	"slices"
)

// costTable is what a load cost with each adapter: the first thing that the page shows.
type costTable struct {
	Title string
	Rows  []costRow
	// Notes say what the figures hold, and which of them do not count.
	Notes []string
}

// costRow is one adapter: the means of its sound runs.
type costRow struct {
	Adapter string
	Verdict Verdict
	// Cells, one for each of costColumns.
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

// costColumns are the figures of the cost table.
var costColumns = []struct {
	title, detail string
	of            func(Run) (float64, bool)
	// pods is the same figure of the pods as a whole, nil when there is no such.
	pods  func(Run) (float64, bool)
	write func(float64) string
}{
	{"Memory", "peak", peakOf(SeriesMemory), peakOf(SeriesPodMemory), func(v float64) string { return inUnit(v, "bytes") }},
	{"CPU", "whole run", totalOf(SeriesCPU), totalOf(SeriesPodCPU), func(v float64) string { return significant(v) + " s" }},
	{"Network", "whole run", totalOf(moved...), nil, func(v float64) string { return inUnit(v, "bytes") }},
	{"Round trip", "return, p95", anyReturnP95, nil, func(v float64) string { return inUnit(v, "ms") }},
	{"Recovered", "within the TTL", recoveredShare, nil, percent},
}

// anyReturnP95 is within what time 95 % of the returns were over, in ms, also where that says nothing about the fleet.
func anyReturnP95(r Run) (float64, bool) {
	d := r.Durations["reconnect"]
	return d.P95, d.Count > 0
}

// peakOf is the peak of a series.
func peakOf(name string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		s, known := r.Samples[name]
		return s.Peak, known
	}
}

// The columns that are not like the others.
const (
	columnTrip  = 3
	columnShare = 4
)

// moved are all bytes that the fleet moves. What goes from one pod to another is counted once, where it arrives.
var moved = []string{SeriesHTTPIn, SeriesHTTPOut, SeriesDistributionIn, SeriesRedisIn, SeriesRedisOut}

// recoveredShare is the part of the returns within the TTL that brought the state back. There is none without LiveStash.
func recoveredShare(r Run) (float64, bool) {
	if r.Counts == nil || r.Adapter == baselineAdapter || r.Counts.returns() == 0 {
		return 0, false
	}
	return float64(r.Counts.Of[CountRecovered]) / float64(r.Counts.returns()), true
}

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
	t := costTable{Title: l.title()}
	base := l.baseline()
	for _, runs := range l.byAdapter() {
		row := costRow{Adapter: runs.adapter(), Verdict: worst(runs)}
		if i := slices.IndexFunc(all, func(s series) bool { return s.adapter() == runs.adapter() }); i < 0 {
			row.Note = "no sound run: " + runs[0].Verdict.String()
		} else {
			for column := range costColumns {
				row.Cells = append(row.Cells, newCostCell(all[i], base, column, largest(all, column)))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = costNotes(all, base)
	return t, true
}

// largest is the longest bar of a column.
func largest(all []series, column int) float64 {
	most := 0.0
	for _, runs := range all {
		most = max(most, mean(runs.values(costColumns[column].of)))
	}
	return most
}

func newCostCell(runs, base series, column int, most float64) costCell {
	of := costColumns[column]
	values := runs.values(of.of)
	if len(values) == 0 {
		return costCell{Value: "–", State: "none"}
	}
	value := mean(values)
	cell := costCell{Value: of.write(value)}
	if most > 0 {
		cell.Bar = value / most
	}
	if of.pods != nil {
		if pods := runs.values(of.pods); len(pods) == len(runs) {
			cell.Pods = "pods " + of.write(mean(pods))
		}
	}
	switch column {
	case columnShare:
		cell.Bar, cell.State = value, "all"
		var recovered, lost int64
		for _, run := range runs {
			if run.Counts != nil {
				recovered, lost = recovered+run.Counts.Of[CountRecovered], lost+run.Counts.Of[CountNotRecovered]
			}
		}
		if cell.More = grouped(recovered) + " of " + grouped(recovered+lost); lost > 0 {
			cell.State = "lost"
		}
		return cell
	case columnTrip:
		if !slices.ContainsFunc(runs, Run.timed) {
			cell.State, cell.More = "untimed", "client too slow"
			return cell
		}
		if len(base) > 0 && starved(base) {
			cell.State, cell.More = "untimed", "machine too slow"
			return cell
		}
		// Of several runs, those with an honest clock.
		timed := runs.values(returnP95)
		cell.Value, values = of.write(mean(timed)), timed
	}
	if len(base) > 0 && runs.adapter() != base.adapter() {
		cell.More = overBase(values, base.values(of.of), of.write)
	}
	return cell
}

// overBase is what runs took more than the baseline: "+3.8 MB (3 %)".
func overBase(values, bases []float64, write func(float64) string) string {
	if len(bases) == 0 {
		return ""
	}
	base := mean(bases)
	delta := mean(values) - base
	if same(values, bases) {
		return "as " + baselineAdapter
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
func costNotes(all []series, base series) []string {
	notes := []string{"The sum over all pods of the fleet, and what that is over " + baselineAdapter + ". Network: to and from clients and Redis, and between the pods. Return: from the moment at which the user was to come back to the view that is there again."}
	if len(base) == 0 {
		notes[0] = "The sum over all pods of the fleet. Network: to and from clients and Redis, and between the pods. Return: from the moment at which the user was to come back to the view that is there again."
	}
	if slices.ContainsFunc(all, func(s series) bool { return len(s.values(peakOf(SeriesPodMemory))) > 0 }) {
		notes = append(notes, "Memory and CPU are those of the virtual machines. Pods: what their nodes count for their containers, those of the application and livestash-probe.")
	}
	if slices.ContainsFunc(all, func(s series) bool { return s.adapter() == "Redis" }) {
		notes = append(notes, "Redis itself is another server: its memory and CPU are not in these figures.")
	}
	if slices.ContainsFunc(all, func(s series) bool { return !slices.ContainsFunc(s, Run.timed) }) {
		notes = append(notes, "Amber: the client was the bottleneck. This time says nothing about the fleet; all other figures stand.")
	} else if len(base) > 0 && starved(base) {
		notes = append(notes, "Amber: without LiveStash a return took "+inUnit(mean(base.values(returnP95)), "ms")+", so the fleet or the runners waited. These times say nothing about adapters; all other figures stand.")
	}
	return notes
}

// thousand is what 1,000 users cost: for the baseline all of it, for each adapter what is over that.
type thousand struct {
	Title string
	Rows  []thousandRow
}

type thousandRow struct {
	Adapter string
	// Cells, one for each of thousandColumns.
	Cells []string
}

// thousandColumns are the figures of the table for 1,000 users.
var thousandColumns = []struct {
	title string
	of    func(Run) (float64, bool)
	unit  string
}{
	{"memory, peak", peakOf(SeriesMemory), "bytes"},
	{"CPU, mean", rateOf(totalOf(SeriesCPU)), "cores"},
	{"network, mean", rateOf(totalOf(moved...)), "bytes/s"},
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
	base := l.baseline()
	all := l.repeated()
	if len(base) == 0 || len(all) < 2 || l.users == 0 {
		return thousand{}, false
	}
	t := thousand{Title: l.title()}
	for _, runs := range all {
		row := thousandRow{Adapter: runs.adapter()}
		for _, column := range thousandColumns {
			values, bases := runs.values(column.of), base.values(column.of)
			text := "–"
			switch {
			case len(values) == 0 || len(bases) == 0:
			case runs.adapter() == base.adapter():
				text = inUnit(mean(values)*1000/float64(l.users), column.unit)
			case same(values, bases):
				text = "as " + baselineAdapter
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
