package cluster

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/livestash-dev/livestash/test/localcluster/internal/image"
)

// ownImage is an image with a single static program.
type ownImage struct{ reference, program string }

// coreDNSImage carries the version that the program was built from.
func (c *Cluster) coreDNSImage() (string, error) {
	info, err := buildinfo.ReadFile(c.program("coredns"))
	if err != nil {
		return "", fmt.Errorf("read the version of coredns: %w", err)
	}
	return imageRegistry + "/coredns:" + coreDNSVersion(info), nil
}

func coreDNSVersion(info *buildinfo.BuildInfo) string {
	for _, module := range info.Deps {
		if module.Path == "github.com/coredns/coredns" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

// prepareImages brings the cluster's own images into the node's container runtime.
func (c *Cluster) prepareImages(ctx context.Context, n node) error {
	coreDNS, err := c.coreDNSImage()
	if err != nil {
		return err
	}
	present, err := c.images(ctx, n)
	if err != nil {
		return err
	}
	for _, own := range []ownImage{{pauseImage, "pause"}, {coreDNS, "coredns"}} {
		if slices.Contains(present, own.reference) {
			continue
		}
		c.progress.step("making %s", n.inText("the image "+own.reference))
		file := n.path("images", own.program+".tar")
		if err := image.WriteProgram(file, own.reference, c.program(own.program)); err != nil {
			return fmt.Errorf("make the image %s: %w", own.reference, err)
		}
		if _, err := c.importImage(ctx, n, file); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs containerd's own client. It dies with this command, however that ends: left alone, it would wait for a
// containerd that `down` has ended.
func (c *Cluster) ctr(ctx context.Context, n node, args ...string) (string, error) {
	path, err := programPath("ctr")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, path, append([]string{"--address", n.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
	command.Env = c.environment()
	// The kernel counts the thread that started a child as its parent, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (c *Cluster) images(ctx context.Context, n node) ([]string, error) {
	list, err := c.ctr(ctx, n, "images", "list", "--quiet")
	return strings.Fields(list), err
}

// importImage returns what ctr prints about it.
func (c *Cluster) importImage(ctx context.Context, n node, file string) (printed string, err error) {
	err = c.progress.during("unpacking "+file, func() error {
		printed, err = c.ctr(ctx, n, "images", "import", file)
		return err
	})
	return printed, err
}

// Load imports images into all nodes, from archives as `docker save` writes them, or in the OCI layout, and prints their
// names.
func (c *Cluster) Load(ctx context.Context, files []string, out io.Writer) error {
	if err := c.mustExist(); err != nil {
		return err
	}
	if c.state.Options.ControlPlaneOnly {
		return fmt.Errorf("cluster %s has only a control plane: it runs no images", c.Name)
	}
	for _, n := range c.nodes() {
		if _, err := c.running(c.hostOf(n)); err != nil {
			return err
		}
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("load: %w", err)
		}
		c.progress.step("loading %s", file)
		printed, err := c.importEverywhere(ctx, file)
		if err != nil {
			return fmt.Errorf("load %s: is it an image archive? %w", file, err)
		}
		for line := range strings.Lines(printed) {
			if reference, ok := strings.CutPrefix(strings.TrimSpace(line), "unpacking "); ok {
				reference, _, _ = strings.Cut(reference, " ")
				_, _ = fmt.Fprintln(out, reference)
			}
		}
	}
	return nil
}

// importEverywhere returns what ctr prints on the first node: it is the same on all.
func (c *Cluster) importEverywhere(ctx context.Context, file string) (printed string, err error) {
	err = onEach(c.nodes(), func(n node) error {
		text, err := c.importImage(ctx, n, file)
		if n.index == 0 {
			printed = text
		}
		return err
	})
	return printed, err
}
