package podagent

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// usageFile tells the agent what this container uses, which the agent cannot see: the pod costs both. It holds bytes and
	// microseconds of CPU time.
	usageFile = "usage"
	// usageInterval is how often: as often as a benchmark asks the agent.
	usageInterval = 5 * time.Second

	cgroupMount = "/sys/fs/cgroup"
	ownCgroups  = "/proc/self/cgroup"
)

// tellUsage keeps usageFile in dir up to date until ctx ends. Where the kernel does not say what this container uses, there is none.
func tellUsage(ctx context.Context, dir string, every time.Duration, logger *log.Logger) {
	// One of the time before a restart of this container would stand still.
	_ = os.Remove(filepath.Join(dir, usageFile))
	for {
		own, err := os.ReadFile(ownCgroups)
		if err != nil {
			return
		}
		bytes, microseconds, err := usage(cgroupMount, string(own))
		if err == nil {
			err = replaceFile(filepath.Join(dir, usageFile), fmt.Appendf(nil, "%d %d\n", bytes, microseconds))
		}
		if err != nil {
			logger.Printf("What this container uses is not told: %v", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// errNoUsage says that no control group of this container's own is to be seen.
var errNoUsage = errors.New("there is no control group with memory and CPU time")

// usage is the memory of a container, without file pages that the kernel can drop at once, and its CPU time in microseconds: from its
// control groups below mount, of version 2 or 1. own are their paths, as /proc/self/cgroup has them. livestash_agent_cgroup.erl
// does the same for the application.
func usage(mount, own string) (bytes, microseconds int64, err error) {
	paths := map[string]string{}
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			paths[controller] = fields[2]
		}
	}
	// A container that sees all of the node's groups finds its own by its path. In one that sees its own alone, that is the root.
	folders := func(controller string, names ...string) []string {
		var all []string
		for _, name := range names {
			all = append(all, filepath.Join(mount, name, paths[controller]), filepath.Join(mount, name))
		}
		return all
	}
	memory := first(memoryV2, folders("", ""), memoryV1, folders("memory", "memory"))
	cpu := first(cpuV2, folders("", ""), cpuV1, folders("cpuacct", "cpuacct", "cpu,cpuacct", "cpuacct,cpu"))
	if memory == nil || cpu == nil {
		return 0, 0, errNoUsage
	}
	return *memory, *cpu, nil
}

// first is the first figure that the folders of version 2, else those of version 1, have.
func first(v2 func(string) (int64, error), folders2 []string, v1 func(string) (int64, error), folders1 []string) *int64 {
	for _, folder := range folders2 {
		if value, err := v2(folder); err == nil {
			return &value
		}
	}
	for _, folder := range folders1 {
		// The root of a hierarchy of version 1 holds all that runs on the node. It alone has a release agent.
		if _, err := os.Stat(filepath.Join(folder, "release_agent")); err == nil {
			continue
		}
		if value, err := v1(folder); err == nil {
			return &value
		}
	}
	return nil
}

func memoryV2(folder string) (int64, error) {
	return working(folder, "memory.current", "inactive_file")
}

func memoryV1(folder string) (int64, error) {
	return working(folder, "memory.usage_in_bytes", "total_inactive_file")
}

func working(folder, file, droppable string) (int64, error) {
	used, err := number(folder, file)
	if err != nil {
		return 0, err
	}
	inactive, err := field(folder, "memory.stat", droppable)
	return max(0, used-inactive), err
}

func cpuV2(folder string) (int64, error) {
	// The node's own group has no events.
	if _, err := os.Stat(filepath.Join(folder, "cgroup.events")); err != nil {
		return 0, err
	}
	return field(folder, "cpu.stat", "usage_usec")
}

func cpuV1(folder string) (int64, error) {
	nanoseconds, err := number(folder, "cpuacct.usage")
	return nanoseconds / int64(time.Microsecond), err
}

func number(folder, file string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// field is the number behind a word at the beginning of a line.
func field(folder, file, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}
