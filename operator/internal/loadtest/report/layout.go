package report

import (
	"fmt"
	"math"
	"slices"
)

// layout is how the figures of a scenario are shown: which of them stand in the tables, and in what words. One for each kind of scenario.
type layout struct {
	// question is the heading of the words, and its shorter form in the contents.
	question string
	// columns of the table of costs, and note, what their figures hold beside the sum over all pods.
	columns []column
	note    string
	// trips are the durations of the tables and charts of times, and tripNote what they go from and to.
	trips    []trip
	tripNote string
	// figures are the names of the charts; nil for all.
	figures []string
	// perThousand are the figures for 1,000 users; nil for none.
	perThousand []thousandColumn
	// costs are the figures that variants are compared by in words.
	costs []told
	// title is a load in a few words, and opening how a sentence about it begins.
	title, opening func(load) string
	// made is what k6 itself may be the limit of.
	made made
	// done is what was to come to a good end, and what it is called.
	done share
	// outcome says in a sentence what came of all runs. Empty: there is nothing to say.
	outcome func(Report) string
	// starves is whether slow times of the baseline show a machine that had no time left, and not what was to be measured.
	starves bool
}

// share is what of something came to a good end.
type share struct {
	// name and detail are the head of its column.
	name, detail string
	of           func(Run) (done, all int64, known bool)
	// wrong is how much of it was wrong.
	wrong string
}

// part is the share as a figure.
func (s share) part(r Run) (float64, bool) {
	done, all, known := s.of(r)
	if !known || all == 0 {
		return 0, false
	}
	return float64(done) / float64(all), true
}

// column is a figure of the table of costs.
type column struct {
	title, detail string
	of            func(Run) (float64, bool)
	// pods is the same figure of the pods as a whole, nil when there is no such.
	pods  func(Run) (float64, bool)
	write func(float64) string
	// timed is of a figure that means nothing when the client was the bottleneck, and isShare of the one that is the layout's share.
	timed, isShare bool
}

// thousandColumn is a figure for 1,000 users.
type thousandColumn struct {
	title string
	of    func(Run) (float64, bool)
	unit  string
}

// told is a figure in a sentence.
type told struct {
	of func(Run) (float64, bool)
	// absolute follows a figure, and difference what is more or less than that of the baseline.
	absolute, difference string
	write                func(float64) string
	// timed is of a figure that means nothing when the machine had no time left.
	timed bool
}

// layoutOf is that of a report's scenario.
func layoutOf(spec Spec) *layout {
	if l, known := layouts[spec.Scenario]; known {
		return l
	}
	return &stashLayout
}

// layouts by the names of their scenarios. All others are those of users who stash.
var layouts = map[string]*layout{"Requests": &requestsLayout, "Rooms": &roomsLayout}

// inBytes, inSeconds and inMilliseconds write a figure.
func inBytes(v float64) string        { return inUnit(v, "bytes") }
func inSeconds(v float64) string      { return significant(v) + " s" }
func inMilliseconds(v float64) string { return inUnit(v, "ms") }

// timedP95 is within what time 95 % of one kind of step were done, in ms, where that says something about the fleet.
func timedP95(name string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		p95, known := anyP95(name)(r)
		return p95, known && r.timed()
	}
}

// anyP95 is the same, also where it says nothing about the fleet. NaN when too much failed for one.
func anyP95(name string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		d := r.Durations[name]
		if !r.hasQuantile(name, 0.95) {
			return math.NaN(), true
		}
		return d.P95, d.Count > 0
	}
}

// usersOf is the number of a load's users, in words.
func usersOf(l load) string { return fmt.Sprintf("%s users", grouped(int64(l.users))) }

// charts are the figures that are drawn.
func (l *layout) charts() []figure {
	if l.figures == nil {
		return figures
	}
	return slices.DeleteFunc(slices.Clone(figures), func(f figure) bool { return !slices.Contains(l.figures, f.series) })
}

// figuresNote says which charts there are.
func (l *layout) figuresNote() string {
	if l.figures == nil {
		return "Total memory first, then the charts of the published test, one by one"
	}
	return "Total memory first"
}
