package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// downLimit is how long removing the control plane may take.
const downLimit = 2 * time.Minute

// controlPlane is etcd, an API server and a controller manager, run by localcluster.
type controlPlane struct {
	name, bin string
	// dir is this run's own folder.
	dir      string
	progress *progress
	// lock is held as long as the control plane is ours.
	lock *os.File
}

// claim makes sure that no other run uses the control plane of this name.
func (c *controlPlane) claim() error {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "livestash-scale-"+c.name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return fmt.Errorf("another measurement uses the local cluster %s: wait for it, or give another -name", c.name)
	}
	c.lock = file
	return nil
}

// up starts it, fresh.
func (c *controlPlane) up(ctx context.Context) error {
	// What a killed run left behind would be measured too.
	if err := c.localcluster(ctx, "down"); err != nil {
		return err
	}
	return c.localcluster(ctx, "up", "--control-plane-only", "--audit-log", c.auditLog(), "--audit-user", operatorUser())
}

// down removes it, also when it is half up, and whatever became of the caller's context.
func (c *controlPlane) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
	defer cancel()
	return errors.Join(c.localcluster(ctx, "down"), os.Remove(c.lock.Name()), c.lock.Close())
}

func (c *controlPlane) localcluster(ctx context.Context, name string, args ...string) error {
	run := command(ctx, filepath.Join(c.bin, "localcluster"), append([]string{name, "--name", c.name}, args...)...)
	run.Stdout, run.Stderr = c.progress, c.progress
	if err := run.Run(); err != nil {
		return fmt.Errorf("localcluster %s: %w", name, err)
	}
	return nil
}

func (c *controlPlane) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// connect writes a kubeconfig with all rights to a file of this run, and reads it.
func (c *controlPlane) connect(ctx context.Context) (file string, config *rest.Config, err error) {
	run := command(ctx, filepath.Join(c.bin, "localcluster"), "kubeconfig", "--name", c.name)
	run.Stderr = c.progress
	content, err := run.Output()
	if err != nil {
		return "", nil, fmt.Errorf("localcluster kubeconfig: %w", err)
	}
	file = filepath.Join(c.dir, "admin.kubeconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return "", nil, err
	}
	config, err = clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return "", nil, fmt.Errorf("localcluster kubeconfig: %w", err)
	}
	// The API server is on this machine: no proxy of the environment is asked.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	// Decoding JSON would take time from the programs that are measured.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "livestash-scale"
	config.QPS = -1
	// Listing every kind of object lists deprecated ones too.
	config.WarningHandler = rest.NoWarnings{}
	return file, config, nil
}
