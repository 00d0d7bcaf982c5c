package main

import (
	"bytes"
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
	for flag, value := range map[string]string{"seed": os.Getenv("SEED"), "minutes": os.Getenv("MINUTES"), "adapters": os.Getenv("ADAPTERS")} {
		if value != "" {
			args = append(args, "-"+flag+"="+value)
		}
	}
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	results, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Errorf("SEED=%d: %v", o.seed, err)
	}
	if len(results) != len(o.adapters) {
		t.Errorf("SEED=%d: %d of %d fleets have a result", o.seed, len(results), len(o.adapters))
	}
	for _, r := range results {
		t.Run(r.Adapter, func(t *testing.T) {
			var said bytes.Buffer
			if err := r.print(&said); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			if r.failed() {
				t.Errorf("SEED=%d: %s", r.Seed, said.String())
			}
			if r.Stashes == 0 || r.Returns == 0 {
				t.Errorf("SEED=%d: nobody stashed, or nobody came back", r.Seed)
			}
			// Read by hack/survival.
			_, _ = fmt.Fprintln(t.Output(), "soak:", lines[len(lines)-1])
		})
	}
}
