package main

import (
	"fmt"
	"slices"
	"strings"
)

// ledger is what the commands have written, a line when one begins and one when it ends, and what is known of the rounds.
type ledger struct {
	lines []string
	// rounds is how many templates were asked for; waited are those that were waited for until a pod served with them.
	rounds int
	waited map[int]bool
}

// tally is how often the commands have run.
type tally struct {
	// Once are the templates whose command ran once; of them, Replaced were replaced by the next one before a pod had them.
	Once     int `json:"once"`
	Replaced int `json:"replaced"`
	// None are those that were replaced before their command began.
	None int `json:"none"`
}

// audit holds the lines against the rule. A template that a pod has had ran its command exactly once, from begin to end. One that was replaced
// by the next change before that ran it once or not at all. No two commands run at the same time.
func (l ledger) audit() (t tally, faults []string) {
	begun, ended, faults := l.runs()
	for round := 1; round <= l.rounds; round++ {
		name := fmt.Sprint(round)
		switch runs := begun[name]; {
		case runs > 1 || l.waited[round] && (runs != 1 || ended[name] != 1):
			faults = append(faults, fmt.Sprintf("the command of round %d began %d times and ended %d times", round, runs, ended[name]))
		case runs == 0:
			t.None++
		case l.waited[round]:
			t.Once++
		default:
			t.Once++
			t.Replaced++
		}
		delete(begun, name)
	}
	for round := range begun {
		faults = append(faults, fmt.Sprintf("there was no round %s, and its command began", round))
	}
	slices.Sort(faults)
	return t, faults
}

// runs are how often the commands of each round began and ended, and what is wrong with the order of the lines.
func (l ledger) runs() (begun, ended map[string]int, faults []string) {
	begun, ended = map[string]int{}, map[string]int{}
	running := ""
	for _, line := range l.lines {
		what, round, _ := strings.Cut(line, " ")
		switch {
		case what == "begin":
			begun[round]++
			if running != "" {
				faults = append(faults, fmt.Sprintf("the command of round %s began while that of round %s ran", round, running))
			}
			running = round
		case what == "end" && running == round:
			ended[round]++
			running = ""
		default:
			faults = append(faults, fmt.Sprintf("%q is no line of the command that runs, which is that of round %q", line, running))
		}
	}
	if running != "" {
		faults = append(faults, fmt.Sprintf("the command of round %s has not ended", running))
	}
	return begun, ended, faults
}
