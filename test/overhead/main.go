// Command overhead measures what the agent costs the virtual machine that it is loaded into.
//
//	go run ./overhead -rounds 8
//
// It needs KUBECONFIG, kubectl, helm and a cluster on this machine that has the images; `make bench-overhead` brings all
// that. Two fleets do the same at the same time, one with the agent and one without, and swap after each round. The last
// line of standard output is one JSON object; see docs/reference/overhead.md for its fields.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	o := options{registry: cmp.Or(os.Getenv("REGISTRY"), "ghcr.io/livestash-dev"), version: cmp.Or(os.Getenv("VERSION"), "0.1.0"), out: os.Stdout}
	var check bool
	flag.IntVar(&o.rounds, "rounds", 8, "How many times the fleets are measured. They swap the agent after each.")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "How long the fleets are measured without users.")
	flag.IntVar(&o.users, "users", 200, "Users of the load test, for each fleet.")
	flag.DurationVar(&o.duration, "duration", time.Minute, "Length of the load test, at most 2m.")
	flag.StringVar(&o.workload, "workload", "otp", "The application: otp (no dependencies) or phoenix (the real LiveView and LiveStash).")
	flag.BoolVar(&o.control, "control", false, "Leave the agent out of both fleets: what differs then is the error of the measurement.")
	flag.BoolVar(&o.keep, "keep", false, "Leave the fleets and the operator for a look.")
	flag.BoolVar(&check, "check", false, "Fail when a bound is broken.")
	flag.Parse()
	if err := o.wrong(); err != nil {
		fail(err)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	rounds, err := run(ctx, o)
	cancel()
	if err != nil {
		fail(err)
	}
	printTables(os.Stdout, o, rounds)
	found := summarize(rounds)
	line, err := json.Marshal(found)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
	broken := found.brokenBounds()
	for _, bound := range broken {
		fmt.Fprintln(os.Stderr, "overhead: broken bound:", bound)
	}
	if check && len(broken) > 0 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "overhead:", err)
	os.Exit(1)
}
