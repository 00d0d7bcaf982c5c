package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// noise is the relative difference below which one run says nothing about another.
const noise = 0.02

// overloaded is the p95 of a return without LiveStash, in ms, from which on times tell more about the machines than about adapters:
// eighty times what docs/benchmarks.md has for 1,000 users.
const overloaded = 1000

// summary says in plain words what came of it and what is missing: whole sentences. What each variant cost is answer's.
func summary(r Report) []string {
	var paragraphs []string
	if p := layoutOf(r.Spec).outcome(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if p := unsound(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if r.Comparison != nil {
		paragraphs = append(paragraphs, r.Comparison.sentence())
	}
	if against := r.Against; against != nil {
		paragraphs = append(paragraphs, cmp.Or(against.Message, fmt.Sprintf("Compared with %s: all limits of thresholds.against hold (%d).", against.With, len(against.Figures))))
	}
	if p := kneesInWords(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if r.Message != "" {
		paragraphs = append(paragraphs, r.Message)
	}
	return paragraphs
}

// answer is which variant cost what, in words.
type answer struct {
	// Lead is what the baseline took.
	Lead string
	// Variants, each with what it cost.
	Variants []variantAnswer
	// Certainty says what differences are worth.
	Certainty string
}

// variantAnswer is what a variant cost, to be read behind its name, and for whom it is.
type variantAnswer struct {
	Variant    variant
	Cost, When string
}

// choices say for whom an adapter is: docs/how-to/choose-an-adapter.md has the reasons.
var choices = map[string]string{
	"ETS":           "Choose ETS to begin with: there is no other server to run, and a deploy loses nothing. A pod that is killed takes its stashes with it.",
	"BrowserMemory": "Choose BrowserMemory when stashes are small (below 7 kB) and the server should hold nothing.",
	"Redis":         "Choose Redis when the state has to outlive all pods, or a killed pod must cost nobody their state. It is another server to run.",
	"Mnesia":        "Choose Mnesia when a killed pod must cost nobody their state, and there is to be no other server. Each pod holds every stash of the fleet.",
}

// heaviest is the load that tells most: the most variants with figures, then the most users, then the longest TTL.
func heaviest(r Report) (load, bool) {
	var best load
	var found bool
	for _, l := range loads(r) {
		n := len(l.repeated())
		if n == 0 {
			continue
		}
		m := len(best.repeated())
		if !found || n > m || n == m && (l.users > best.users || l.users == best.users && l.ttl > best.ttl) {
			best, found = l, true
		}
	}
	return best, found
}

// costs is what the heaviest load cost with each variant.
func costs(r Report) answer {
	compared := strings.ToLower(heading(r))
	l, ok := heaviest(r)
	if !ok {
		return answer{Lead: "There is no sound run yet, so this report says nothing about what any " + compared + " costs."}
	}
	all, base, layout := l.repeated(), l.baseline(), l.layout()
	var found answer
	switch opening := layout.opening(l); {
	case len(base) > 0 && l.base() == withoutLiveStash:
		found.Lead = fmt.Sprintf("%s, the fleet without LiveStash (%s) took %s%s.", opening, withoutLiveStash, layout.absolute(base), layout.failure(base))
	case len(base) > 0:
		found.Lead = fmt.Sprintf("%s, %s took %s%s.", opening, l.base(), layout.absolute(base), layout.failure(base))
	default:
		found.Lead = fmt.Sprintf("%s there is no sound run %s, so these figures hold what the application itself costs.", opening, l.withBase())
	}
	fewest := len(all[0])
	for _, runs := range all {
		fewest = min(fewest, l.rounds(runs))
		one := variantAnswer{Variant: l.variantOf(runs)}
		if runs.isAdapter() && layout == &stashLayout {
			one.When = choices[runs.adapter()]
		}
		switch {
		case runs.name() == l.base():
			continue
		case len(base) == 0:
			one.Cost = "took " + layout.absolute(runs) + layout.failure(runs) + "."
		default:
			one.Cost = "cost " + l.relative(runs, base) + layout.failure(runs) + "."
		}
		found.Variants = append(found.Variants, one)
	}
	if len(base) == 0 {
		return found
	}
	if len(found.Variants) == 0 {
		found.Lead += fmt.Sprintf(" No other %s has a sound run at this load, so there is nothing to compare.", compared)
		return found
	}
	found.Lead += " Over that:"
	found.Certainty = certainty(fewest)
	if l.starved() {
		found.Certainty += fmt.Sprintf(" Times are not compared: %s for a return %s means that the fleet or the runners waited,"+
			" most often for CPU. Give them more, or take fewer users.", inUnit(mean(base.values(returnP95)), "ms"), l.withBase())
	}
	return found
}

// heading is that of the columns with what a report compares.
func heading(r Report) string {
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.variant() != run.Adapter }) {
		return "Variant"
	}
	return "Adapter"
}

// certainty says what differences between means of so many runs at least are worth.
func certainty(runs int) string {
	switch {
	case runs >= fewestRounds:
		return fmt.Sprintf("Means of %d runs at least: a difference is told only where the 95 %% intervals of both do not overlap.", runs)
	case runs > 1:
		return fmt.Sprintf("Means of %d runs at least, fewer than the %d that show what is chance: differences of a few percent mean nothing.", runs, fewestRounds)
	}
	return "One run each: differences of a few percent mean nothing."
}

// rounds is of how many runs at least the figures are that are compared in words.
func (l load) rounds(runs series) int {
	fewest := len(runs)
	for _, cost := range l.layout().costs {
		if n := len(runs.values(cost.of)); n > 0 {
			fewest = min(fewest, n)
		}
	}
	return fewest
}

// starved says that the baseline shows machines that had no time left.
func (l load) starved() bool {
	return l.layout().starves && mean(l.baseline().values(returnP95)) >= overloaded
}

// returnP95 is within what time 95 % of the returns were over, in ms.
var returnP95 = timedP95("reconnect")

// totalOf is the growth of what is counted over a whole run, added up over several series.
func totalOf(names ...string) func(Run) (float64, bool) {
	return func(run Run) (float64, bool) {
		sum := 0.0
		for _, name := range names {
			s, ok := run.Samples[name]
			if !ok || s.Total == nil || run.SampledSeconds != nil {
				return 0, false
			}
			sum += *s.Total
		}
		return sum, true
	}
}

// absolute is what a fleet took: memory, CPU time, the time of what its users wait for.
func (l *layout) absolute(runs series) string {
	var words []string
	for _, cost := range l.costs {
		if values := runs.values(cost.of); len(values) > 0 {
			words = append(words, cost.write(mean(values))+cost.absolute)
		}
	}
	if len(words) == 0 {
		return "an unknown amount (no samples)"
	}
	return listed(words)
}

// failure says of runs of which one failed that they are not like the others: who serves less, takes less. Empty for runs that passed.
func (l *layout) failure(runs series) string {
	if worst(runs) != VerdictFailed {
		return ""
	}
	if parts := runs.values(l.done.part); len(parts) > 0 {
		return fmt.Sprintf(", and failed (%s: %s %s)", decapitalized(l.done.name), percent(mean(parts)), l.done.detail)
	}
	return ", and failed"
}

// relative is what a fleet took more than the baseline, and what it moved.
func (l load) relative(runs, base series) string {
	var words, times []string
	for _, cost := range l.layout().costs {
		mine, theirs := runs.values(cost.of), base.values(cost.of)
		if len(mine) == 0 || len(theirs) == 0 || cost.timed && l.starved() {
			continue
		}
		text := difference(mine, theirs, cost.difference, cost.write)
		if cost.timed {
			times = append(times, text)
		} else {
			words = append(words, text)
		}
	}
	words = slices.Concat(words, traffic(runs), times)
	if len(words) == 0 {
		return "an unknown amount (no samples)"
	}
	return listed(words)
}

// traffic is what an adapter moved over the network.
func traffic(runs series) []string {
	var words []string
	between := mean(runs.values(totalOf(SeriesDistributionIn)))
	if between > 0 && (runs.adapter() == "ETS" || runs.adapter() == "Mnesia") {
		words = append(words, inUnit(between, "bytes")+" between the nodes")
	}
	if moved := mean(runs.values(totalOf(SeriesRedisIn, SeriesRedisOut))); moved > 0 {
		words = append(words, inUnit(moved, "bytes")+" to and from Redis")
	}
	return words
}

// same is whether nothing shows that runs differ from the baseline in a figure.
func same(values, bases []float64) bool {
	base := mean(bases)
	delta, told := mean(values)-base, compareRuns(values, bases)
	return delta == 0 || told == alike || told == tooFew && base > 0 && math.Abs(delta) < noise*base
}

// difference in words: "12 MB (8 %) more memory".
func difference(values, bases []float64, what string, write func(float64) string) string {
	base := mean(bases)
	delta := mean(values) - base
	if same(values, bases) {
		return "about the same " + what
	}
	word := "more"
	if delta < 0 {
		word = "less"
	}
	if base == 0 {
		return write(math.Abs(delta)) + " " + word + " " + what
	}
	return fmt.Sprintf("%s (%.0f %%) %s %s", write(math.Abs(delta)), 100*math.Abs(delta)/base, word, what)
}

// unsound says which runs do not count, and which did not meet their thresholds.
func unsound(r Report) string {
	var failed, errored, bound, open int
	for _, run := range r.Runs {
		switch {
		case run.ClientBound:
			bound++
		case run.Verdict == VerdictPassed:
		case run.Verdict == VerdictFailed:
			failed++
		case run.Verdict == VerdictErrored:
			errored++
		default:
			open++
		}
	}
	var words []string
	if errored > 0 {
		words = append(words, fmt.Sprintf("%s errored: their figures are in no chart and no comparison", of(errored, len(r.Runs))))
	}
	if bound > 0 {
		words = append(words, fmt.Sprintf("in %s the client was the bottleneck: their times say nothing and are amber, what was counted stands", of(bound, len(r.Runs))))
	}
	if failed > 0 {
		words = append(words, fmt.Sprintf("%s failed a threshold: their figures count, and are marked", of(failed, len(r.Runs))))
	}
	if open > 0 {
		words = append(words, fmt.Sprintf("%s not finished", of(open, len(r.Runs))))
	}
	if len(words) == 0 {
		return ""
	}
	text := strings.Join(words, "; ") + ". The list of runs says why."
	return strings.ToUpper(text[:1]) + text[1:]
}

func of(n, all int) string {
	if all == 1 {
		return "the only run"
	}
	return fmt.Sprintf("%d of %d runs", n, all)
}
