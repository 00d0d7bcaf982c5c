package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

// stopLimit is for how long a machine that is shut down waits for its processes.
const stopLimit = 30 * time.Second

// Fault is something that happens to a node, or that undoes it.
type Fault struct {
	Name, Does string
	do         func(c *Cluster, ctx context.Context, n node, lock *os.File) error
}

// Faults are all there are.
var Faults = []Fault{
	{"stop", "Shut it down: SIGTERM to its containers, after 30 s SIGKILL to everything", (*Cluster).stop},
	{"kill", "Take its power away: no word more reaches the network, and SIGKILL to everything on it", (*Cluster).loseNode},
	{"freeze", "Stop its time: SIGSTOP to everything on it", withoutLock((*Cluster).freeze)},
	{"cut", "Take its network away, that between its own pods excepted", withoutLock((*Cluster).cut)},
	{"delay", "Make its network bad: what leaves it takes 200 ms longer, and 5 % of it are lost", (*Cluster).delay},
	{"start", "Start it again after stop or kill, and wait until it is ready", (*Cluster).startNode},
	{"thaw", "Let its time go on after freeze", withoutLock(func(c *Cluster, _ context.Context, n node) error { return c.thaw(n) })},
	{"heal", "Give it a good network after cut or delay", withoutLock(func(c *Cluster, _ context.Context, n node) error { return c.heal(n) })},
}

func withoutLock(do func(*Cluster, context.Context, node) error) func(*Cluster, context.Context, node, *os.File) error {
	return func(c *Cluster, ctx context.Context, n node, _ *os.File) error { return do(c, ctx, n) }
}

// Do lets the fault happen to the node of this name.
func (c *Cluster) Do(ctx context.Context, fault Fault, name string) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := c.mustExist(); err != nil {
		return err
	}
	n, err := c.nodeNamed(name)
	if err != nil {
		return err
	}
	if n.alone {
		return errors.New("the only node shares its processes and its network with the control plane: make a cluster with --nodes 3")
	}
	if _, err := c.running(c.mainHost()); err != nil {
		return err
	}
	return fault.do(c, ctx, n, lock)
}

// stop ends the kubelet first: it would start the containers again.
func (c *Cluster) stop(ctx context.Context, n node, lock *os.File) error {
	kubelet, _, err := daemon.ReadRecord(c.recordFile(n.role("kubelet")))
	if err != nil {
		return err
	}
	if err := kubelet.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	pods := c.hostOf(n).group
	pods.Name = filepath.Join(pods.Name, "kubepods")
	containers, err := groupRecords(pods)
	if err != nil {
		return err
	}
	for _, container := range containers {
		if err := container.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(stopLimit)
	for slices.ContainsFunc(containers, daemon.Record.Alive) && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(pollInterval)
	}
	return c.loseNode(ctx, n, lock)
}

// loseNode cuts the network first: the sockets of killed processes would say goodbye, which those of a lost machine do not.
func (c *Cluster) loseNode(ctx context.Context, n node, _ *os.File) error {
	if err := c.cut(ctx, n); err != nil {
		return err
	}
	return c.kill(ctx, c.hostOf(n))
}

func (c *Cluster) cut(_ context.Context, n node) error {
	return c.atTheSwitch(func(control *netlink.Handle) error {
		if err := c.endRelay(n, control); err != nil {
			return err
		}
		return unplug(control, n.cable())
	})
}

// atTheSwitch does something to the links of the control plane.
func (c *Cluster) atTheSwitch(do func(control *netlink.Handle) error) error {
	control, err := c.network(c.mainHost())
	if err != nil {
		return err
	}
	defer control.Close()
	return do(control.Handle)
}

// freeze repeats itself until nothing is left that could have made a new process meanwhile.
func (c *Cluster) freeze(ctx context.Context, n node) error {
	group := c.hostOf(n).group
	return c.progress.wait(ctx, "the end of all movement", time.Minute, func(context.Context) (string, error) {
		records, err := groupRecords(group)
		if err != nil {
			return "", err
		}
		moving := 0
		for _, record := range records {
			if !record.Alive() || record.Stopped() {
				continue
			}
			moving++
			if err := record.Signal(syscall.SIGSTOP); err != nil {
				return "", err
			}
		}
		if moving == 0 {
			return "", nil
		}
		return fmt.Sprintf("%d processes", moving), nil
	})
}

func (c *Cluster) thaw(n node) error {
	records, err := groupRecords(c.hostOf(n).group)
	if err != nil {
		return err
	}
	for _, record := range records {
		if !record.Stopped() {
			continue
		}
		if err := record.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) heal(n node) error {
	err := c.atTheSwitch(func(control *netlink.Handle) error { return c.endRelay(n, control) })
	if err != nil {
		return err
	}
	return c.wire(n)
}

// The links between which the relay of a bad network stands besides the node's cable: its own, and the one in the switch.
func (n node) slowLink() string { return n.cable() + "-relay" }
func (n node) slowPort() string { return n.cable() + "-port" }

// delay puts a relay between the node's cable and the switch. The kernel's own way, tc netem, is missing in the kernels of
// small virtual machines.
func (c *Cluster) delay(ctx context.Context, n node, lock *os.File) error {
	if err := c.cut(ctx, n); err != nil {
		return err
	}
	if err := c.atTheSwitch(n.addSlowLinks); err != nil {
		return err
	}
	_, err := c.startProcess(process{
		role: n.relayRole(), path: c.program("localcluster"), on: c.mainHost(),
		args: []string{RelayCommand, n.cable(), n.slowLink()},
	}, lock)
	return err
}

func (n node) addSlowLinks(control *netlink.Handle) error {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: n.slowPort()}, PeerName: n.slowLink()}
	if err := control.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the link %s: %w", n.slowPort(), err)
	}
	if err := unplug(control, n.slowLink()); err != nil {
		return err
	}
	if err := setUp(control, n.slowLink()); err != nil {
		return err
	}
	return plug(control, n.slowPort())
}

// relayRole is the process that makes the node's connection slow.
func (n node) relayRole() string { return n.role("relay") }

// endRelay ends it, where there is one, and removes its links.
func (c *Cluster) endRelay(n node, control *netlink.Handle) error {
	record, _, err := daemon.ReadRecord(c.recordFile(n.relayRole()))
	if err != nil {
		return err
	}
	if err := record.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := os.RemoveAll(c.recordFile(n.relayRole())); err != nil {
		return err
	}
	return removeLinkFrom(control, n.slowPort())
}

func (c *Cluster) startNode(ctx context.Context, n node, lock *os.File) error {
	files, err := c.prepareCertificates()
	if err != nil {
		return err
	}
	if _, err := c.startNodes(ctx, []node{n}, files, lock); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, c.nodeChecks(client, n), append(c.nodeRoles(n), n.role(holderRole)))
}

// restore gives the node its namespaces and connections as they should be, whatever was done to it, and says whether it
// had none.
func (c *Cluster) restore(ctx context.Context, n node, lock *os.File) (changed bool, err error) {
	on := c.hostOf(n)
	_, missing := c.running(on)
	if _, err := c.hold(ctx, on, lock); err != nil {
		return false, err
	}
	if err := c.thaw(n); err != nil {
		return missing != nil, err
	}
	return missing != nil, c.heal(n)
}
