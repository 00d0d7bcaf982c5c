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
