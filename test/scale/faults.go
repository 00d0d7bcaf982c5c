package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

const (
	// rightLimit is how long after a fault everything may take to be as it should be.
	rightLimit = 5 * time.Minute
	otherImage = "ghcr.io/acme/shop:1.4.2"
)

// fault is something that the operator must get over.
type fault struct {
	name string
	// lasts is for how long, but for faults that take as long as they take.
	lasts time.Duration
	// replicas is how many pods the operator has.
	replicas int
	// do is the fault, from its beginning to its end.
	do func(ctx context.Context, f *faults, lasts time.Duration) error
}

// clockFault needs an operator that is built for it.
const clockFault = "clock"

// allFaults are those that `-faults` goes through. The first one is none, to compare with.
func allFaults() []fault {
	return []fault{
		{"none", 30 * time.Second, 1, func(ctx context.Context, f *faults, lasts time.Duration) error {
			return f.during(ctx, lasts, trouble{})
		}},
		{"away", 2 * time.Minute, 1, func(ctx context.Context, f *faults, lasts time.Duration) error {
			return f.during(ctx, lasts, trouble{away: true})
		}},
		{"slow", time.Minute, 1, func(ctx context.Context, f *faults, lasts time.Duration) error {
			return f.during(ctx, lasts, trouble{delay: time.Second})
		}},
		{"refuses", time.Minute, 1, func(ctx context.Context, f *faults, lasts time.Duration) error {
			return f.during(ctx, lasts, trouble{refuseEvery: 10})
		}},
		{"full", time.Minute, 1, etcdIsFull},
		{"frozen", 0, 2, freezeLeaders},
		{"killed", 80 * time.Second, 2, killLeaders},
		{clockFault, 90 * time.Second, 2, wrongClocks},
	}
}

// chosenFaults are those of the names, with commas between them, or all, in the order of allFaults.
func chosenFaults(names string) ([]fault, error) {
	if names == "all" {
		return allFaults(), nil
	}
	left := map[string]bool{}
	for name := range strings.SplitSeq(names, ",") {
		left[name] = true
	}
	var chosen []fault
	var known []string
	for _, one := range allFaults() {
		known = append(known, one.name)
		if left[one.name] {
			chosen = append(chosen, one)
			delete(left, one.name)
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("there is no fault %s: choose of %s, or all", strings.Join(slices.Sorted(maps.Keys(left)), ", "), strings.Join(known, ", "))
	}
	return chosen, nil
}

// faults is a run in which there are some, one after the other.
type faults struct {
	*bench
	*expected
	gate     *gate
	replicas []*replica
	// made is how many LiveStashClusters there were so far.
	made int
	// woken is what becomes faultFigures.Woken.
	woken int
	// changed is closed when the changes beside a fault are made.
	changed chan struct{}
}

// faultFigures is what came of one fault.
type faultFigures struct {
	Name     string `json:"fault"`
	Clusters int    `json:"clusters"`
	// Seconds is how long it lasted, RightAfter how long after its end everything was as it should be.
	Seconds    float64 `json:"seconds"`
	RightAfter float64 `json:"right_after_s"`
	// Ends is how often an operator ended by itself.
	Ends int64 `json:"ends"`
	// Requests are those of all operators until everything was right, watches and leases included, InASecond the most in one second, and After those in
	// the idle time after that.
	Requests  int `json:"requests"`
	InASecond int `json:"in_a_second"`
	After     int `json:"requests_after"`
	// Woken is how much an operator has tried to change after it woke, while another one led. Leases do not count.
	Woken int `json:"requests_woken"`
	// Wrong is what was still wrong when it was given up.
	Wrong []string `json:"wrong,omitempty"`
}

// runFaults puts the operator through faults while LiveStashClusters are made, changed and deleted.
func runFaults(ctx context.Context, opts options, chosen []fault) (figures []faultFigures, err error) {
	opts.withAgents, opts.silent = true, 0
	err = withControlPlane(ctx, opts, func(ctx context.Context, b *bench) (err error) {
		f := &faults{bench: b}
		figures, err = f.everything(ctx, chosen)
		return err
	})
	return figures, err
}

// printFaults goes through the faults of these names, and prints what came of them, the last line as JSON. It fails when the operator does.
func printFaults(ctx context.Context, opts options, names string) error {
	chosen, err := chosenFaults(names)
	if err != nil {
		return err
	}
	figures, err := runFaults(ctx, opts, chosen)
	table := tabwriter.NewWriter(opts.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FAULT\tLASTED\tRIGHT AFTER\tOPERATORS ENDED\tREQUESTS\tIN A SECOND\tAFTERWARDS\tNO LONGER LED")
	for _, one := range figures {
		_, _ = fmt.Fprintf(table, "%s\t%.0f s\t%.0f s\t%d\t%d\t%d\t%d\t%d\n", one.Name, one.Seconds, one.RightAfter, one.Ends, one.Requests, one.InASecond, one.After,
			one.Woken)
		for _, wrong := range one.broken() {
			err = errors.Join(err, fmt.Errorf("%s: %s", one.Name, wrong))
		}
	}
	_ = table.Flush()
	line, problem := json.Marshal(figures)
	_, _ = fmt.Fprintln(opts.out, string(line))
	return errors.Join(err, problem)
}

func (f *faults) everything(ctx context.Context, chosen []fault) (figures []faultFigures, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.gate, err = startGate(f.config); err != nil {
		return nil, err
	}
	defer f.gate.stop()
	if err := f.simulate(ctx); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		f.node.wait()
		for _, r := range f.replicas {
			err = errors.Join(err, r.done())
		}
		err = errors.Join(err, f.agents.stop())
	}()
	if f.expected, err = newExpected(ctx, f.bench); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(chosen, func(one fault) bool { return one.name == clockFault }) {
		f.step("building an operator with a clock of its own")
		if f.manager, err = f.buildWithClock(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.startReplicas(ctx, 1); err != nil {
		return nil, err
	}
	f.step("creating %d LiveStashClusters of %d pods", f.clusters, f.pods)
	for range f.clusters {
		if err := f.create(ctx); err != nil {
			return nil, err
		}
	}
	if wrong, err := f.untilRight(ctx); err != nil || len(wrong) > 0 {
		return nil, fmt.Errorf("before any fault: %w\n%s", err, strings.Join(wrong, "\n"))
	}
	for _, one := range chosen {
		came, err := f.goThrough(ctx, one)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", one.name, err)
		}
		figures = append(figures, came)
		if len(came.Wrong) > 0 {
			return figures, nil // what comes next would tell nothing
		}
	}
	return figures, nil
}

// startReplicas starts replicas of the operator until there are so many.
func (f *faults) startReplicas(ctx context.Context, count int) error {
	for len(f.replicas) < count {
		name := string(rune('a' + len(f.replicas)))
		kubeconfig := filepath.Join(f.dir, "operator-"+name+".kubeconfig")
		if err := writeOperatorKubeconfig(ctx, f.client, f.admin, kubeconfig, f.gate.cluster(name)); err != nil {
			return err
		}
		f.replicas = append(f.replicas, f.startReplica(ctx, name, kubeconfig))
	}
	return nil
}

// goThrough is one fault, with changes beside it.
func (f *faults) goThrough(ctx context.Context, one fault) (figures faultFigures, err error) {
	figures.Name, figures.Clusters = one.name, f.clusters
	if err := f.startReplicas(ctx, one.replicas); err != nil {
		return figures, err
	}
	f.woken, f.changed = 0, make(chan struct{})
	if _, err := awaitLeader(ctx, f.replicas, nil); err != nil {
		return figures, err
	}
	for _, r := range f.replicas {
		r.rest()
	}
	if err := f.remember(ctx); err != nil {
		return figures, err
	}
	f.step("%s", one.name)
	begun := time.Now()
	var failed error
	go func() {
		defer close(f.changed)
		failed = f.changes(ctx, one.lasts/2)
	}()
	err = one.do(ctx, f, one.lasts)
	over := time.Now()
	<-f.changed
	if err := errors.Join(err, failed); err != nil {
		return figures, err
	}
	f.step("%s is over after %.0f s", one.name, over.Sub(begun).Seconds())
	if figures.Wrong, err = f.untilRight(ctx); err != nil {
		return figures, err
	}
	right := time.Now()
	f.step("%s: everything is right %.0f s later", one.name, right.Sub(over).Seconds())
	if err := sleepUntil(ctx, right.Add(f.idle)); err != nil {
		return figures, err
	}
	var asked []time.Time
	for _, one := range f.gate.between(begun, right) {
		asked = append(asked, one.at)
	}
	figures.Woken = f.woken
	figures.Seconds, figures.RightAfter = round(over.Sub(begun).Seconds()), round(right.Sub(over).Seconds())
	figures.Requests, figures.InASecond = len(asked), mostInASecond(asked)
	figures.After = len(f.gate.between(right, right.Add(f.idle)))
	for _, r := range f.replicas {
		figures.Ends += r.ends.Load()
	}
	return figures, nil
}

// The bounds of a fault. Of the requests a part is what the changes cost, which is about as much as without a fault, and a part is for what has to
// be tried again, and for operators that start: they list everything, and look at every LiveStashCluster.
const (
	maxFaultRequests      = 40 // for each LiveStashCluster
	maxFaultRequestsASec  = 5  // for each second of the fault, and until everything was right
	maxFaultRequestsStart = 100
	maxFaultInASecond     = 150
	maxFaultAfter         = 60
	// What was to be sent in the moment in which the leader was frozen.
	maxFaultWoken = 4
)

// broken says what is wrong, and which bounds were broken.
func (f faultFigures) broken() []string {
	broken := slices.Clone(f.Wrong)
	most := maxFaultRequests*f.Clusters + int(maxFaultRequestsASec*(f.Seconds+f.RightAfter)) + maxFaultRequestsStart*int(f.Ends+1)
	if f.Requests > most {
		broken = append(broken, fmt.Sprintf("%d requests, at most %d", f.Requests, most))
	}
	if f.InASecond > maxFaultInASecond {
		broken = append(broken, fmt.Sprintf("%d requests in a second, at most %d", f.InASecond, maxFaultInASecond))
	}
	if f.After > maxFaultAfter {
		broken = append(broken, fmt.Sprintf("%d requests in the time after that, at most %d", f.After, maxFaultAfter))
	}
	if f.Woken > maxFaultWoken {
		broken = append(broken, fmt.Sprintf("an operator that no longer led tried to change something %d times, at most %d", f.Woken, maxFaultWoken))
	}
	return broken
}

// mostInASecond is the most of them that fall into one second.
func mostInASecond(times []time.Time) int {
	slices.SortFunc(times, time.Time.Compare)
	most, first := 0, 0
	for last := range times {
		for times[last].Sub(times[first]) >= time.Second {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// untilRight waits until everything is as it should be, and returns what is not when it is given up.
func (f *faults) untilRight(ctx context.Context) (wrong []string, err error) {
	stop := f.remind(func() string { return "waiting until everything is as it should be" })
	defer stop()
	for deadline := time.Now().Add(rightLimit); ; {
		if wrong, err = f.wrong(ctx); err != nil || len(wrong) == 0 || time.Now().After(deadline) {
			return wrong, err
		}
		if err := sleepUntil(ctx, time.Now().Add(pollInterval)); err != nil {
			return wrong, err
		}
	}
}

// during makes trouble for some time.
func (f *faults) during(ctx context.Context, lasts time.Duration, t trouble) error {
	f.gate.set(t)
	defer f.gate.set(trouble{})
	return sleepUntil(ctx, time.Now().Add(lasts))
}

// etcdIsFull raises etcd's alarm for want of space: it refuses whatever would take some.
func etcdIsFull(ctx context.Context, f *faults, lasts time.Duration) (err error) {
	// In the middle of changes.
	if err := sleepUntil(ctx, time.Now().Add(lasts/10)); err != nil {
		return err
	}
	if err := f.alarm(ctx, "ACTIVATE"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.alarm(context.WithoutCancel(ctx), "DEACTIVATE")) }()
	return sleepUntil(ctx, time.Now().Add(lasts))
}

func (f *faults) alarm(ctx context.Context, action string) error {
	order := command(ctx, filepath.Join(f.bin, "localcluster"), "exec", "--name", f.name, "--", filepath.Join(f.bin, "kubectl"),
		"create", "--server=http://127.0.0.1:2379", "--raw=/v3/maintenance/alarm", "-f", "-")
	order.Stdin = strings.NewReader(fmt.Sprintf(`{"action":%q,"alarm":"NOSPACE"}`, action))
	if text, err := order.CombinedOutput(); err != nil {
		return fmt.Errorf("etcd's alarm: %w: %s", err, text)
	}
	return nil
}

// freezes is how often a leader stands still.
const freezes = 2

// freezeLeaders lets the leader stand still, in the middle of what it does, until another one leads, and for some seconds more; and then
// go on, as if it still led. When it knows that it does not, and all changes are made, the other one is frozen. Meanwhile every LiveStashCluster gets
// another image that was there before and has the one of then.
func freezeLeaders(ctx context.Context, f *faults, _ time.Duration) error {
	var last *replica
	for range freezes {
		if last != nil {
			<-f.changed
			if err := awaitFollower(ctx, last); err != nil {
				return err
			}
		}
		r, err := awaitLeader(ctx, f.replicas, nil)
		if err != nil {
			return err
		}
		one := r.running()
		if one == nil {
			return errors.New("the operator that led has ended")
		}
		if err := one.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		var rolled error
		if last != nil {
			rolled = f.rollOthers(ctx)
		}
		next, err := awaitLeader(ctx, f.replicas, r)
		err = errors.Join(err, sleepUntil(ctx, time.Now().Add(5*time.Second)))
		woke := time.Now()
		if err := errors.Join(err, rolled, one.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		f.step("%s was frozen until %s led", r.name, next.name)
		if err := sleepUntil(ctx, woke.Add(5*time.Second)); err != nil {
			return err
		}
		f.woken += f.gate.changesOf(r.name, woke)
		last = r
	}
	return nil
}

// killEvery is how often a leader is killed.
const killEvery = 20 * time.Second

// killLeaders kills whichever operator leads, again and again.
func killLeaders(ctx context.Context, f *faults, lasts time.Duration) error {
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		r, err := awaitLeader(ctx, f.replicas, nil)
		if err != nil {
			return err
		}
		r.kill()
		if err := sleepUntil(ctx, time.Now().Add(killEvery)); err != nil {
			return err
		}
	}
	return nil
}
