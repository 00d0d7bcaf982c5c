// Command survival proves that sessions survive: for each adapter and each event it opens sessions on a fleet, does the
// event, and has every session say what it found when it came back.
//
//	go run ./survival -sessions 500
//
// It needs KUBECONFIG, kubectl, helm and a cluster that has the images. `make survival` brings all that. The last lines of
// its output are one JSON object for each adapter and event.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

func main() {
	o := defaults()
	var adapterNames, eventNames, agent, workload, persistence string
	flag.IntVar(&o.sessions, "sessions", o.sessions, "How many sessions are opened for each event.")
	flag.StringVar(&adapterNames, "adapters", strings.Join(o.adapters, " "), "The adapters, separated by spaces or commas.")
	flag.StringVar(&eventNames, "events", strings.Join(o.events, " "),
		"The events, by name or by group (plain, single, pairs, hidden, forgotten, tried, machines), separated by spaces or commas.")
	flag.StringVar(&agent, "agent", "on", "on or off: spec.agent.enabled. With off nothing is promised and nothing fails.")
	flag.StringVar(&workload, "workload", "otp", "The application: otp (no dependencies) or phoenix (the real LiveView and LiveStash).")
	flag.BoolVar(&o.TLS, "tls", false, "spec.clustering.tls.enabled.")
	flag.StringVar(&o.Redis, "redis", o.Redis, "managed or operator: who runs Redis. For operator, redis-operator must be installed in the cluster.")
	flag.StringVar(&persistence, "persistence", "on", "on or off: persistence of Redis. With off, it comes back empty when its pod is replaced.")
	flag.DurationVar(&o.TTL, "ttl", o.TTL, "How long a stash lives. Must be longer than an event takes.")
	flag.DurationVar(&o.stashEvery, "stash-every", o.stashEvery, "Mean time between two stashes of a session that is not idle.")
	flag.DurationVar(&o.maxP99, "max-p99", 500*time.Millisecond, "Longest p99 of the time to be back after a planned event; after two things at once at least 1 s. 0: not judged.")
	flag.BoolVar(&o.together, "together", false, "Do each event to the fleets of all adapters at once: faster, but the times are worth nothing.")
	flag.BoolVar(&o.keep, "keep", false, "Leave the last adapter's fleet and the operator for a look.")
	flag.Parse()
	o.adapters, o.events = words(adapterNames), words(eventNames)
	o.Workload(workload)
	for name, given := range map[string]string{"agent": agent, "persistence": persistence} {
		if given != "on" && given != "off" {
			fail(fmt.Errorf("-%s is %q, but must be on or off", name, given))
		}
	}
	if o.Redis != fleet.Managed && o.Redis != fleet.Operated {
		fail(fmt.Errorf("-redis is %q, but must be %s or %s", o.Redis, fleet.Managed, fleet.Operated))
	}
	o.Agent, o.Persistence = agent == "on", persistence == "on"

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	results, err := run(ctx, o, os.Stdout)
	stop()
	if len(results) > 0 {
		if err := printTable(os.Stdout, o, results); err != nil {
			fail(err)
		}
		if err := printLines(os.Stdout, results); err != nil {
			fail(err)
		}
	}
	if err != nil {
		fail(err)
	}
	if slices.ContainsFunc(results, result.failed) {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "survival:", err)
	os.Exit(1)
}

// defaults are those of `make survival`; what it builds it names in the environment.
func defaults() options {
	return options{
		Options:  fleet.Defaults(),
		sessions: 500, adapters: []string{"ETS", "BrowserMemory", "Redis", "Mnesia"}, stashEvery: 5 * time.Second,
		// All pairs take longer than all else. This one lost everything.
		events: []string{plain, single, hidden, "evict-change-2"},
	}
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' })
}
