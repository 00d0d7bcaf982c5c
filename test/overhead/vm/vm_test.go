package vm

import (
	"strings"
	"testing"
)

const printed = `warning: something else
VM total=70 processes=14 processes_used=13 system=55 atom=5 atom_used=4 binary=3 code=35 ets=2 process_count=343 agent_memory=9 agent_reductions=8 reductions_before=100 reductions_after=120
:ok
`

func TestParse(t *testing.T) {
	got, err := Parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	want := Figures{
		Total: 70, Processes: 14, Atoms: 5, Binaries: 3, Code: 35, ETS: 2, ProcessCount: 343,
		AgentMemory: 9, AgentReductions: 8, ReductionsBefore: 100, ReductionsAfter: 120,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, output := range map[string]string{
		"nothing":        "",
		"an error":       "** (EXIT) no connection",
		"a figure gone":  strings.Replace(printed, " ets=2", "", 1),
		"a figure wrong": strings.Replace(printed, "ets=2", "ets=two", 1),
	} {
		if got, err := Parse(output); err == nil {
			t.Errorf("%s was read as %+v", name, got)
		}
	}
}
