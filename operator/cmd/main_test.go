package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestProgramStaysSmall: what a program does not contain, no node has to load or keep in memory.
func TestProgramStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	heavy := map[string]string{
		"text/template":          "its reflection makes the linker keep each method of each type: 24 MB",
		"k8s.io/apiserver/":      "the API server's own packages: 10 MB",
		"google.golang.org/grpc": "nobody is asked over gRPC",
		"go.opentelemetry.io/":   "nobody is told of traces",
	}
	for name := range strings.Lines(string(out)) {
		for prefix, why := range heavy {
			if strings.HasPrefix(name, prefix) {
				t.Errorf("the operator contains %s: %s", strings.TrimSpace(name), why)
			}
		}
	}
}

// The collector must know of the container's limit, or else the kernel kills the operator with garbage in its memory.
func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]int64{"268435456": 241591905, "": 0, "lots": 0, "-1": 0} {
		t.Setenv("CONTAINER_MEMORY_LIMIT", limit)
		if got := memoryLimit(); got != want {
			t.Errorf("%q bytes: the limit is %d, want %d", limit, got, want)
		}
	}
	t.Setenv("CONTAINER_MEMORY_LIMIT", "268435456")
	t.Setenv("GOMEMLIMIT", "100MiB")
	if got := memoryLimit(); got != 0 {
		t.Errorf("GOMEMLIMIT is set, and the limit is %d", got)
	}
}
