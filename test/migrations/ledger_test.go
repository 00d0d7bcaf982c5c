package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAudit(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		want   tally
		faults []string
	}{
		"as it should be":         {lines: "begin 1,end 1,begin 2,end 2,begin 3,end 3", want: tally{Once: 3, Replaced: 1}},
		"one was replaced":        {lines: "begin 1,end 1,begin 3,end 3", want: tally{Once: 2, None: 1}},
		"one ran twice":           {lines: "begin 1,end 1,begin 2,end 2,begin 2,end 2,begin 3,end 3", want: tally{Once: 2}, faults: []string{"the command of round 2 began 2 times and ended 2 times"}},
		"one was never run":       {lines: "begin 1,end 1", want: tally{Once: 1, None: 1}, faults: []string{"the command of round 3 began 0 times and ended 0 times"}},
		"two at the same time":    {lines: "begin 1,begin 3,end 3,end 1", want: tally{Once: 1, None: 1}, faults: []string{`"end 1" is no line of the command that runs, which is that of round ""`, "the command of round 1 began 1 times and ended 0 times", "the command of round 3 began while that of round 1 ran"}},
		"one was killed":          {lines: "begin 1,end 1,begin 3", want: tally{Once: 1, None: 1}, faults: []string{"the command of round 3 began 1 times and ended 0 times", "the command of round 3 has not ended"}},
		"one that nobody ordered": {lines: "begin 1,end 1,begin 3,end 3,begin 9,end 9", want: tally{Once: 2, None: 1}, faults: []string{"there was no round 9, and its command began"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledger{lines: strings.Split(c.lines, ","), rounds: 3, waited: map[int]bool{1: true, 3: true}}
			got, faults := l.audit()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}
