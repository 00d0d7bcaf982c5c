package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/livestash-dev/livestash/test/internal/podprocess"
	"github.com/livestash-dev/livestash/test/internal/program"
)

// Kill ends the process of this name in a pod's container with SIGKILL.
func (f *Fleet) Kill(ctx context.Context, name, container, process string) error {
	pid, err := f.process(ctx, name, container, process)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}

// Freeze stops the process of this name in a pod's container as a hanging machine would. The returned function lets it go on.
func (f *Fleet) Freeze(ctx context.Context, name, container, process string) (thaw func() error, err error) {
	pid, err := f.process(ctx, name, container, process)
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("freeze %d: %w", pid, err)
	}
	return func() error {
		// The kubelet may have ended it meanwhile.
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("thaw %d: %w", pid, err)
		}
		return nil
	}, nil
}

func (f *Fleet) process(ctx context.Context, name, container, process string) (int, error) {
	pod, err := f.Pod(ctx, name)
	if err != nil {
		return 0, err
	}
	return podprocess.Find(pod, container, process)
}

// ClientNetwork is the path of the network of the pod that holds the users, from which others can come to the fleet as well.
func (f *Fleet) ClientNetwork(ctx context.Context) (string, error) {
	if err := f.ClientReady(ctx); err != nil {
		return "", err
	}
	pid, err := f.process(ctx, clientName, "client", "survival-client")
	return fmt.Sprintf("/proc/%d/ns/net", pid), err
}

// cutTables makes the names of the tables different, so that a pod can be cut off twice at a time.
var cutTables atomic.Int64

// Cut cuts a pod off from everything but itself. The returned function connects it again.
func (f *Fleet) Cut(ctx context.Context, name string) (heal func() error, err error) {
	return f.filter(ctx, name, `
	chain in { type filter hook input priority filter; policy drop; iif lo accept; }
	chain out { type filter hook output priority filter; policy drop; oif lo accept; }
`)
}

// Split lets no packet pass between a pod and another. The returned function connects them again.
func (f *Fleet) Split(ctx context.Context, name, other string) (heal func() error, err error) {
	family, address, err := f.address(ctx, other)
	if err != nil {
		return nil, err
	}
	return f.filter(ctx, name, fmt.Sprintf(`
	chain in { type filter hook input priority filter; %[1]s saddr %[2]s drop; }
	chain out { type filter hook output priority filter; %[1]s daddr %[2]s drop; }
`, family, address))
}

// slowRate is what is left of the network between a slowed pod and another: every stash still passes, in its time.
const slowRate = "20 kbytes/second"

// Slow drops what exceeds slowRate between a pod and another, in each direction. The returned function ends that.
func (f *Fleet) Slow(ctx context.Context, name, other string) (heal func() error, err error) {
	family, address, err := f.address(ctx, other)
	if err != nil {
		return nil, err
	}
	return f.filter(ctx, name, fmt.Sprintf(`
	chain in { type filter hook input priority filter; %[1]s saddr %[2]s limit rate over %[3]s drop; }
	chain out { type filter hook output priority filter; %[1]s daddr %[2]s limit rate over %[3]s drop; }
`, family, address, slowRate))
}

// address is a pod's, with the word that nft has for its family.
func (f *Fleet) address(ctx context.Context, name string) (family, address string, err error) {
	pod, err := f.Pod(ctx, name)
	if err != nil {
		return "", "", err
	}
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return "", "", fmt.Errorf("pod %s: %w", name, err)
	}
	if ip.Is4() {
		return "ip", ip.String(), nil
	}
	return "ip6", ip.String(), nil
}

// filter adds chains to the network of a pod. The returned function removes them.
func (f *Fleet) filter(ctx context.Context, name, chains string) (remove func() error, err error) {
	pid, err := f.process(ctx, name, AppContainer, Beam)
	if err != nil {
		return nil, err
	}
	table := fmt.Sprintf("livestash_test_%d", cutTables.Add(1))
	// Held open, so that the pod can be connected again should its process end meanwhile.
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	network := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), namespace.Fd())
	if _, err := program.Run(ctx, "table inet "+table+" {"+chains+"}\n", "nsenter", network, "nft", "-f", "-"); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return func() error {
		// Also when the run was stopped.
		_, err := program.Run(context.WithoutCancel(ctx), "", "nsenter", network, "nft", "delete", "table", "inet", table)
		return errors.Join(err, namespace.Close())
	}, nil
}
