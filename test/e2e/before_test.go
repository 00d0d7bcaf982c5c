package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// migrating is a fleet whose release runs an Elixir expression before a rollout.
func migrating(step, expression string) string {
	return fmt.Sprintf("adapter: ETS\nreplicas: 2\nenv: [{name: STEP, value: %s}]\nrollout:\n  surge: Auto\n  before:\n    command: [bin/workload, eval]\n    args: ['%s']", step, expression)
}

// A command of the release runs before the first pod of a new template. When it fails, users stay where they are, and its last lines
// say why.
func TestCommandBeforeARollout(t *testing.T) {
	t.Parallel()
	const good = `IO.puts("migrated " <> System.fetch_env!("STEP"))`
	s := newSpace(t, "before")
	s.apply(migrating("one", good))
	s.settled()
	if log := s.must("", "logs", "job/shop-before"); log != "migrated one" {
		t.Errorf("the command says %q", log)
	}
	s.rows("shop-0", 200)
	pods := func() string {
		return s.must("", "get", "pods", "-l", "app.kubernetes.io/component=fleet", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := pods()

	s.apply(migrating("two", `raise "no such table"`))
	s.eventually(2*time.Minute, func() error {
		if says := s.condition("Stalled"); !strings.HasPrefix(says, "True BeforeFailed") || !strings.Contains(says, "no such table") {
			return fmt.Errorf("the condition says %q", says)
		}
		return nil
	})
	t.Log(s.condition("Progressing"))
	if now := pods(); now != before {
		t.Errorf("the pods were %s and are %s", before, now)
	}
	// The operator sends events after the status, and waits for no answer.
	s.eventually(time.Minute, func() error {
		if events := s.must("", "get", "events", "--field-selector", "reason=BeforeFailed", "-o", "name"); events == "" {
			return errors.New("no event says that it failed")
		}
		return nil
	})

	s.apply(migrating("two", good))
	s.settled()
	if log := s.must("", "logs", "job/shop-before"); log != "migrated two" {
		t.Errorf("the command says %q", log)
	}
	if step, err := s.rpc("shop-0", `System.fetch_env!("STEP")`); err != nil || step != `"two"` {
		t.Errorf("shop-0 has %s, %v", step, err)
	}
	s.held(200, "shop-0", "shop-1")
}
