package tour

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// stopWithin is how long the plugin may take to end when it is told to.
const stopWithin = 5 * time.Second

// Open opens ports of this machine that lead to the ready pods of both fleets, by `kubectl livestash open`, and returns
// their addresses by side. They are there until the function that it returns is called. The plugin is that of the path;
// the cluster is KUBECONFIG's.
func Open(ctx context.Context, plugin, namespace string) (addresses map[string]string, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	addresses = map[string]string{}
	for _, side := range Sides() {
		address, one, err := OpenFleet(ctx, plugin, namespace, side.Cluster)
		if err != nil {
			stop()
			return nil, nil, err
		}
		addresses[side.Name], stops = address, append(stops, one)
	}
	return addresses, stop, nil
}

// OpenFleet is the same for one fleet, and for whichever name a LiveStashCluster has.
func OpenFleet(ctx context.Context, plugin, namespace, cluster string) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}
	command := exec.CommandContext(ctx, plugin, "--namespace", namespace, "open", cluster, "--port", "0")
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopWithin
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("%s open %s: %w", plugin, cluster, err)
	}
	said := bufio.NewReader(out)
	first, err := said.ReadString('\n')
	running.Go(func() {
		_, _ = io.Copy(io.Discard, said)
		_ = command.Wait() // it is told to end
	})
	if err == nil {
		address, err = opened(first)
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("%s open %s: %w", plugin, cluster, err)
	}
	return address, stop, nil
}

// opened is where the plugin listens, by the first line that it writes.
func opened(line string) (string, error) {
	address, _, _ := strings.Cut(line, " ")
	page, err := url.Parse(address)
	if err != nil || page.Port() == "" {
		return "", fmt.Errorf("it says %q, not where it listens", line)
	}
	return net.JoinHostPort("127.0.0.1", page.Port()), nil
}
