package podagent

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// cgroups writes the files of control groups into a folder of its own.
func cgroups(t *testing.T, files map[string]string) string {
	t.Helper()
	mount := t.TempDir()
	for name, text := range files {
		file := filepath.Join(mount, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mount
}

func TestUsage(t *testing.T) {
	v2 := map[string]string{
		"memory.current": "5000\n", "memory.stat": "anon 3000\ninactive_file 1500\n", "cpu.stat": "usage_usec 2500000\nuser_usec 2\n", "cgroup.events": "populated 1\n",
	}
	below := func(folder string, more map[string]string) map[string]string {
		all := map[string]string{"cpu.stat": "usage_usec 99\n", "memory.stat": "inactive_file 1\n"}
		for name, text := range more {
			all[folder+name] = text
		}
		return all
	}
	v1 := func(controller string) map[string]string {
		return map[string]string{
			"memory/memory.usage_in_bytes": "7000\n", "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 3000\n", controller + "/cpuacct.usage": "1250000000\n",
		}
	}
	node := v1("cpuacct")
	node["cpuacct/release_agent"] = ""
	for name, test := range map[string]struct {
		files                map[string]string
		own                  string
		memory, microseconds int64
	}{
		"version 2":                                  {v2, "0::/\n", 3500, 2500000},
		"version 2, told of the node's path":         {v2, "0::/kubepods/pod1/c1\n", 3500, 2500000},
		"version 2, with all of the node's groups":   {below("kubepods/c1/", v2), "0::/kubepods/c1\n", 3500, 2500000},
		"version 2, the node itself":                 {below("kubepods/c1/", v2), "0::/\n", 0, 0},
		"version 1":                                  {v1("cpuacct"), "3:memory:/kubepods/c1\n2:cpu,cpuacct:/kubepods/c1\n", 4000, 1250000},
		"version 1, both controllers in one":         {v1("cpu,cpuacct"), "3:memory:/kubepods/c1\n2:cpu,cpuacct:/kubepods/c1\n", 4000, 1250000},
		"version 1, both in one, the other way":      {v1("cpuacct,cpu"), "3:memory:/kubepods/c1\n2:cpuacct,cpu:/kubepods/c1\n", 4000, 1250000},
		"version 1, the node itself":                 {node, "3:memory:/\n2:cpuacct:/\n", 0, 0},
		"nothing":                                    {nil, "what is this\n", 0, 0},
		"a figure that is none":                      {map[string]string{"memory.current": "max\n", "memory.stat": "inactive_file 1\n"}, "0::/\n", 0, 0},
		"more droppable than there is: nothing less": {map[string]string{"memory.current": "1\n", "memory.stat": "inactive_file 2\n", "cpu.stat": "usage_usec 7\n", "cgroup.events": ""}, "0::/\n", 0, 7},
	} {
		memory, microseconds, err := usage(cgroups(t, test.files), test.own)
		if memory != test.memory || microseconds != test.microseconds || (err == nil) != (microseconds > 0) {
			t.Errorf("%s: %d bytes, %d µs, %v; want %d and %d", name, memory, microseconds, err, test.memory, test.microseconds)
		}
	}
}

// The file holds what the machine that runs this test says, or is not there and the log says why.
func TestTellUsage(t *testing.T) {
	dir := cgroups(t, map[string]string{usageFile: "of yesterday"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var said bytes.Buffer
	tellUsage(ctx, dir, 10*time.Millisecond, log.New(&said, "", 0))
	text, err := os.ReadFile(filepath.Join(dir, usageFile))
	if err != nil {
		if !strings.Contains(said.String(), errNoUsage.Error()) {
			t.Errorf("no file, and the log says %q", said.String())
		}
		return
	}
	var memory, microseconds int64
	if n, err := fmt.Sscanf(string(text), "%d %d\n", &memory, &microseconds); n != 2 || err != nil || memory <= 0 || microseconds <= 0 {
		t.Errorf("the file says %q", text)
	}
}
