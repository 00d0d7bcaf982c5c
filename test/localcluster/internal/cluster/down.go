package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Down removes the cluster and everything it made, whatever state it is in. It is no error when there is nothing.
func (c *Cluster) Down(ctx context.Context) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	c.progress.step("ending the processes of cluster %s", c.Name)
	if err := c.kill(ctx, c.mainHost()); err != nil {
		return err
	}
	if err := c.removeLink(); err != nil {
		return err
	}
	c.progress.step("removing its control groups, links and state")
	if err := c.removeGroup(ctx, c.group); err != nil {
		return err
	}
	if err := c.removeState(ctx); err != nil {
		return err
	}
	if err := c.registry.Release(ctx, c.id); err != nil {
		return err
	}
	if err := c.registry.Forget(ctx, c.id); err != nil {
		return err
	}
	c.progress.step("cluster %s is gone", c.Name)
	return nil
}

func (c *Cluster) removeState(ctx context.Context) error {
	mounted, err := mountsBelow("/proc/self/mountinfo", c.Dir)
	if err != nil {
		return err
	}
	// The cluster's own mounts ended with its mount namespace. What is mounted here is somebody else's, and removing the
	// folder would delete its content.
	if len(mounted) > 0 {
		return fmt.Errorf("something is mounted below the cluster's state that is not the cluster's: umount %s, then run down again",
			strings.Join(mounted, " "))
	}
	err = c.progress.wait(ctx, "the end of the cluster's files", time.Minute, func(context.Context) (string, error) {
		err := os.RemoveAll(c.Dir)
		// The mounts of an ended namespace go away a moment after its last process.
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
			return err.Error(), nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	// The folder of all clusters goes with the last one, unless it was there for something else.
	err = os.Remove(filepath.Dir(c.Dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return nil
}

// mountsBelow lists the mount points in a folder, from a file in the format of /proc/self/mountinfo.
func mountsBelow(mountinfo, folder string) ([]string, error) {
	content, err := os.ReadFile(mountinfo)
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		path := unescape.Replace(fields[4])
		if path == folder || strings.HasPrefix(path, folder+"/") {
			found = append(found, path)
		}
	}
	return found, nil
}
