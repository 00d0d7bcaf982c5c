package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 4242 1000 10"
	tests := map[string]struct {
		line      string
		wantState byte
		wantStart uint64
		wantErr   bool
	}{
		"plain":                        {line: "7 (etcd) S" + rest, wantState: 'S', wantStart: 4242},
		"ended":                        {line: "7 (etcd) Z" + rest, wantState: 'Z', wantStart: 4242},
		"a name made to look odd":      {line: "7 (a) Z 1 (b) R" + rest, wantState: 'R', wantStart: 4242},
		"cut short":                    {line: "7 (etcd) S 1 7", wantErr: true},
		"no name":                      {line: "7 etcd S", wantErr: true},
		"a start that is not a number": {line: "7 (x) S 1 7 7 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 soon 1000", wantErr: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state, start, err := parseStat(test.line)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %t", err, test.wantErr)
			}
			if state != test.wantState || start != test.wantStart {
				t.Errorf("got %c and %d, want %c and %d", state, start, test.wantState, test.wantStart)
			}
		})
	}
}

func TestRecordKnowsItsProcess(t *testing.T) {
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	record, err := Of(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "run", "sleep.json")
	if err := record.write(file); err != nil {
		t.Fatal(err)
	}
	record, known, err := ReadRecord(file)
	if err != nil || !known {
		t.Fatalf("known %t, error %v", known, err)
	}
	if !record.Alive() {
		t.Error("a running process is said to have ended")
	}

	// The same process id, but another process: neither alive nor to be touched.
	for name, other := range map[string]Record{
		"another start":   {PID: record.PID, Start: record.Start + 1, Boot: record.Boot},
		"another machine": {PID: record.PID, Start: record.Start, Boot: "another"},
		"nothing":         {},
	} {
		if other.Alive() {
			t.Errorf("%s: taken for the recorded process", name)
		}
		if err := other.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !record.Alive() {
		t.Fatal("a signal to another process ended this one")
	}

	if err := record.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Nobody has waited for it yet: the kernel keeps it as a dead one.
	deadline := time.Now().Add(5 * time.Second)
	for record.Alive() {
		if time.Now().After(deadline) {
			t.Fatal("a process that has ended is said to run")
		}
		time.Sleep(time.Millisecond)
	}
	if err := command.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
	if err := record.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("a signal to an ended process: %v", err)
	}
}

func TestReadRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.json")
	if _, known, err := ReadRecord(file); known || err != nil {
		t.Errorf("no file: known %t, error %v", known, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadRecord(file); err == nil {
		t.Error("half a record was accepted")
	}
}
