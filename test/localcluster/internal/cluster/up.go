package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	apiServerLimit = 2 * time.Minute
	addonLimit     = time.Minute
	readyLimit     = 2 * time.Minute
	requestTimeout = 5 * time.Second
)

// Up makes the cluster run and be healthy. What is there already stays as it is; what has ended is started again.
func (c *Cluster) Up(ctx context.Context, options Options) error {
	options, err := c.complete(options)
	if err != nil {
		return err
	}
	if err := c.preflight(options); err != nil {
		return err
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()

	exists, err := c.load()
	if err != nil {
		return err
	}
	if exists && c.state.Options != options {
		return fmt.Errorf("cluster %s exists with other options (%s): run localcluster down --name %s first, or leave the options as they were",
			c.Name, c.state.Options, c.Name)
	}
	if err := c.claim(ctx, options); err != nil {
		return err
	}
	changed, err := c.startAll(ctx, lock)
	if err != nil {
		return err
	}
	if err := c.becomeReady(ctx); err != nil {
		return err
	}
	if changed {
		c.progress.step("cluster %s is up: %s", c.Name, c.apiServerURL())
	} else {
		c.progress.step("cluster %s was up already: %s", c.Name, c.apiServerURL())
	}
	return nil
}

// complete checks the options and makes their paths absolute.
func (c *Cluster) complete(options Options) (Options, error) {
	if options.Nodes < 1 || options.Nodes > maxNodes {
		return options, fmt.Errorf("--nodes %d: a cluster has 1 to %d nodes", options.Nodes, maxNodes)
	}
	if options.ControlPlaneOnly && options.Nodes != 1 {
		return options, errors.New("--nodes: a control plane alone has no nodes: leave out one of the two options")
	}
	if options.ControlPlaneOnly && options.NetworkPolicies {
		return options, errors.New("--network-policies: a control plane alone has no pods: leave out one of the two options")
	}
	if options.AuditLog == "" && options.AuditUser != "" {
		return options, errors.New("--audit-user is for --audit-log: give both, or neither")
	}
	if options.AuditLog == "" {
		return options, nil
	}
	path, err := filepath.Abs(options.AuditLog)
	if err != nil {
		return options, err
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return options, fmt.Errorf("--audit-log %s: its folder does not exist: make it first", path)
	}
	options.AuditLog = path
	return options, nil
}

// String lists the options as they are written on the command line.
func (o Options) String() string {
	text := fmt.Sprintf("--nodes %d", o.Nodes)
	if o.ControlPlaneOnly {
		text += " --control-plane-only"
	}
	if o.NetworkPolicies {
		text += " --network-policies"
	}
	if o.AuditLog != "" {
		text += " --audit-log " + o.AuditLog
	}
	if o.AuditUser != "" {
		text += " --audit-user " + o.AuditUser
	}
	return text
}

// claim settles the cluster's addresses and writes its state.
func (c *Cluster) claim(ctx context.Context, options Options) error {
	preferred := c.preferredSlot()
	taken := slotTaken
	if c.state.Options.Nodes > 0 {
		// Certificates hold the address already. Whether it is still free shows when the link is made.
		preferred = c.state.Slot
		taken = func(int) (string, error) { return "", nil }
	}
	slot, err := c.registry.Claim(ctx, c.id, c.Dir, preferred, slots, taken)
	if err != nil {
		return err
	}
	if c.state.Options.Nodes > 0 && slot != c.state.Slot {
		return fmt.Errorf("another cluster took the addresses of cluster %s while it was not running: run localcluster down --name %s, then up", c.Name, c.Name)
	}
	c.state = state{Options: options, Slot: slot}
	return c.save()
}

// startAll starts what does not run, and says whether it started anything.
func (c *Cluster) startAll(ctx context.Context, lock *os.File) (changed bool, err error) {
	holder, err := c.hold(ctx, c.mainHost(), lock)
	if err != nil {
		return false, err
	}
	if err := c.connect(holder); err != nil {
		return false, err
	}
	files, err := c.prepareCertificates()
	if err != nil {
		return false, fmt.Errorf("make the cluster's certificates: %w", err)
	}
	for _, p := range c.controlPlane(files) {
		started, err := c.startProcess(p, lock)
		if err != nil {
			return changed, err
		}
		changed = changed || started
		if p.role != "kube-apiserver" {
			continue
		}
		if err := c.awaitAPIServer(ctx); err != nil {
			return changed, err
		}
		if err := c.applyAddons(ctx); err != nil {
			return changed, err
		}
	}
	nodes := c.nodes()
	if len(nodes) == 0 {
		return changed, nil
	}
	started, err := c.startNodes(ctx, nodes, files, lock)
	changed = changed || started
	if err != nil {
		return changed, err
	}
	last, err := c.startProcesses(c.lastProcesses(), lock)
	return changed || last, err
}

// startProcesses starts those that do not run, in that order.
func (c *Cluster) startProcesses(processes []process, lock *os.File) (changed bool, err error) {
	for _, p := range processes {
		started, err := c.startProcess(p, lock)
		if err != nil {
			return changed, err
		}
		changed = changed || started
	}
	return changed, nil
}

// startNodes starts what does not run of the nodes. Their container runtimes all start before the first is waited for.
func (c *Cluster) startNodes(ctx context.Context, nodes []node, files certificates, lock *os.File) (changed bool, err error) {
	var runtimes, others []process
	for _, n := range nodes {
		if !n.alone {
			restored, err := c.restore(ctx, n, lock)
			if err != nil {
				return changed, err
			}
			changed = changed || restored
		}
		processes, err := c.nodeProcesses(n, files)
		if err != nil {
			return changed, err
		}
		runtimes, others = append(runtimes, processes[0]), append(others, processes[1:]...)
	}
	started, err := c.startProcesses(runtimes, lock)
	changed = changed || started
	if err != nil {
		return changed, err
	}
	err = onEach(nodes, func(n node) error {
		if err := c.awaitRuntime(ctx, n); err != nil {
			return err
		}
		return c.prepareImages(ctx, n)
	})
	if err != nil {
		return changed, err
	}
	started, err = c.startProcesses(others, lock)
	return changed || started, err
}

// awaitRuntime waits for what the kubelet cannot wait for itself.
func (c *Cluster) awaitRuntime(ctx context.Context, n node) error {
	return c.progress.wait(ctx, n.inText("containerd"), time.Minute, func(ctx context.Context) (string, error) {
		if err := c.mustRun(n.role("containerd")); err != nil {
			return "", err
		}
		_, err := c.images(ctx, n)
		return errorText(err), nil
	})
}

func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.progress.wait(ctx, "the API server", apiServerLimit, func(ctx context.Context) (string, error) {
		if err := c.mustRun("etcd", "kube-apiserver"); err != nil {
			return "", err
		}
		return missingAPIServer(ctx, client), nil
	})
}

// becomeReady waits until the cluster does its work.
func (c *Cluster) becomeReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, c.checks(client), c.roles())
}

// await waits for each of the checks, as long as the processes of these roles run.
func (c *Cluster) await(ctx context.Context, checks []check, roles []string) error {
	for _, check := range checks {
		err := c.progress.wait(ctx, check.what, readyLimit, func(ctx context.Context) (string, error) {
			if err := c.mustRun(roles...); err != nil {
				return "", err
			}
			return check.missing(ctx), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (c *Cluster) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.adminKubeconfig())
	if err != nil {
		return nil, errors.Join(c.errNotRunning(), err)
	}
	config.Timeout = requestTimeout
	// The few requests of one command need no brake.
	config.QPS = -1
	// A proxy of the machine does not know the cluster's address.
	config.Proxy = noProxy
	return config, nil
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
