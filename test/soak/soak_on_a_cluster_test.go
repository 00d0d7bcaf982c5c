package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSoak is `make soak` at the size of a test: three minutes of graceful events, all adapters at once, with a seed of its own
// in each run. SEED, MINUTES and ADAPTERS repeat one that failed.
func TestSoak(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make test-survival`, or set it to a cluster for tests that has the images")
	}
	args := []string{"-together", "-users=60", "-adapters=ETS Mnesia Redis BrowserMemory", "-minutes=3"}
	for _, name := range []string{"SEED", "MINUTES", "ADAPTERS"} {
		if value := os.Getenv(name); value != "" {
			args = append(args, "-"+strings.ToLower(name)+"="+value)
		}
	}
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	// First, for a run that does not come to its end.
	_, _ = fmt.Fprintf(t.Output(), "SEED=%d\n", o.seed)
	results, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Errorf("SEED=%d: %v", o.seed, err)
	}
	if len(results) != len(o.adapters) {
		t.Errorf("SEED=%d: %d of %d fleets have a result", o.seed, len(results), len(o.adapters))
	}
	for _, r := range results {
		t.Run(r.Adapter, func(t *testing.T) {
			if r.failed() {
				var said bytes.Buffer
				if err := r.print(&said); err != nil {
					t.Fatal(err)
				}
				t.Errorf("SEED=%d: %s", r.Seed, said.String())
			}
			if r.Stashes == 0 || r.Returns == 0 {
				t.Errorf("SEED=%d: nobody stashed, or nobody came back", r.Seed)
			}
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			// Read by hack/survival.
			_, _ = fmt.Fprintf(t.Output(), "soak: %s\n", line)
		})
	}
}
