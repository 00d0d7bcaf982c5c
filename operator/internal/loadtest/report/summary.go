package report

import (
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

// summary says in plain words which adapter cost what: whole paragraphs, the answer first. It says as well what is
// missing.
func summary(r Report) []string {
	paragraphs := []string{costs(r)}
	if p := returns(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if p := unsound(r); p != "" {
		paragraphs = append(paragraphs, p)
	}
	if r.Message != "" {
		paragraphs = append(paragraphs, r.Message)
	}
	return paragraphs
}

// heaviest is the load that tells most: the most adapters with figures, then the most users, then the longest TTL.
func heaviest(r Report) (load, bool) {
	var best load
	var found bool
	for _, l := range loads(r) {
		n := len(l.sound())
		if n == 0 {
			continue
		}
		m := len(best.sound())
		if !found || n > m || n == m && (l.users > best.users || l.users == best.users && l.ttl > best.ttl) {
			best, found = l, true
		}
	}
	return best, found
}

func costs(r Report) string {
	l, ok := heaviest(r)
	if !ok {
		return "There is no sound run yet, so this report says nothing about what any adapter costs."
	}
	runs := l.sound()
	baseline := slices.IndexFunc(runs, func(run Run) bool { return run.Adapter == "None" })
	opening := fmt.Sprintf("With %s users and a TTL of %s", grouped(int64(l.users)), span(l.ttl))
	if baseline < 0 {
		var words []string
		for _, run := range runs {
			words = append(words, "with "+run.Adapter+" the fleet took "+absolute(run))
		}
		return opening + ", " + strings.Join(words, "; ") + ". There is no sound run without LiveStash at this load, so these figures hold what the application itself costs."
	}
	base := runs[baseline]
	sentence := fmt.Sprintf("%s, the fleet without LiveStash (None) took %s.", opening, absolute(base))
	var words []string
	for _, run := range runs {
		if run.Adapter != "None" {
			words = append(words, run.Adapter+" cost "+relative(run, base))
		}
	}
	if len(words) == 0 {
		return sentence + " No adapter has a sound run at this load, so there is nothing to compare."
	}
	sentence += " Over that, " + strings.Join(words, "; ") + ". One run each: differences of a few percent mean nothing."
	if starved(base) {
		sentence += fmt.Sprintf(" Times are not compared: %s for a return without LiveStash means that the fleet or the runners waited,"+
			" most often for CPU. Give them more, or take fewer users.", inUnit(base.Durations["reconnect"].P95, "ms"))
	}
	return sentence
}

// starved says that a run without LiveStash shows machines that had no time left.
func starved(base Run) bool { return base.timed() && base.Durations["reconnect"].P95 >= overloaded }

// absolute is what a fleet took: memory, CPU time, the time of a return.
func absolute(run Run) string {
	var words []string
	if s, ok := run.Samples[SeriesMemory]; ok {
		words = append(words, inUnit(s.Peak, "bytes")+" of memory at its peak")
	}
	if total, ok := total(run, SeriesCPU); ok {
		words = append(words, significant(total)+" s of CPU time")
	}
	if d := run.Durations["reconnect"]; d.Count > 0 && run.timed() {
		words = append(words, inUnit(d.P95, "ms")+" for a return (p95)")
	}
	if len(words) == 0 {
		return "an unknown amount (no samples)"
	}
	return listed(words)
}

// relative is what a run took more than the baseline.
func relative(run, base Run) string {
	var words []string
	mine, ok := run.Samples[SeriesMemory]
	theirs, also := base.Samples[SeriesMemory]
	if ok && also {
		words = append(words, difference(mine.Peak, theirs.Peak, "memory", func(v float64) string { return inUnit(v, "bytes") }))
	}
	cpu, ok := total(run, SeriesCPU)
	baseCPU, also := total(base, SeriesCPU)
	if ok && also {
		words = append(words, difference(cpu, baseCPU, "CPU time", func(v float64) string { return significant(v) + " s" }))
	}
	words = append(words, traffic(run)...)
	d, b := run.Durations["reconnect"], base.Durations["reconnect"]
	if d.Count > 0 && b.Count > 0 && run.timed() && base.timed() && !starved(base) {
		words = append(words, difference(d.P95, b.P95, "time for a return (p95)", func(v float64) string { return inUnit(v, "ms") }))
	}
	if len(words) == 0 {
		return "an unknown amount (no samples)"
	}
	return listed(words)
}

// traffic is what an adapter moved over the network.
func traffic(run Run) []string {
	var words []string
	if moved, ok := total(run, SeriesDistributionIn); ok && moved > 0 && (run.Adapter == "ETS" || run.Adapter == "Mnesia") {
		words = append(words, inUnit(moved, "bytes")+" between the nodes")
	}
	in, ok := total(run, SeriesRedisIn)
	out, also := total(run, SeriesRedisOut)
	if ok && also && in+out > 0 {
		words = append(words, inUnit(in+out, "bytes")+" to and from Redis")
	}
	return words
}

func total(run Run, series string) (float64, bool) {
	s, ok := run.Samples[series]
	if !ok || s.Total == nil {
		return 0, false
	}
	return *s.Total, true
}

// difference in words: "12 MB (8 %) more memory".
func difference(value, base float64, what string, write func(float64) string) string {
	delta := value - base
	if delta == 0 || base > 0 && math.Abs(delta) < noise*base {
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
		if !run.sound() || run.Counts == nil || run.Adapter == "None" {
			continue
		}
		recovered += run.Counts.Recovered
		lost += run.Counts.NotRecovered
		wrong += run.Counts.WrongCount
		if run.Counts.NotRecovered > 0 || run.Counts.WrongCount > 0 {
			bad = append(bad, fmt.Sprintf("%s (%s lost, %s wrong)", run.Name, grouped(run.Counts.NotRecovered), grouped(run.Counts.WrongCount)))
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
		words = append(words, fmt.Sprintf("in %s the client was the bottleneck: their times say nothing and are grey, what was counted stands", of(bound, len(r.Runs))))
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
	text := strings.Join(words, "; ") + ". The table of runs says why."
	return strings.ToUpper(text[:1]) + text[1:]
}

func of(n, all int) string {
	if all == 1 {
		return "the only run"
	}
	return fmt.Sprintf("%d of %d runs", n, all)
}
