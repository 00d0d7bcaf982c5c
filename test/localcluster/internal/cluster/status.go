package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

// ErrUnhealthy is what Status returns when the cluster is there but not all of it works. It has been printed already.
var ErrUnhealthy = errors.New("the cluster is not healthy")

// Status prints what the cluster consists of and whether it works.
func (c *Cluster) Status(ctx context.Context, out io.Writer) error {
	if err := c.mustExist(); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "cluster\t%s (%s)\n", c.Name, c.state.Options)
	_, _ = fmt.Fprintf(table, "API server\t%s\n", c.apiServerURL())
	_, _ = fmt.Fprintf(table, "state\t%s\n", c.Dir)
	healthy := true
	for _, role := range c.roles() {
		record, known, err := daemon.ReadRecord(c.recordFile(role))
		if err != nil {
			return err
		}
		state := fmt.Sprintf("runs (process %d)", record.PID)
		if !known {
			state, healthy = "never started", false
		} else if !record.Alive() {
			state, healthy = "has ended; see "+c.logFile(role), false
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\n", role, state)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, check := range c.checks(client) {
		missing := check.missing(ctx)
		if missing != "" {
			_, _ = fmt.Fprintf(table, "%s\tnot ready: %s\n", check.what, missing)
			healthy = false
			continue
		}
		_, _ = fmt.Fprintf(table, "%s\tready\n", check.what)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if healthy {
		return nil
	}
	_, _ = fmt.Fprintf(out, "\nTo repair it, run: localcluster up --name %s %s\n", c.Name, c.state.Options)
	return ErrUnhealthy
}

// Kubeconfig prints a configuration for kubectl and other clients on this machine, with full rights.
func (c *Cluster) Kubeconfig(out io.Writer) error {
	if err := c.mustExist(); err != nil {
		return err
	}
	content, err := os.ReadFile(c.adminKubeconfig())
	if err != nil {
		return errors.Join(c.errNotRunning(), err)
	}
	_, err = out.Write(content)
	return err
}

// Exec becomes the command, inside the network and mount namespaces of the node of this name, or of the control plane when it
// is empty: there, the addresses of pods and Services can be reached. It must be called on the process's main thread. It
// returns only when it fails.
func (c *Cluster) Exec(name string, command []string) error {
	if err := c.mustExist(); err != nil {
		return err
	}
	where := c.mainHost()
	if name != "" {
		n, err := c.nodeNamed(name)
		if err != nil {
			return err
		}
		where = c.hostOf(n)
	}
	holder, err := c.running(where)
	if err != nil {
		return err
	}
	// So that down finds it, should it still run then.
	if err := where.group.Join("exec", os.Getpid()); err != nil {
		return err
	}
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := daemon.Enter(holder); err != nil {
		return err
	}
	// Entering a mount namespace moves to its root.
	if err := os.Chdir(folder); err != nil {
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	environment := append(withoutProxies(os.Environ()), "KUBECONFIG="+c.adminKubeconfig())
	if err := syscall.Exec(path, command, environment); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// withoutProxies leaves out what would send requests to a proxy that does not exist in the namespace, and KUBECONFIG.
func withoutProxies(environment []string) []string {
	var kept []string
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "all_proxy", "kubeconfig":
		default:
			kept = append(kept, variable)
		}
	}
	return kept
}
