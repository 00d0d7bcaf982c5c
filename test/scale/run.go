package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// quietFor is how long the operator must make no request to count as quiet: the numbers in the status of a new fleet may wait for 15 s.
	// With agents, it asks those of a new fleet of which one does not answer each second for a minute: that is not rest.
	quietFor       = 20 * time.Second
	quietForAgents = 70 * time.Second
	// quietLimit is how long it is given for that. One that does not get quiet is measured all the same.
	quietLimit = 2 * time.Minute
	// limitPerCluster is the time that a run gives up after, for each LiveStashCluster of a wave, on top of graceLimit.
	limitPerCluster = time.Second
	// waveWithAgents is how many LiveStashClusters are made at once when their pods run: so many that the control plane always has
	// something to do, and so few that who asks it, for a lease above all, is answered in time.
	waveWithAgents = 50
	graceLimit     = 2 * time.Minute

	pollInterval = 500 * time.Millisecond
)

// options say what is measured.
type options struct {
	// pods is how many each of the clusters has.
	clusters, pods int
	// wave is how many clusters are made at once. 0: as many as is usual.
	wave int
	// withAgents lets the pods run, on a simulated node. silent is the share of them whose agents never answer.
	withAgents   bool
	silent       float64
	bin, config  string
	name, keep   string
	operatorArgs []string
	// idle is how long the quiet operator is watched.
	idle time.Duration
	// upheavals is whether much happens at once then: see upheavalFigures.
	upheavals bool
	// out gets a line for each step and the table of requests.
	out io.Writer
}

// bench is one run.
type bench struct {
	options
	*progress
	// dir has the files of this run.
	dir string
	// admin and kubeconfig are the paths of what leads to the API server with all rights, and with the operator's.
	admin      string
	kubeconfig string
	plane      *controlPlane
	config     *rest.Config
	client     kubernetes.Interface
	// manager is the path of the operator.
	manager string
	process *process
	audit   *auditLog
	// agents and node are nil when pods do not run.
	agents *agents
	node   *node
}

// run measures what the operator costs.
func run(ctx context.Context, opts options) (measured measurement, err error) {
	err = withControlPlane(ctx, opts, func(ctx context.Context, b *bench) (err error) {
		measured, err = b.everything(ctx)
		return err
	})
	return measured, err
}

// withControlPlane does something with a control plane that has the CRD and the operator's account, and leaves nothing running, however it ends.
func withControlPlane(ctx context.Context, opts options, do func(context.Context, *bench) error) (err error) {
	if opts.clusters < 1 || opts.pods < 1 || opts.wave < 0 {
		return errors.New("-n and -pods must be at least 1, and -wave not negative")
	}
	opts.wave = cmp.Or(opts.wave, usualWave(opts))
	if opts.bin, err = filepath.Abs(opts.bin); err != nil {
		return err
	}
	if err := mustHavePrograms(opts.bin); err != nil {
		return err
	}
	dir, remove, err := workFolder(opts.keep)
	if err != nil {
		return err
	}
	b := &bench{options: opts, progress: &progress{out: opts.out, start: time.Now()}, dir: dir, manager: filepath.Join(opts.bin, "manager")}
	b.plane = &controlPlane{name: opts.name, bin: opts.bin, dir: dir, progress: b.progress}
	if err := b.plane.claim(); err != nil {
		return errors.Join(err, remove())
	}
	defer func() {
		b.step("removing everything")
		if b.process != nil {
			b.process.stop()
		}
		err = errors.Join(err, b.plane.down(ctx), remove())
	}()
	if err := b.prepare(ctx); err != nil {
		return because(ctx, err)
	}
	return because(ctx, do(ctx, b))
}

// prepare brings the control plane up, with the CRD and the operator's account.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.step("starting etcd, kube-apiserver and kube-controller-manager")
	if err := b.plane.up(ctx); err != nil {
		return err
	}
	if b.admin, b.config, err = b.plane.connect(ctx); err != nil {
		return err
	}
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return err
	}
	b.audit = &auditLog{path: b.plane.auditLog(), account: operatorUser()}
	return b.install(ctx)
}

// everything is a measurement without its tidying up.
func (b *bench) everything(ctx context.Context) (measured measurement, err error) {
	b.step("starting the operator")
	b.kubeconfig = filepath.Join(b.dir, "operator.kubeconfig")
	if err := writeOperatorKubeconfig(ctx, b.client, b.admin, b.kubeconfig, nil); err != nil {
		return measured, err
	}
	operator, err := b.startOperator(b.kubeconfig, "operator.log")
	if err != nil {
		return measured, err
	}
	b.process = operator.process
	if err := operator.waitHealthy(ctx); err != nil {
		return measured, err
	}
	// From here on, the end of the operator is the end of the run.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if b.withAgents {
		if err := b.simulate(ctx); err != nil {
			return measured, err
		}
		defer func() {
			cancel(nil)
			b.node.wait()
			err = errors.Join(err, b.agents.stop())
		}()
	}
	b.unlessEnded(ctx, cancel)
	measured, err = b.measure(ctx, cancel)
	return measured, because(ctx, err)
}

// unlessEnded ends the run when the operator ends that was not told to.
func (b *bench) unlessEnded(ctx context.Context, cancel context.CancelCauseFunc) {
	process := b.process
	go func() {
		select {
		case <-process.ended:
			if !process.told.Load() {
				cancel(ended(process.tail()))
			}
		case <-ctx.Done():
		}
	}()
}

// usualWave is how many LiveStashClusters are made at once.
func usualWave(opts options) int {
	if opts.withAgents {
		return waveWithAgents
	}
	return opts.clusters
}

// ended says why the operator ended, from the end of its log.
func ended(log string) error {
	if strings.Contains(log, "leader election lost") {
		return fmt.Errorf("the operator lost its lease, because the control plane did not take its renewals in time: make fewer at once with -wave\n%s", log)
	}
	return fmt.Errorf("the operator ended:\n%s", log)
}

// because names what ended ctx as the cause of the error, which is only its consequence then.
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
}

func mustHavePrograms(bin string) error {
	var missing []string
	for _, name := range []string{"localcluster", "kubernetes", "kubectl", "manager"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s has no program %s: build it, or give its folder with -bin", bin, strings.Join(missing, ", "))
	}
	return nil
}

// workFolder makes the folder for the files of a run: keep, or a temporary one that remove removes.
func workFolder(keep string) (dir string, remove func() error, err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "livestash-scale-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(keep); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	// The audit log is counted from its start.
	err = os.RemoveAll(filepath.Join(dir, "audit.log"))
	return dir, func() error { return nil }, err
}

// install brings the CRD, and the operator's account with its roles.
func (b *bench) install(ctx context.Context) error {
	roles, err := os.ReadFile(filepath.Join(b.options.config, "rbac", "role.yaml"))
	if err != nil {
		return err
	}
	b.step("installing the CRD and the operator's roles")
	if err := b.kubectl(ctx, "", "create", "-f", filepath.Join(b.options.config, "crd", "bases")); err != nil {
		return err
	}
	if err := b.kubectl(ctx, prerequisites(string(roles)), "create", "-f", "-"); err != nil {
		return err
	}
	return b.kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "crd/livestashclusters.livestash.dev")
}

// simulate brings the node on which pods run, and their agents.
func (b *bench) simulate(ctx context.Context) (err error) {
	b.step("starting a simulated node")
	if b.agents, err = startAgents(b.silent, b.pods-1); err != nil {
		return err
	}
	if b.node, err = startNode(ctx, b.client, b.agents); err != nil {
		return errors.Join(err, b.agents.stop())
	}
	return nil
}

func (b *bench) measure(ctx context.Context, cancel context.CancelCauseFunc) (measurement, error) {
	measured := measurement{clusters: b.clusters, pods: b.pods, idleFor: b.idle}
	if err := b.measureCreation(ctx, &measured); err != nil {
		return measured, err
	}
	if err := b.measureRest(ctx, &measured); err != nil {
		return measured, err
	}
	if err := b.tell(ctx, &measured); err != nil || !b.withAgents {
		return measured, err
	}
	var err error
	if b.upheavals {
		if measured.upheavals, err = b.upheave(ctx, cancel); err != nil {
			return measured, err
		}
	}
	if measured.agents.changes, err = b.change(ctx); err != nil || !b.upheavals {
		return measured, err
	}
	// Last: the rollouts that this begins go on for long where agents are silent.
	return measured, b.together(ctx, measured.upheavals)
}

// measureCreation ends when the operator has made everything and is quiet.
func (b *bench) measureCreation(ctx context.Context, measured *measurement) error {
	program, err := os.Stat(filepath.Join(b.bin, "manager"))
	if err != nil {
		return err
	}
	measured.program = program.Size()
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	sets, err := watchStatefulSets(ctx, b.client, clustersNamespace, b.clusters, b.withAgents)
	if err != nil {
		return err
	}
	if measured.before, err = readUsage(b.process.Pid); err != nil {
		return err
	}

	b.step("creating %d LiveStashClusters of %d pods, %d at once", b.clusters, b.pods, min(b.wave, b.clusters))
	started := time.Now()
	if err := b.create(ctx, sets, started, measured); err != nil {
		return err
	}
	quiet := quietFor
	if b.withAgents {
		quiet = quietForAgents
	}
	measured.quiet, err = b.waitQuiet(ctx, "the last request", started, quiet)
	measured.requests = b.audit.between(started, measured.quiet)
	return err
}

// measureRest watches the operator while it has nothing to do but to ask agents.
func (b *bench) measureRest(ctx context.Context, measured *measurement) (err error) {
	if measured.atRest, err = readUsage(b.process.Pid); err != nil {
		return err
	}
	var asked int64
	if b.withAgents {
		asked = b.agents.asked.Load()
	}
	b.step("watching the operator for %s with nothing to do", b.idle)
	end := time.Now().Add(b.idle)
	stop := b.remind(func() string { return fmt.Sprintf("%s to go", time.Until(end).Round(time.Second)) })
	err = sleepUntil(ctx, end)
	stop()
	if err != nil {
		return err
	}
	if b.withAgents {
		all, silent := b.agents.counts()
		measured.agents = &agentFigures{all: all, silent: silent, asked: b.agents.asked.Load() - asked, mostAtOnce: b.agents.mostInFlight.Load()}
	}
	if err := b.audit.read(); err != nil {
		return err
	}
	measured.idle = b.audit.between(measured.quiet, end)
	measured.after, err = readUsage(b.process.Pid)
	return err
}

// warmUp has the operator make one LiveStashCluster, which stays, in a namespace of its own. That shows that it leads and
// has its watches, and keeps what it does once for all clusters, such as discovery, out of the figures.
func (b *bench) warmUp(ctx context.Context) error {
	b.step("warming up with one LiveStashCluster")
	const namespace = "default"
	sets, err := watchStatefulSets(ctx, b.client, namespace, 1, b.withAgents)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := b.kubectl(ctx, b.liveStashCluster("warm-up", namespace), "create", "-f", "-"); err != nil {
		return err
	}
	if err := b.waitPods(sets, 1); err != nil {
		return err
	}
	_, err = b.waitQuiet(ctx, "the warm-up", started, quietFor)
	return err
}

// create makes the LiveStashClusters, each wave when the last one has its pods.
func (b *bench) create(ctx context.Context, sets *arrivals, started time.Time, measured *measurement) error {
	stop := b.remind(sets.String)
	defer stop()
	for first := 0; first < b.clusters; first += b.wave {
		next := min(first+b.wave, b.clusters)
		if err := b.kubectl(ctx, b.liveStashClusters(first, next), "create", "-f", "-"); err != nil {
			return err
		}
		measured.created = time.Since(started)
		b.step("%d created after %.2f s: %s", next, measured.created.Seconds(), sets)
		if err := b.waitPods(sets, next); err != nil {
			return err
		}
	}
	measured.made, measured.full = (<-sets.allMade).Sub(started), time.Since(started)
	b.step("every StatefulSet was there after %.2f s, its pods after %.2f s", measured.made.Seconds(), measured.full.Seconds())
	return nil
}

// waitPods waits until so many StatefulSets have their pods.
func (b *bench) waitPods(sets *arrivals, wanted int) error {
	limit := graceLimit + time.Duration(b.wave)*limitPerCluster
	late := time.After(limit)
	for sets.full.Load() < int64(wanted) {
		select {
		case err := <-sets.ended:
			return err
		case <-sets.came:
		case <-late:
			return fmt.Errorf("not %d StatefulSets after %s: %s; %s; the end of the operator's log:\n%s", wanted, limit, sets, b.node, b.process.tail())
		}
	}
	return nil
}

// waitQuiet waits until the operator has made no request for so long, and returns the end of that time. An operator
// that goes on is not waited for longer than quietLimit.
func (b *bench) waitQuiet(ctx context.Context, since string, from time.Time, quiet time.Duration) (time.Time, error) {
	stop := b.remind(func() string { return "waiting until the operator is quiet" })
	defer stop()
	deadline := time.Now().Add(quietLimit)
	for {
		now := time.Now()
		if err := b.audit.read(); err != nil {
			return now, err
		}
		last := b.audit.last()
		if last.Before(from) {
			last = from
		}
		if now.Sub(last) >= quiet {
			b.step("quiet: %s was %.1f s ago", since, now.Sub(last).Seconds())
			return now, nil
		}
		if now.After(deadline) {
			b.step("the operator does not get quiet: going on after %s", quietLimit)
			return now, nil
		}
		if err := sleepUntil(ctx, now.Add(pollInterval)); err != nil {
			return now, err
		}
	}
}

func sleepUntil(ctx context.Context, end time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(end)):
		return nil
	}
}

// tell counts the children and prints what the figures are made of.
func (b *bench) tell(ctx context.Context, measured *measurement) error {
	total, kinds, err := countChildren(ctx, b.config, clustersNamespace)
	if err != nil {
		return err
	}
	measured.children = total
	b.step("children: %.2f per cluster: %s", measured.childrenPerCluster(), kinds)
	b.step("memory of the operator: %.1f MiB at most, %.1f MiB now: %.1f anonymous, %.1f of files; the program has %.1f MiB",
		mebibytes(measured.after.peak), mebibytes(measured.after.resident), mebibytes(measured.after.anonymous), mebibytes(measured.after.files),
		mebibytes(measured.program))
	b.step("CPU of the operator at rest: %.3f cores", measured.restingCores())
	if a := measured.agents; a != nil {
		b.step("agents: %d, of that %d silent; %.1f questions a second at rest, %d at once at most", a.all, a.silent, a.perSecond(b.idle), a.mostAtOnce)
	}
	b.step("requests of the operator until it was quiet, without leases and watches:")
	printRequests(b.progress, measured.requests, b.clusters)
	b.step("requests in the %s after that: %d", b.idle, len(measured.idle))
	if len(measured.idle) > 0 {
		printRequests(b.progress, measured.idle, b.clusters)
	}
	return nil
}

// kubectl runs kubectl with all rights. Its output is shown when it fails.
func (b *bench) kubectl(ctx context.Context, input string, args ...string) error {
	run := command(ctx, filepath.Join(b.bin, "kubectl"), append([]string{"--kubeconfig", b.admin}, args...)...)
	var output bytes.Buffer
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader(input), &output, &output
	if err := run.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, lastLines(output.String()))
	}
	return nil
}
