package loadtest

import (
	"encoding/json"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// files are the report of a run with these figures, which must be one that can be read back.
func files(t *testing.T, run report.Run) {
	t.Helper()
	run.Name, run.Adapter, run.Verdict = "fuzz", "ETS", report.VerdictPassed
	written, err := report.Files(report.Report{SchemaVersion: report.SchemaVersion, Runs: []report.Run{run}}, report.MaxBytes)
	if err != nil {
		t.Fatalf("no report can be written: %v", err)
	}
	if _, err := report.Parse([]byte(written[report.FileJSON])); err != nil {
		t.Errorf("the report cannot be read back: %v", err)
	}
}

// A runner's report is what a container of the user's wrote. Whatever is taken of it, a benchmark's report can be written and read back.
func FuzzRunnerReport(f *testing.F) {
	f.Add(soundReport)
	f.Fuzz(func(t *testing.T, message string) {
		read, err := ParseRunnerReport(message)
		if err != nil {
			return
		}
		result := Merge(visits{}, []RunnerReport{read, read})
		files(t, report.Run{Counts: &result.Counts, Durations: result.Durations})
	})
}

// The samples are in a ConfigMap that a user may edit.
func FuzzRecorder(f *testing.F) {
	r := NewRecorder(start)
	hear(r, after(5), 1, map[string]agentclient.Metrics{"shop-0": {Processes: 7, HTTPIn: 3}})
	text, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := ParseRecorder(text)
		if err != nil {
			return
		}
		for i := range 3 {
			hear(read, after(5*i), 1, map[string]agentclient.Metrics{"shop-0": {Processes: 7, HTTPIn: 1e16}})
		}
		if _, err := json.Marshal(read); err != nil {
			t.Errorf("it cannot be written down again: %v", err)
		}
		files(t, report.Run{Samples: read.Series()})
	})
}
