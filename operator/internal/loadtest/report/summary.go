package report

import (
	"fmt"
	"math"
	"strings"
)

// noise is the relative difference below which one run says nothing about another.
const noise = 0.02

// overloaded is the p95 of a return without LiveStash, in ms, from which on times tell more about the machines than about adapters:
// eighty times what docs/benchmarks.md has for 1,000 users.
const overloaded = 1000

// summary says in plain words what came back and what is missing: whole sentences. What each adapter cost is answer's.
func summary(r Report) []string {
	var paragraphs []string
	if p := returns(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if p := unsound(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if r.Comparison != nil {
		paragraphs = append(paragraphs, r.Comparison.sentence())
	}
	if r.Message != "" {
		paragraphs = append(paragraphs, r.Message)
	}
	return paragraphs
}

// answer is which adapter cost what, in words.
type answer struct {
	// Lead is what the fleet took without LiveStash.
	Lead string
	// Adapters, each with what it cost.
	Adapters []adapterAnswer
	// Certainty says what differences are worth.
	Certainty string
}

// adapterAnswer is what an adapter cost, to be read behind its name, and for whom it is.
type adapterAnswer struct{ Adapter, Cost, When string }

// choices say for whom an adapter is: docs/how-to/choose-an-adapter.md has the reasons.
var choices = map[string]string{
	"ETS":           "Choose ETS to begin with: there is no other server to run, and a deploy loses nothing. A pod that is killed takes its stashes with it.",
	"BrowserMemory": "Choose BrowserMemory when stashes are small (below 7 kB) and the server should hold nothing.",
	"Redis":         "Choose Redis when the state has to outlive all pods, or a killed pod must cost nobody their state. It is another server to run.",
	"Mnesia":        "Choose Mnesia when a killed pod must cost nobody their state, and there is to be no other server. Each pod holds every stash of the fleet.",
}

// heaviest is the load that tells most: the most adapters with figures, then the most users, then the longest TTL.
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

// costs is what the heaviest load cost with each adapter.
func costs(r Report) answer {
	l, ok := heaviest(r)
	if !ok {
		return answer{Lead: "There is no sound run yet, so this report says nothing about what any adapter costs."}
	}
	all, base := l.repeated(), l.baseline()
	opening := fmt.Sprintf("With %s users and a TTL of %s", grouped(int64(l.users)), span(l.ttl))
	var found answer
	if len(base) == 0 {
		found.Lead = opening + " there is no sound run without LiveStash, so these figures hold what the application itself costs."
	} else {
		found.Lead = fmt.Sprintf("%s, the fleet without LiveStash (%s) took %s.", opening, baselineAdapter, absolute(base))
	}
	fewest := len(all[0])
	for _, runs := range all {
		fewest = min(fewest, len(runs))
		switch {
		case runs.adapter() == baselineAdapter:
		case len(base) == 0:
			found.Adapters = append(found.Adapters, adapterAnswer{runs.adapter(), "took " + absolute(runs) + ".", choices[runs.adapter()]})
		default:
			found.Adapters = append(found.Adapters, adapterAnswer{runs.adapter(), "cost " + relative(runs, base) + ".", choices[runs.adapter()]})
		}
	}
	if len(base) == 0 {
		return found
	}
	if len(found.Adapters) == 0 {
		found.Lead += " No adapter has a sound run at this load, so there is nothing to compare."
		return found
	}
	found.Lead += " Over that:"
	found.Certainty = certainty(fewest)
	if starved(base) {
		found.Certainty += fmt.Sprintf(" Times are not compared: %s for a return without LiveStash means that the fleet or the runners waited,"+
			" most often for CPU. Give them more, or take fewer users.", inUnit(mean(base.values(returnP95)), "ms"))
	}
	return found
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

// starved says that runs without LiveStash show machines that had no time left.
func starved(base series) bool { return mean(base.values(returnP95)) >= overloaded }

// returnP95 is within what time 95 % of the returns were over, in ms.
func returnP95(run Run) (float64, bool) {
	p95, known := anyReturnP95(run)
	return p95, known && run.timed()
}

// totalOf is the growth of what is counted over a whole run, added up over several series.
func totalOf(names ...string) func(Run) (float64, bool) {
	return func(run Run) (float64, bool) {
		sum := 0.0
		for _, name := range names {
			s, ok := run.Samples[name]
			if !ok || s.Total == nil {
				return 0, false
			}
			sum += *s.Total
		}
		return sum, true
	}
}

// costsOf are the figures in which fleets are compared.
var costsOf = []struct {
	of func(Run) (float64, bool)
	// absolute follows a figure, and difference what is more or less than that of the baseline.
	absolute, difference string
	write                func(float64) string
}{
	{peakOf(SeriesMemory), " of memory at its peak", "memory", func(v float64) string { return inUnit(v, "bytes") }},
	{totalOf(SeriesCPU), " of CPU time", "CPU time", func(v float64) string { return significant(v) + " s" }},
	{returnP95, " for a return (p95)", "time for a return (p95)", func(v float64) string { return inUnit(v, "ms") }},
}

// absolute is what a fleet took: memory, CPU time, the time of a return.
func absolute(runs series) string {
	var words []string
	for _, cost := range costsOf {
		if values := runs.values(cost.of); len(values) > 0 {
			words = append(words, cost.write(mean(values))+cost.absolute)
		}
	}
	if len(words) == 0 {
		return "an unknown amount (no samples)"
	}
	return listed(words)
}

// relative is what a fleet took more than the baseline, and what it moved.
func relative(runs, base series) string {
	var words []string
	for i, cost := range costsOf {
		if i == len(costsOf)-1 {
			words = append(words, traffic(runs)...)
			if starved(base) {
				break
			}
		}
		mine, theirs := runs.values(cost.of), base.values(cost.of)
		if len(mine) > 0 && len(theirs) > 0 {
			words = append(words, difference(mine, theirs, cost.difference, cost.write))
		}
	}
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

// returns says whether the state came back.
func returns(r Report) string {
	var recovered, lost, wrong int64
	var bad []string
	for _, run := range r.Runs {
		if !run.sound() || run.Counts == nil || run.Adapter == baselineAdapter {
			continue
		}
		recovered += run.Counts.Of[CountRecovered]
		lost += run.Counts.Of[CountNotRecovered]
		wrong += run.Counts.Of[CountWrong]
		if run.Counts.Of[CountNotRecovered] > 0 || run.Counts.Of[CountWrong] > 0 {
			bad = append(bad, fmt.Sprintf("%s (%s lost, %s wrong)", run.Name, grouped(run.Counts.Of[CountNotRecovered]), grouped(run.Counts.Of[CountWrong])))
		}
	}
	if recovered+lost == 0 {
		return ""
	}
	stale := "none of them wrong"
	if wrong > 0 {
		stale = grouped(wrong) + " of them a wrong one"
	}
	sentence := fmt.Sprintf("%s of %s returns within the TTL brought the state back (%s), %s.",
		grouped(recovered), grouped(recovered+lost), share(recovered, recovered+lost), stale)
	if len(bad) > 0 {
		sentence += " Not all in " + listed(bad) + "."
	}
	return sentence
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
