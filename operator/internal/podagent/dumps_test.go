package podagent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const dumpBegin = "=erl_crash_dump:0.5\nMon Nov 23 19:00:00 2026\nSlogan: eheap_alloc: Cannot allocate 1024 bytes of memory (of type \"heap\").\n"

func listed(t *testing.T, d Dumps) []Dump {
	t.Helper()
	var text bytes.Buffer
	if err := d.List(&text); err != nil {
		t.Fatal(err)
	}
	var dumps []Dump
	if err := json.Unmarshal(text.Bytes(), &dumps); err != nil {
		t.Fatal(err)
	}
	return dumps
}

// TestDumpsAreKept: the newest, each under a name of its own, and nothing else is touched.
func TestDumpsAreKept(t *testing.T) {
	dir := t.TempDir()
	d := Dumps{File: filepath.Join(dir, "erl_crash.dump"), Keep: 2}
	now := time.Date(2026, 11, 23, 19, 0, 0, 0, time.UTC)
	if name, err := d.keep(now); name != "" || err != nil {
		t.Fatalf("kept %q, %v of nothing", name, err)
	}
	if got := listed(t, d); len(got) != 0 {
		t.Fatalf("%v is listed of nothing", got)
	}
	for _, other := range []string{"erl_crash-.dump", "notes.txt", "erl_crash-20261123T190000.000Z.dump.gz"} {
		if err := os.WriteFile(filepath.Join(dir, other), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, text := range []string{dumpBegin, dumpBegin + "=proc", dumpBegin + "\n=end\n"} {
		if err := os.WriteFile(d.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if name, err := d.keep(now.Add(time.Duration(i) * time.Minute)); name == "" || err != nil {
			t.Fatalf("dump %d: kept as %q, %v", i, name, err)
		}
	}
	const why = `eheap_alloc: Cannot allocate 1024 bytes of memory (of type "heap").`
	want := []Dump{
		{Name: "erl_crash-20261123T190200.000Z.dump", Time: now.Add(2 * time.Minute), Bytes: int64(len(dumpBegin) + 6), Complete: true, Slogan: why},
		{Name: "erl_crash-20261123T190100.000Z.dump", Time: now.Add(time.Minute), Bytes: int64(len(dumpBegin) + 5), Slogan: why},
	}
	if diff := cmp.Diff(want, listed(t, d)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Errorf("%v is in the folder, %v", entries, err)
	}
}

// TestDumpThatIsBeingWritten: it gets its name at once, and is whole in the end.
func TestDumpThatIsBeingWritten(t *testing.T) {
	d := Dumps{File: filepath.Join(t.TempDir(), "erl_crash.dump"), Keep: 1}
	writer, err := os.Create(d.File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString(dumpBegin); err != nil {
		t.Fatal(err)
	}
	name, err := d.keep(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); len(got) != 1 || got[0].Complete {
		t.Errorf("half of it is listed as %+v", got)
	}
	if _, err := writer.WriteString("=proc:<0.0.0>\n=end\n"); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); len(got) != 1 || !got[0].Complete {
		t.Errorf("the whole is listed as %+v", got)
	}
	var copied strings.Builder
	if err := d.Copy(&copied, name); err != nil || copied.String() != dumpBegin+"=proc:<0.0.0>\n=end\n" {
		t.Errorf("copied %q, %v", copied.String(), err)
	}
}

func TestDumpNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := Dumps{File: filepath.Join(dir, "dumps", "erl_crash.dump"), Keep: 1}
	for _, name := range []string{"", "../secret", "erl_crash-20261123T190000.000Z.dump/../../secret", "erl_crash.dump", "../erl_crash-20261123T190000.000Z.dump"} {
		if err := d.Copy(io.Discard, name); err == nil || !strings.Contains(err.Error(), "no name of a crash dump") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := d.List(io.Discard); err == nil || !strings.Contains(err.Error(), "no crash dumps are kept here") {
		t.Errorf("without a folder: %v", err)
	}
	if got := slogan(strings.NewReader("Slogan: a" + strings.Repeat("é", 400))); len(got) > 310 || !strings.HasSuffix(got, "é…") {
		t.Errorf("a long slogan: %q", got)
	}
}

// A dump is what the application wrote: of one that has no slogan at its beginning the rest is not searched, and what is no file is none.
func TestHostileDumps(t *testing.T) {
	dir := t.TempDir()
	d := Dumps{File: filepath.Join(dir, "erl_crash.dump"), Keep: 9}
	for name, lines := range map[string]int{"20261123T190000.000Z": 100, "20261123T190100.000Z": 200} {
		text := strings.Repeat(strings.Repeat("x", 49)+"\n", lines) + dumpBegin
		if err := os.WriteFile(filepath.Join(dir, "erl_crash-"+name+".dump"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "erl_crash-20261123T190200.000Z.dump")); err != nil {
		t.Fatal(err)
	}
	dumps := listed(t, d)
	if len(dumps) != 2 || dumps[0].Slogan != "" || dumps[1].Slogan == "" {
		t.Errorf("%+v", dumps)
	}
}

// TestWatchDumps: what appears is kept, and what cannot be is told once.
func TestWatchDumps(t *testing.T) {
	dir := t.TempDir()
	d := Dumps{File: filepath.Join(dir, "erl_crash.dump"), Keep: 1}
	var said bytes.Buffer
	if err := os.WriteFile(d.File, []byte(dumpBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer stop()
	d.Watch(ctx, log.New(&said, "", 0))
	if !strings.Contains(said.String(), "its dump is kept as erl_crash-") || len(listed(t, d)) != 1 {
		t.Errorf("said %q", said.String())
	}

	said.Reset()
	d.File = filepath.Join(dir, "file", "erl_crash.dump")
	if err := os.WriteFile(filepath.Dir(d.File), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop = context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer stop()
	d.Watch(ctx, log.New(&said, "", 0))
	if got := strings.Count(said.String(), "cannot keep crash dumps"); got != 1 {
		t.Errorf("said %q", said.String())
	}
}
