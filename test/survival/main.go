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
	var adapterNames, eventNames, kindNames, agent, workload, persistence, shadow string
	flag.IntVar(&o.sessions, "sessions", o.sessions, "How many sessions are opened for each event.")
	flag.StringVar(&adapterNames, "adapters", strings.Join(o.adapters, " "), "The adapters, separated by spaces or commas.")
	flag.StringVar(&eventNames, "events", strings.Join(o.events, " "),
		"The events, by name or by group (plain, killing, single, pairs, hidden, forgotten, tried, upgrades, cookies, moved, machines, faults), separated by spaces or commas.")
	flag.StringVar(&agent, "agent", "on", "on or off: spec.agent.enabled. With off nothing is promised and nothing fails.")
	flag.StringVar(&shadow, "shadow", "off", "on or off: spec.shadow.enabled, with ETS. With on, killed pods lose nothing but what was stashed in the last two seconds, which is counted apart.")
	flag.StringVar(&workload, "workload", "otp", "The application: otp (no dependencies) or phoenix (the real LiveView and LiveStash).")
	flag.BoolVar(&o.TLS, "tls", false, "spec.clustering.tls.enabled.")
	flag.StringVar(&o.Redis, "redis", o.Redis, "managed or operator: who runs Redis. For operator, redis-operator must be installed in the cluster.")
	flag.StringVar(&persistence, "persistence", "on", "on or off: persistence of Redis. With off, it comes back empty when its pod is replaced.")
	flag.DurationVar(&o.TTL, "ttl", o.TTL, "How long a stash lives. Must be longer than an event takes.")
	flag.DurationVar(&o.stashEvery, "stash-every", o.stashEvery, "Mean time between two stashes of a session that is not idle.")
	flag.DurationVar(&o.maxP99, "max-p99", 500*time.Millisecond, "Longest p99 of the time to be back after a planned event; after two things at once at least 1 s. 0: not judged.")
	flag.StringVar(&o.Surge, "surge", o.Surge, "spec.rollout.surge. Empty: the API's default.")
	flag.StringVar(&o.MaxLoadFactor, "max-load-factor", "", "spec.rollout.maxLoadFactor. With 1 users get to all pods in a rollout.")
	flag.BoolVar(&o.together, "together", false, "Do each event to the fleets of all adapters at once: faster, but the times are worth nothing.")
	flag.IntVar(&o.copies, "copies", o.copies, "How many fleets of each adapter there are, to all of which an event is done at once. Their numbers are added up; the times are the worst of them.")
	flag.StringVar(&o.canaryImage, "canary-image", "", "Image of a release whose pages have another LiveStash version, for the event canary. Empty: the same image, with STASH_VERSION, which the workload without dependencies reads.")
	flag.IntVar(&o.atOnce, "at-once", o.atOnce, "How many fleets the operator may upgrade at the same time, for the event upgrade-now.")
	flag.BoolVar(&o.keep, "keep", false, "Leave the last adapter's fleet and the operator for a look.")
	flag.IntVar(&o.tabs, "tabs", 0, "How many tabs of each kind a real browser has, in place of -sessions. It needs the pods on this machine, Chromium and nginx.")
	flag.StringVar(&kindNames, "kinds", "", "The kinds of tabs: websocket, hidden, longpoll, each also with -nginx (through a proxy) or -busy (in the middle of an event). Empty: all.")
	flag.DurationVar(&o.shownAfter, "shown-after", o.shownAfter, "How long after an event a user looks at a hidden tab again.")
	flag.IntVar(&o.PayloadKeys, "payload-keys", 0, "STASH_PAYLOAD_KEYS: how large a stash is. 0: the application's default.")
	flag.Parse()
	var err error
	if o.kinds, err = chooseKinds(words(kindNames)); err != nil {
		fail(err)
	}
	o.adapters, o.events = words(adapterNames), words(eventNames)
	o.Workload(workload)
	for name, given := range map[string]string{"agent": agent, "persistence": persistence, "shadow": shadow} {
		if given != "on" && given != "off" {
			fail(fmt.Errorf("-%s is %q, but must be on or off", name, given))
		}
	}
	if o.Redis != fleet.Managed && o.Redis != fleet.Operated {
		fail(fmt.Errorf("-redis is %q, but must be %s or %s", o.Redis, fleet.Managed, fleet.Operated))
	}
	if o.copies < 1 || o.atOnce < 1 {
		fail(fmt.Errorf("-copies is %d and -at-once is %d, but both must be at least 1", o.copies, o.atOnce))
	}
	o.Agent, o.Persistence, o.Shadow = agent == "on", persistence == "on", shadow == "on"

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
		sessions: 500, copies: 1, atOnce: 1, adapters: []string{"ETS", "BrowserMemory", "Redis", "Mnesia"}, stashEvery: 5 * time.Second, shownAfter: 30 * time.Second,
		// All pairs take longer than all else. This one lost everything.
		events: []string{plain, single, hidden, "evict-change-2"},
	}
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' })
}
