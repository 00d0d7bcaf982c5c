package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/cgroup"
	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

const holderRole = "holder"

// host is where processes run: a network and a mount namespace that one process holds, and a control group. The control
// plane has one. The only node of a cluster shares it, several nodes have their own.
type host struct {
	// holder is the role of the process that holds the namespaces.
	holder string
	group  cgroup.Group
	// node is the one that runs there, nil where only the control plane does.
	node *node
}

// mainHost is the control plane's.
func (c *Cluster) mainHost() host {
	h := host{holder: holderRole, group: c.group}
	if nodes := c.nodes(); len(nodes) == 1 {
		h.node = &nodes[0]
	}
	return h
}

// hostOf is the node's. The control group of a node that is not alone is a part of the cluster's.
func (c *Cluster) hostOf(n node) host {
	if n.alone {
		return c.mainHost()
	}
	group := c.group
	group.Name = filepath.Join(group.Name, fmt.Sprintf("node-%d", n.index))
	return host{holder: n.role(holderRole), group: group, node: &n}
}

// hold returns the process id of the process that holds the host's namespaces, and starts it if it is missing.
func (c *Cluster) hold(ctx context.Context, h host, lock *os.File) (int, error) {
	record, known, err := daemon.ReadRecord(c.recordFile(h.holder))
	if err != nil {
		return 0, err
	}
	if known && record.Alive() {
		return record.PID, nil
	}
	if err := c.clear(ctx, h); err != nil {
		return 0, err
	}
	namespaces, err := c.namespaces(ctx, h)
	if err != nil {
		return 0, err
	}
	what := "the namespaces"
	if h.node != nil {
		what = h.node.inText(what)
	}
	if known {
		c.progress.step("making %s again: everything in them had ended", what)
	} else {
		c.progress.step("making %s", what)
	}
	err = daemon.Start(daemon.Spec{
		Path: c.program("localcluster"), Args: []string{HoldCommand}, Env: c.environment(),
		Log: c.logFile(h.holder), Record: c.recordFile(h.holder),
		Group:      h.group,
		Namespaces: namespaces,
	}, lock)
	if err != nil {
		return 0, fmt.Errorf("make %s: %w", what, err)
	}
	record, _, err = daemon.ReadRecord(c.recordFile(h.holder))
	return record.PID, err
}

// clear ends what is left of the host's earlier life, which has lost its namespaces and cannot be joined with new
// processes, and gives it an empty control group.
func (c *Cluster) clear(ctx context.Context, h host) error {
	if err := c.kill(ctx, h); err != nil {
		return err
	}
	// The kubelet takes what is left of ended containers' control groups for containers and waits for each of them.
	if err := c.removeGroup(ctx, h.group); err != nil {
		return err
	}
	if err := h.group.Create(); err != nil {
		return err
	}
	if h.node == nil {
		return nil
	}
	// The sockets and task folders of containers that ended with the machine or with the last holder.
	return os.RemoveAll(h.node.path("run"))
}

// kill ends every process of the host: those in its control group, and, for the control plane's, those that have a
// record. The control group of the cluster has those of its nodes in it.
func (c *Cluster) kill(ctx context.Context, h host) error {
	return c.progress.wait(ctx, "the end of the processes", time.Minute, func(context.Context) (string, error) {
		found, err := groupRecords(h.group)
		if err != nil {
			return "", err
		}
		if h.group.Name == c.group.Name {
			recorded, err := c.records()
			if err != nil {
				return "", err
			}
			found = append(found, recorded...)
		}
		var alive []string
		for _, record := range found {
			// A process that ended since, or that has ended and waits for its parent, is no obstacle.
			if !record.Alive() {
				continue
			}
			if err := record.Signal(syscall.SIGKILL); err != nil {
				return "", err
			}
			alive = append(alive, fmt.Sprint(record.PID))
		}
		if len(alive) == 0 {
			return "", nil
		}
		return "processes " + strings.Join(alive, " "), nil
	})
}

// groupRecords identifies the processes of a control group.
func groupRecords(group cgroup.Group) ([]daemon.Record, error) {
	pids, err := group.Processes()
	if err != nil {
		return nil, err
	}
	var records []daemon.Record
	for _, pid := range pids {
		// One that has ended meanwhile.
		if record, err := daemon.Of(pid); err == nil {
			records = append(records, record)
		}
	}
	return records, nil
}

// records are those of all roles.
func (c *Cluster) records() ([]daemon.Record, error) {
	files, err := filepath.Glob(c.recordFile("*"))
	if err != nil {
		return nil, err
	}
	var records []daemon.Record
	for _, file := range files {
		record, _, err := daemon.ReadRecord(file)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

func (c *Cluster) removeGroup(ctx context.Context, group cgroup.Group) error {
	return c.progress.wait(ctx, "the end of the control groups", 30*time.Second, func(context.Context) (string, error) {
		err := group.Remove()
		// An ended process stays in its group for a moment.
		if errors.Is(err, syscall.EBUSY) {
			return err.Error(), nil
		}
		return "", err
	})
}

// errNotRunning is what commands say that need a running cluster.
func (c *Cluster) errNotRunning() error {
	return fmt.Errorf("cluster %s does not run: run localcluster up --name %s", c.Name, c.Name)
}

// running returns the process id of the host's running holder.
func (c *Cluster) running(h host) (int, error) {
	record, known, err := daemon.ReadRecord(c.recordFile(h.holder))
	if err != nil {
		return 0, err
	}
	if known && record.Alive() {
		return record.PID, nil
	}
	if h.node != nil && !h.node.alone {
		return 0, fmt.Errorf("node %s does not run: run localcluster node start --name %s %s", h.node.name, c.Name, h.node.name)
	}
	return 0, c.errNotRunning()
}
