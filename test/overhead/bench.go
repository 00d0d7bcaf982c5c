package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/program"
)

const (
	operatorRelease   = "livestash"
	operatorNamespace = "livestash-system"

	// calm is what boot, or the end of all connections, takes to be over.
	calm = 10 * time.Second
	// scrapeEvery is how often a Prometheus asks, if nobody says otherwise.
	scrapeEvery = 15 * time.Second
)

// options are what a run is about. The flags in main.go say what each means.
type options struct {
	rounds   int
	idle     time.Duration
	users    int
	duration time.Duration
	workload string
	control  bool
	registry string
	version  string
	keep     bool
	out      io.Writer
}

func (o options) wrong() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds is %d, but must be at least 1", o.rounds)
	case o.idle < time.Second:
		return fmt.Errorf("-idle is %s, but must be at least 1s", o.idle)
	case o.users < 1:
		return fmt.Errorf("-users is %d, but must be at least 1", o.users)
	case o.duration < 10*time.Second || o.duration > 2*time.Minute:
		return fmt.Errorf("-duration is %s, but must be from 10s to 2m", o.duration)
	case o.program() == "":
		return fmt.Errorf("-workload is %q, but must be otp or phoenix", o.workload)
	}
	return nil
}

func (o options) image() string {
	return fmt.Sprintf("%s/livestash-workload-%s:%s", o.registry, o.workload, o.version)
}

// program is the release's, in the image's working directory.
func (o options) program() string {
	return map[string]string{"otp": "bin/workload", "phoenix": "bin/stash_workload"}[o.workload]
}

func (o options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// run measures all rounds, and removes what it has made.
func run(ctx context.Context, o options) (rounds []round, err error) {
	client, err := openCluster()
	if err != nil {
		return nil, err
	}
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	fleets := [2]*fleet{
		{client: client, options: o, namespace: "overhead-a"},
		{client: client, options: o, namespace: "overhead-b"},
	}
	o.say("install the operator")
	_, err = program.Run(ctx, "", "helm", "upgrade", "--install", operatorRelease, root, "--namespace", operatorNamespace, "--create-namespace", "--wait", "--timeout", "3m")
	if err != nil {
		return nil, err
	}
	defer func() {
		if !o.keep {
			err = errors.Join(err, remove(context.WithoutCancel(ctx), fleets))
		}
	}()
	for _, f := range fleets {
		if err := errors.Join(f.remove(ctx), f.create(ctx)); err != nil {
			return nil, err
		}
	}
	for i := range o.rounds {
		measured, err := measure(ctx, o, fleets[i%2], fleets[(i+1)%2])
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, measured)
		o.say("round %d of %d: %s", i+1, o.rounds, measured)
	}
	return rounds, nil
}

func remove(ctx context.Context, fleets [2]*fleet) error {
	err := atOnce(fleets[0], fleets[1], func(f *fleet) error { return f.remove(ctx) })
	_, uninstalled := program.Run(ctx, "", "helm", "uninstall", operatorRelease, "--namespace", operatorNamespace, "--wait")
	return errors.Join(err, uninstalled)
}

// round is what the two fleets used while they did the same at the same time.
type round struct {
	without, with figures
	// load is the machine's load average at the end of the load test.
	load float64
}

// measure is one round. Both fleets do each part at once, so that what else the machine does is the same for both.
func measure(ctx context.Context, o options, without, with *fleet) (round, error) {
	o.say("%s without the agent, %s with it", without.namespace, with.namespace)
	var r round
	if err := atOnce(without, with, func(f *fleet) error { return f.set(ctx, f == with && !o.control) }); err != nil {
		return r, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var scraping sync.WaitGroup
	scraping.Go(func() {
		if err := with.scrape(ctx, scrapeEvery); err != nil {
			stop(err)
		}
	})
	defer scraping.Wait()
	defer stop(nil)

	err := atOnce(without, with, func(f *fleet) (err error) {
		if f == with {
			r.with, err = f.measure(ctx)
			return err
		}
		r.without, err = f.measure(ctx)
		return err
	})
	if err != nil {
		return r, errors.Join(err, context.Cause(ctx))
	}
	r.load, err = loadAverage()
	return r, err
}

// measure is what one fleet uses in one round.
func (f *fleet) measure(ctx context.Context) (found figures, err error) {
	found.duration = f.options.duration
	if err := sleep(ctx, calm); err != nil {
		return found, err
	}
	if found.settled, err = f.look(ctx); err != nil {
		return found, err
	}
	if err := sleep(ctx, calm); err != nil {
		return found, err
	}
	found.idle, err = f.during(func() error { return sleep(ctx, f.options.idle) })
	if err != nil {
		return found, err
	}
	if found.before, err = f.look(ctx); err != nil {
		return found, err
	}
	found.load, err = f.during(func() error {
		found.cycles, err = f.load(ctx)
		return err
	})
	if err != nil {
		return found, err
	}
	if err := sleep(ctx, calm); err != nil {
		return found, err
	}
	found.after, err = f.look(ctx)
	return found, err
}

// during is the CPU time that the fleet uses while something is done.
func (f *fleet) during(do func() error) (spent, error) {
	before, err := f.clock()
	if err != nil {
		return spent{}, err
	}
	if err := do(); err != nil {
		return spent{}, err
	}
	after, err := f.clock()
	return after.since(before), err
}

// atOnce does something to two fleets at the same time, and returns both errors.
func atOnce(a, b *fleet, do func(*fleet) error) error {
	var ofA error
	var running sync.WaitGroup
	running.Go(func() { ofA = do(a) })
	ofB := do(b)
	running.Wait()
	return errors.Join(ofA, ofB)
}
