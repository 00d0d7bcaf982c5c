package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// options are what a run is about. The flags in main.go say what each means.
type options struct {
	fleet.Options
	sessions int
	adapters []string
	// events are names of events and of groups of them.
	events []string
	// fewer are the events, or groups, of adapters that do not go through all of them.
	fewer      map[string][]string
	stashEvery time.Duration
	maxP99     time.Duration
	// together does each event to the fleets of all adapters at once. It saves time, and makes the times worthless.
	together bool
	// copies is how many fleets of each adapter there are, atOnce how many of them are upgraded at the same time.
	copies, atOnce int
	// canaryImage is that of a release whose pages have another version. Empty: the environment says so.
	canaryImage string
	keep        bool
	// tabs is how many tabs of each kind hold the sessions. 0: a crowd in a pod does.
	tabs  int
	kinds []kind
	// shownAfter is how long after an event the user looks at a hidden tab again.
	shownAfter time.Duration
}

const (
	// notesShown is how many sessions of a result are spoken of.
	notesShown = 5
	// mostMean and mostMoves are how often a session may be moved in a rollout whose additional pod stays, on average and at most.
	mostMean, mostMoves = 1.1, 2
)

// driver does events to fleets.
type driver struct {
	*fleet.Cluster
	options     options
	out         io.Writer
	operatorTag string
}

// run does all events to the fleets of all adapters. The results come in the order of the adapters, then of the events.
func run(ctx context.Context, o options, out io.Writer) ([]result, error) {
	c, err := fleet.Open()
	if err != nil {
		return nil, err
	}
	chosen, err := choose(o)
	if err != nil {
		return nil, err
	}
	if o.tabs > 0 {
		o.sessions = o.tabs * len(o.kinds)
	}
	d := &driver{Cluster: c, options: o, out: out}
	d.say("install the operator")
	if err := d.installOperator(ctx, o.Tag); err != nil {
		return nil, err
	}
	var groups [][]*fleet.Fleet
	for _, adapter := range o.adapters {
		if !o.together || len(groups) == 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], copies(c, o, adapter)...)
	}
	var results []result
	for i, fleets := range groups {
		for _, e := range chosen {
			results = append(results, d.do(ctx, e, o.subjects(e, fleets))...)
		}
		// A fleet that is kept takes part when the operator is upgraded under the next one.
		if last := i == len(groups)-1; !o.keep || !last {
			// Also when the run was stopped: a cluster of the user's own stays as it was.
			err = errors.Join(err, inParallel(fleets, func(f *fleet.Fleet) error { return f.Remove(context.WithoutCancel(ctx)) }))
		}
	}
	slices.SortStableFunc(results, func(a, b result) int {
		return slices.Index(o.adapters, a.Adapter) - slices.Index(o.adapters, b.Adapter)
	})
	if !o.keep {
		err = errors.Join(err, fleet.UninstallOperator(context.WithoutCancel(ctx)))
	}
	return results, errors.Join(err, ctx.Err())
}

// copies are the fleets with an adapter.
func copies(c *fleet.Cluster, o options, adapter string) []*fleet.Fleet {
	fleets := make([]*fleet.Fleet, o.copies)
	for i := range fleets {
		fleets[i] = fleet.New(c, o.Options, "survival", adapter)
		if i > 0 {
			fleets[i].Namespace += fmt.Sprintf("-%d", i+1)
		}
	}
	return fleets
}

// subjects are the fleets that an event is done to.
func (o options) subjects(e event, fleets []*fleet.Fleet) []*fleet.Fleet {
	return slices.DeleteFunc(slices.Clone(fleets), func(f *fleet.Fleet) bool {
		few, ok := o.fewer[f.Adapter]
		return e.adapter != "" && e.adapter != f.Adapter || ok && !slices.ContainsFunc(few, e.is)
	})
}

// choose is the events by their names and those of their groups.
func choose(o options) ([]event, error) {
	all := events(o)
	known := []string{plain, killing, paired, single, hidden, forgotten, tried, upgraded, cookies, moved, machines, faults}
	var chosen []event
	for _, e := range all {
		known = append(known, e.name)
		if slices.ContainsFunc(o.events, e.is) {
			chosen = append(chosen, e)
		}
	}
	for _, name := range o.events {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no event %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range o.adapters {
		if fleet.Adapters[name] == "" {
			return nil, fmt.Errorf("adapter %q cannot be tested: choose from %s", name, strings.Join(slices.Sorted(maps.Keys(fleet.Adapters)), ", "))
		}
	}
	for _, e := range chosen {
		if slices.Contains(o.events, e.name) && e.adapter != "" && !slices.Contains(o.adapters, e.adapter) {
			return nil, fmt.Errorf("event %s is about adapter %s: add that one to the adapters", e.name, e.adapter)
		}
	}
	return chosen, nil
}

// installOperator installs or upgrades the operator, with its image under this tag, and with these values of the chart.
func (d *driver) installOperator(ctx context.Context, tag string, sets ...string) error {
	err := fleet.InstallOperator(ctx, tag, sets...)
	if err == nil {
		d.operatorTag = tag
	}
	return err
}

// do is one event, from the opening of sessions to what they found.
func (d *driver) do(ctx context.Context, e event, fleets []*fleet.Fleet) []result {
	if len(fleets) == 0 {
		return nil
	}
	subjects := make([]*subject, len(fleets))
	for i, f := range fleets {
		f.Options.TTL = cmp.Or(e.ttl, d.options.TTL)
		subjects[i] = newSubject(f, d.options, d.options.skips(e, f.Adapter))
	}
	done := slices.DeleteFunc(slices.Clone(subjects), func(s *subject) bool { return s.skipped != "" })
	if len(done) > 0 {
		d.attempt(ctx, e, done)
	}
	results := make([]result, len(subjects))
	for i, s := range subjects {
		r := newResult(s.Adapter, e.name, s.report)
		r.Tabs = s.rows
		r.remarks, r.faults, r.skipped, r.judged = s.remarks, s.faults, s.skipped, d.options.Agent
		r.verdict = d.judge(e, r)
		if s.problem != nil {
			r.verdict = s.problem.Error()
			s.Up = false
		}
		d.say("%s", r.line())
		for _, line := range r.tabLines() {
			d.say("    %s", line)
		}
		for _, note := range r.report.Notes[:min(len(r.report.Notes), notesShown)] {
			d.say("    %s", note)
		}
		results[i] = r
	}
	return merged(results)
}

// skips is why an event is not done to fleets with an adapter; empty when it is.
func (o options) skips(e event, adapter string) string {
	if e.needsNode && !o.OnNode {
		return "it needs the processes of the pods, which only CLUSTER=local has on this machine"
	}
	if o.tabs > 0 && e.adapter == "Redis" {
		return "a browser does not know when to stash again"
	}
	return e.without[adapter]
}

func (d *driver) attempt(ctx context.Context, e event, subjects []*subject) {
	started := time.Now()
	try(subjects, func(s *subject) error {
		d.say("%s, %s: %d pods, then %d sessions", s.Adapter, e.name, e.replicas, s.options.sessions)
		if err := s.Ensure(ctx, e.replicas); err != nil {
			return fmt.Errorf("bring the fleet up: %w", err)
		}
		if err := s.name(ctx); err != nil {
			return err
		}
		if err := s.users.open(ctx, e.hiddenTabs); err != nil {
			return err
		}
		var err error
		if s.watch, err = s.watched(ctx); err != nil {
			return err
		}
		return s.users.begin(ctx)
	})
	opened := time.Now()
	d.say("%s: the event, after %.0f s", e.name, opened.Sub(started).Seconds())
	if err := e.do(ctx, d, subjects); err != nil {
		try(subjects, func(*subject) error { return err })
	}
	try(subjects, func(s *subject) error {
		if err := s.Settled(ctx); err != nil {
			return fmt.Errorf("the fleet did not settle: %w", err)
		}
		d.say("%s, %s: settled after %.0f s; checking every session", s.Adapter, e.name, time.Since(opened).Seconds())
		return nil
	})
	for _, s := range subjects {
		s.watchEnds()
	}
	// Also of a fleet in disorder it is worth knowing what its sessions find.
	_ = inParallel(subjects, func(s *subject) error {
		report, err := s.users.verify(ctx)
		s.report = report
		if took := time.Since(opened); err == nil && e.ttl == 0 && took > d.options.TTL {
			err = fmt.Errorf("the event took %.0f s, longer than a stash lives: set -ttl above %s", took.Seconds(), d.options.TTL)
		}
		if err = errors.Join(err, s.users.stop(context.WithoutCancel(ctx))); s.problem == nil {
			s.problem = err
		}
		return nil
	})
}

// judge is why a result fails; empty when it does not. Without the agent nothing is promised.
func (d *driver) judge(e event, r result) string {
	if !d.options.Agent {
		return ""
	}
	var broken []string
	if r.Stale > 0 {
		broken = append(broken, fmt.Sprintf("%d sessions stale", r.Stale))
	}
	if wrong := e.judge(r.Adapter, r.report); wrong != "" {
		broken = append(broken, wrong)
	}
	if e.group == moved && d.options.movesOnce() && (r.MeanMoves > mostMean || r.MostMoves > mostMoves) {
		broken = append(broken, fmt.Sprintf("sessions moved %.2f times, at most %d", r.MeanMoves, r.MostMoves))
	}
	broken = append(broken, r.faults...)
	for _, row := range r.Tabs {
		if row.Reloads > 0 {
			broken = append(broken, fmt.Sprintf("%s: %d reloads", row.Kind, row.Reloads))
		}
	}
	limit := float64(d.options.limit(e).Milliseconds())
	if !e.needsNode && limit > 0 && r.P99 != nil && *r.P99 > limit {
		broken = append(broken, fmt.Sprintf("p99 %.0f ms, over %.0f ms", *r.P99, limit))
	}
	return strings.Join(broken, "; ")
}

// movesOnce is whether the fleets move each user once in a rollout.
func (o options) movesOnce() bool { return o.Surge == "" || o.Surge == "Stays" }

// limit is the longest p99 of an event; 0 when its times are not judged.
func (o options) limit(e event) time.Duration {
	if o.maxP99 == 0 {
		return 0
	}
	if o.tabs > 0 {
		return max(o.maxP99, e.maxP99, tabsP99)
	}
	return max(o.maxP99, e.maxP99)
}

func (d *driver) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// inParallel does something to all at the same time, and returns all errors.
func inParallel[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, one := range all {
		running.Go(func() { errs[i] = do(one) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// result is what one event did to the sessions of one fleet.
type result struct {
	Adapter   string `json:"adapter"`
	Event     string `json:"event"`
	Sessions  int    `json:"sessions"`
	Recovered int    `json:"recovered"`
	Stale     int    `json:"stale"`
	Lost      int    `json:"lost"`
	// Young found what they had stashed, but for what was younger than copies have to be.
	Young int `json:"young"`
	// MostMoves is how often a session was moved to another pod, or to the same again, at most, MeanMoves on average.
	MostMoves int      `json:"most_moves"`
	MeanMoves float64  `json:"mean_moves"`
	P50       *float64 `json:"p50_ms"`
	P99       *float64 `json:"p99_ms"`
	// Tabs are the sessions by the kind of tab.
	Tabs []tabRow `json:"tabs,omitempty"`

	report  crowd.Report
	remarks []string
	faults  []string
	verdict string
	// skipped is why nothing was done.
	skipped string
	judged  bool
}

func newResult(adapter, event string, report crowd.Report) result {
	r := result{
		Adapter: adapter, Event: event, Sessions: report.Sessions,
		Recovered: report.Recovered, Stale: report.Stale, Lost: report.Lost, Young: report.Young, report: report,
	}
	if report.Sessions > 0 {
		r.MostMoves, r.MeanMoves = report.MostMoves, float64(report.Moves)/float64(report.Sessions)
	}
	if report.Times != nil {
		r.P50, r.P99 = &report.Times.P50, &report.Times.P99
	}
	return r
}

// failed is whether a promise was broken.
func (r result) failed() bool { return r.verdict != "" && r.skipped == "" }
