package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Knee is how much a variant carries: the last step of a search that held.
type Knee struct {
	// Variant is its name.
	Variant string `json:"variant"`
	// Size is so many users, connections, or requests a second; 0 when the first step did not hold.
	Size int `json:"size"`
	// AtLeast says that the variant carries this much at least: the client gave out, or there was no larger step.
	AtLeast bool `json:"atLeast,omitempty"`
	// Verdict is Passed when a step held, Failed when the first did not, and Errored when the step after it measured nothing.
	Verdict Verdict `json:"verdict"`
	// Message is the same in words, with what ended it.
	Message string `json:"message"`
}

// Holds is whether a step holds of which so many rounds do.
func Holds(held, rounds int) bool { return 2*held > rounds }

// Knees are those of the variants, by the runs of a search, in the order of the variants' first runs.
func Knees(r Report) []Knee {
	var names []string
	for _, run := range r.Runs {
		if !slices.Contains(names, run.variant()) {
			names = append(names, run.variant())
		}
	}
	knees := make([]Knee, 0, len(names))
	for _, name := range names {
		knees = append(knees, kneeOf(r, name))
	}
	return knees
}

// stepsOf are the sizes of a variant that ran, with their runs.
func stepsOf(r Report, name string) []load {
	var sizes []load
	for _, run := range r.Runs {
		if run.variant() != name {
			continue
		}
		place := slices.IndexFunc(sizes, func(l load) bool { return l.sameAs(newLoad(r.Spec, run)) })
		if place < 0 {
			sizes, place = append(sizes, newLoad(r.Spec, run)), len(sizes)
		}
		sizes[place].runs = append(sizes[place].runs, run)
	}
	return sizes
}

// stepEnd is what came of the rounds of a step together.
type stepEnd int

const (
	stepHeld stepEnd = iota
	// stepFailed is one that would not hold, whatever the rounds that say nothing had said.
	stepFailed
	clientGaveOut
	stepMeasuredNothing
)

// usedUp is the part of its CPU from which on a server has no more.
const usedUp = 0.95

// endOf is what came of the rounds of a step, and the message of the first that decided it.
func endOf(rounds []Run) (end stepEnd, why string) {
	messages, count := map[stepEnd]string{}, map[stepEnd]int{}
	for _, run := range rounds {
		one, message := stepMeasuredNothing, run.Message
		switch gaveOut := run.gaveOut(); {
		case run.Verdict == VerdictPassed:
			one = stepHeld
		case run.Verdict == VerdictFailed:
			one = stepFailed
		case run.ClientBound && gaveOut != "":
			one, message = stepFailed, gaveOut
		case run.ClientBound:
			one = clientGaveOut
		}
		count[one]++
		messages[one] = cmp.Or(messages[one], message)
	}
	switch {
	case Holds(count[stepHeld], len(rounds)):
		end = stepHeld
	case !Holds(len(rounds)-count[stepFailed], len(rounds)):
		end = stepFailed
	case count[clientGaveOut] > 0:
		end = clientGaveOut
	default:
		end = stepMeasuredNothing
	}
	return end, messages[end]
}

// gaveOut says that it was the server that gave out, even if the client was late as well: its pods had used up their CPU, and too much failed. Empty:
// it was not, or nobody knows.
func (r Run) gaveOut() string {
	if r.Counts == nil || r.CPULimit == 0 || r.CPUAfterRamp == nil || *r.CPUAfterRamp < usedUp*r.CPULimit || r.Counts.HasQuantile(DurationDelivery, 0.95) {
		return ""
	}
	good, all := r.Counts.outcome()
	return fmt.Sprintf("%s of %s came to no good end, and the pods used %s of the %s cores that they may", shareOf(all-good, all), grouped(all),
		significant(*r.CPUAfterRamp), significant(r.CPULimit))
}

// CPUAfterRamp is the mean of the pods' CPU time from when all users of a run are to be there, in cores. Nil when that was not sampled as a whole.
func CPUAfterRamp(r Run) *float64 {
	var used []float64
	for _, point := range r.Samples[SeriesPodCPU].Points {
		// A rate is one since the point before.
		if point[0] > r.RampSeconds+10 {
			used = append(used, point[1])
		}
	}
	if len(used) == 0 || r.SampledSeconds != nil {
		return nil
	}
	mean := mean(used)
	return &mean
}

// kneeOf goes through the steps of a variant, up to the first that does not hold.
func kneeOf(r Report, name string) Knee {
	knee := Knee{Variant: name, Verdict: VerdictPassed}
	last := ""
	steps := stepsOf(r, name)
	for _, step := range steps {
		end, why := endOf(step.runs)
		if end == stepHeld {
			knee.Size, last = cmp.Or(step.rate, step.users), step.title()
			continue
		}
		switch {
		case end == stepMeasuredNothing:
			knee.Verdict, knee.AtLeast = VerdictErrored, knee.Size > 0
			knee.Message = fmt.Sprintf("%s: %s measured nothing: %s", name, step.title(), why)
		case end == clientGaveOut && knee.Size == 0:
			knee.Verdict = VerdictErrored
			knee.Message = fmt.Sprintf("%s: the client gave out in the first step, %s: %s", name, step.title(), why)
		case end == clientGaveOut:
			knee.AtLeast = true
			knee.Message = fmt.Sprintf("%s carries ≥ %s: with %s the client gave out: %s", name, last, step.title(), why)
		case knee.Size == 0:
			knee.Verdict = VerdictFailed
			knee.Message = fmt.Sprintf("%s does not carry the first step, %s: %s. Begin with fewer", name, step.title(), strings.TrimSuffix(why, "."))
		default:
			knee.Message = fmt.Sprintf("%s carries %s; %s did not hold: %s", name, last, step.title(), why)
		}
		return knee
	}
	knee.AtLeast = true
	knee.Message = fmt.Sprintf("%s carries ≥ %s: all %d steps held", name, last, len(steps))
	return knee
}

// kneesInWords is what was found, and how the others' knees are to that of the baseline.
func kneesInWords(r Report) string {
	if len(r.Knees) == 0 {
		return ""
	}
	var words []string
	base := cmp.Or(r.Spec.Baseline, withoutLiveStash)
	place := slices.IndexFunc(r.Knees, func(k Knee) bool { return k.Variant == base })
	for _, knee := range r.Knees {
		text := strings.TrimSuffix(knee.Message, ".")
		if place >= 0 && knee.Variant != base && knee.Size > 0 && r.Knees[place].Size > 0 {
			text += fmt.Sprintf(" (%s times the knee of %s%s)", significant(float64(knee.Size)/float64(r.Knees[place].Size)), base, ratioNote(knee, r.Knees[place]))
		}
		words = append(words, text+".")
	}
	return strings.Join(words, " ")
}

// ratioNote says what a ratio of knees is worth.
func ratioNote(knee, base Knee) string {
	switch {
	case knee.AtLeast && base.AtLeast:
		return ", and neither knee was reached"
	case knee.AtLeast:
		return " at least"
	case base.AtLeast:
		return " at most"
	}
	return ""
}
