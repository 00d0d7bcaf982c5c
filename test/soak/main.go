// Command soak puts a fleet through random, overlapping events for some minutes, while many users stash, leave and come back, and
// keeps a ledger: whatever was acknowledged must be there when its user returns, or an ungraceful event must explain why not.
//
//	go run ./soak -adapters ETS -minutes 10 -seed 7
//
// It needs KUBECONFIG, kubectl, helm and a cluster that has the images. `make soak` brings all that. The last line of its output
// is one JSON object; there is one for each adapter.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/schedule"
)

// options are what a run is about. The flags say what each means.
type options struct {
	fleet.Options
	adapters []string
	workload string
	users    int
	pods     int
	minutes  float64
	seed     uint64
	faults   bool
	// together puts the fleets of all adapters through their events at the same time.
	together bool
	keep     bool
}

const (
	// maxUsers is what one pod of users and two cores bear.
	maxUsers = 5000
	// maxMinutes is less than the pod of users lives.
	maxMinutes = 200
	maxPods    = 9
)

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fail(err)
	}
	fmt.Printf("SEED=%d\n", o.seed)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	results, err := run(ctx, o, os.Stdout)
	stop()
	for _, r := range results {
		if err := r.print(os.Stdout); err != nil {
			fail(err)
		}
	}
	if err != nil {
		fail(err)
	}
	if slices.ContainsFunc(results, func(r *result) bool { return r.failed() }) {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "soak:", err)
	os.Exit(1)
}

func parse(args []string) (options, error) {
	o := options{Options: fleet.Defaults()}
	var adapters, faults, persistence, shadow string
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&adapters, "adapters", "ETS", "The adapters, separated by spaces or commas.")
	flags.StringVar(&o.workload, "workload", "otp", "The application: otp (no dependencies) or phoenix (the real LiveView and LiveStash).")
	flags.IntVar(&o.users, "users", 300, "How many users there are.")
	flags.IntVar(&o.pods, "pods", 3, "How many pods the fleet begins with.")
	flags.Float64Var(&o.minutes, "minutes", 10, "For how long events begin.")
	flags.Uint64Var(&o.seed, "seed", 0, "Where the events and their times come from. 0: a random one.")
	flags.StringVar(&faults, "faults", "off", "on or off: ungraceful events too. They need the pods' processes on this machine.")
	flags.DurationVar(&o.TTL, "ttl", 2*time.Minute, "How long a stash lives. Some users sleep for most of it.")
	flags.DurationVar(&o.HandOff, "handoff", 0, "spec.drain.handOffTimeout: the longer it is, the slower pods may start. 0: the API's default.")
	flags.StringVar(&shadow, "shadow", "off", "on or off: spec.shadow.enabled with ETS, and a killed pod may cost no more than its youngest stashes.")
	flags.BoolVar(&o.TLS, "tls", false, "spec.clustering.tls.enabled, and events about certificates.")
	flags.StringVar(&persistence, "persistence", "on", "on or off: persistence of Redis. With off, it is not restarted but by faults.")
	flags.BoolVar(&o.together, "together", false, "All adapters at the same time, with as many events in all: faster, but the times are worth nothing.")
	flags.BoolVar(&o.keep, "keep", false, "Leave the fleets and the operator for a look.")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.adapters = strings.FieldsFunc(adapters, func(r rune) bool { return r == ' ' || r == ',' })
	for name, given := range map[string]string{"faults": faults, "persistence": persistence, "shadow": shadow} {
		if given != "on" && given != "off" {
			return o, fmt.Errorf("-%s is %q, but must be on or off", name, given)
		}
	}
	o.faults, o.Persistence = faults == "on", persistence == "on"
	o.Shadow = shadow == "on"
	o.Workload(o.workload)
	for o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	return o, o.check()
}

func (o options) check() error {
	for _, name := range o.adapters {
		if fleet.Adapters[name] == "" {
			return fmt.Errorf("adapter %q cannot be tested: choose from %s", name, strings.Join(slices.Sorted(maps.Keys(fleet.Adapters)), ", "))
		}
	}
	switch {
	case len(o.adapters) == 0:
		return errors.New("-adapters names none")
	case o.users < 1 || o.users > maxUsers:
		return fmt.Errorf("-users is %d, but must be 1 to %d", o.users, maxUsers)
	case o.pods < 1 || o.pods > maxPods:
		return fmt.Errorf("-pods is %d, but must be 1 to %d", o.pods, maxPods)
	case o.minutes <= 0 || o.minutes > maxMinutes:
		return fmt.Errorf("-minutes is %g, but must be over 0 and at most %d", o.minutes, maxMinutes)
	case o.faults && !o.OnNode:
		return errors.New("-faults=on needs the pods' processes on this machine, which only CLUSTER=local has")
	}
	return nil
}

// atOnce is how many fleets there are at the same time.
func (o options) atOnce() int {
	if o.together {
		return len(o.adapters)
	}
	return 1
}

func (o options) schedule(adapter string) []schedule.Step {
	return schedule.New(schedule.Config{
		Seed: o.seed, Length: time.Duration(o.minutes * float64(time.Minute)), Pods: o.pods,
		Redis: adapter == "Redis", Persistent: o.Persistence, TLS: o.TLS, Faults: o.faults, Stretch: o.atOnce(),
	})
}
