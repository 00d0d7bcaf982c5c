package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/cgroup"
	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
	"github.com/livestash-dev/livestash/test/localcluster/internal/nettest"
)

// How long somebody waits for a connection that is to be kept out, and for one that is to come about.
const (
	keptOut = 150 * time.Millisecond
	letIn   = 5 * time.Second
)

// What happens to one node happens to all that runs there, and to nothing on another.
func TestFaultsOfProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for control groups")
	}
	c := testCluster(t)
	c.state.Options.Nodes = 2
	hierarchies, err := cgroup.Mounted("/proc/self/mountinfo")
	must(t, err)
	c.group = cgroup.Group{Name: fmt.Sprintf("localcluster-test-%d", os.Getpid()), Hierarchies: hierarchies}
	ctx := context.Background()
	must(t, c.group.Create())
	t.Cleanup(func() {
		must(t, c.kill(ctx, c.mainHost()))
		must(t, c.removeGroup(ctx, c.group))
	})
	var processes [2]daemon.Record
	for i := range processes {
		group := c.hostOf(c.node(i)).group
		must(t, group.Create())
		command := exec.Command("sleep", "300")
		must(t, command.Start())
		go func() { _ = command.Wait() }()
		must(t, group.Join("daemons", command.Process.Pid))
		processes[i], err = daemon.Of(command.Process.Pid)
		must(t, err)
	}
	states := func() string {
		text := ""
		for _, process := range processes {
			text += fmt.Sprintf("alive %t, stopped %t; ", process.Alive(), process.Stopped())
		}
		return text
	}
	for _, step := range []struct {
		name, want string
		do         func() error
	}{
		{"freeze", "alive true, stopped true; alive true, stopped false; ", func() error { return c.freeze(ctx, c.node(0)) }},
		{"thaw", "alive true, stopped false; alive true, stopped false; ", func() error { return c.thaw(c.node(0)) }},
		{"kill", "alive false, stopped false; alive true, stopped false; ", func() error { return c.kill(ctx, c.hostOf(c.node(0))) }},
		{"freeze the other", "alive false, stopped false; alive true, stopped true; ", func() error { return c.freeze(ctx, c.node(1)) }},
		{"kill all, also what stands still", "alive false, stopped false; alive false, stopped false; ", func() error { return c.kill(ctx, c.mainHost()) }},
	} {
		must(t, step.do())
		if got := states(); got != step.want {
			t.Errorf("%s: got %s want %s", step.name, got, step.want)
		}
	}
}

// TestCables makes a control plane and two nodes without any program of Kubernetes, and pulls their cables.
func TestCables(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	c := testCluster(t)
	c.state = state{Options: Options{Nodes: 2}, Slot: 5}
	control := held(t, c, c.mainHost())
	nodes := []nettest.Namespace{held(t, c, c.hostOf(c.node(0))), held(t, c, c.hostOf(c.node(1)))}
	must(t, c.atTheSwitch(makeSwitch))
	for range 2 {
		// The second time changes nothing.
		for i := range nodes {
			must(t, c.wire(c.node(i)))
		}
	}
	all := slices.Concat(nodes, []nettest.Namespace{control})
	for _, namespace := range all {
		namespace.Serve(t, "7")
	}
	addresses := []string{c.node(0).ip.String(), c.node(1).ip.String(), controlPlaneIP}
	check := func(when string, cutOff bool) {
		t.Helper()
		for i, from := range all {
			for j, to := range addresses {
				want := i == j || !cutOff || i != 0 && j != 0
				patience := letIn
				if !want {
					patience = keptOut
				}
				if err := from.Run(func() error { return nettest.Dial(to, "7", patience) }); (err == nil) != want {
					t.Errorf("%s: that %s reaches %s is not %t: %v", when, addresses[i], to, want, err)
				}
			}
		}
	}
	ctx := context.Background()
	check("at first", false)
	must(t, c.cut(ctx, c.node(0)))
	check("cut off", true)
	must(t, c.cut(ctx, c.node(0)))
	must(t, c.heal(c.node(0)))
	check("healed", false)
	must(t, c.atTheSwitch(c.node(0).addSlowLinks))
	must(t, c.cut(ctx, c.node(0)))
	check("cut off on the way to a bad network", true)
	must(t, c.heal(c.node(0)))
	check("healed again", false)
}

// held starts a process that holds a network namespace for a host, as its holder.
func held(t *testing.T, c *Cluster, h host) nettest.Namespace {
	t.Helper()
	namespace := nettest.New(t)
	command := exec.Command("sleep", "300")
	must(t, namespace.Run(command.Start))
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	record, err := daemon.Of(command.Process.Pid)
	must(t, err)
	content, err := json.Marshal(record)
	must(t, err)
	must(t, replaceFile(c.recordFile(h.holder), content, 0o644))
	return namespace
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
