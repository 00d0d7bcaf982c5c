package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/livestash-dev/livestash/test/internal/podprocess"
	"github.com/livestash-dev/livestash/test/internal/program"
)

// kill ends the process of this name in a pod's container with SIGKILL.
func (f *fleet) kill(ctx context.Context, name, container, process string) error {
	pod, err := f.pod(ctx, name)
	if err != nil {
		return err
	}
	pid, err := podprocess.Find(pod, container, process)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}

const cutTable = "livestash_survival"

// cut cuts a pod off from everything but itself. The returned function connects it again.
func (f *fleet) cut(ctx context.Context, name string) (heal func() error, err error) {
	pod, err := f.pod(ctx, name)
	if err != nil {
		return nil, err
	}
	pid, err := podprocess.Find(pod, appContainer, beam)
	if err != nil {
		return nil, err
	}
	rules := fmt.Sprintf(`table inet %s {
	chain in { type filter hook input priority filter; policy drop; iif lo accept; }
	chain out { type filter hook output priority filter; policy drop; oif lo accept; }
}
`, cutTable)
	// Held open, so that the pod can be connected again should its process end meanwhile.
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	network := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), namespace.Fd())
	if _, err := program.Run(ctx, rules, "nsenter", network, "nft", "-f", "-"); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return func() error {
		// Also when the run was stopped.
		_, err := program.Run(context.WithoutCancel(ctx), "", "nsenter", network, "nft", "delete", "table", "inet", cutTable)
		return errors.Join(err, namespace.Close())
	}, nil
}
