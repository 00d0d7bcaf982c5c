// Package cgroup keeps everything a cluster runs below one control group of its own, so that all of it can be found
// and ended without looking at names of processes.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Hierarchy is one mounted cgroup file system: one of the version 1 controllers, the controller-less one named by
// systemd, or the unified one of version 2.
type Hierarchy struct {
	// Path is where it is mounted.
	Path string
	// Unified says that it is version 2.
	Unified bool
	// CPUSet says that it is the version 1 hierarchy of the cpuset controller, whose groups accept no process before
	// their CPUs and memory nodes are set.
	CPUSet bool
}

// Mounted returns the hierarchies of this machine, from a file in the format of /proc/self/mountinfo.
func Mounted(mountinfo string) ([]Hierarchy, error) {
	file, err := os.Open(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	defer func() { _ = file.Close() }()
	var found []Hierarchy
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// 36 35 98:0 /root /mount/point options optional-fields - type source super-options
		before, after, ok := strings.Cut(lines.Text(), " - ")
		if !ok {
			continue
		}
		mount, kind := strings.Fields(before), strings.Fields(after)
		if len(mount) < 5 || len(kind) < 3 || (kind[0] != "cgroup" && kind[0] != "cgroup2") {
			continue
		}
		hierarchy := Hierarchy{
			Path:    mount[4],
			Unified: kind[0] == "cgroup2",
			CPUSet:  kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "cpuset"),
		}
		if !slices.Contains(found, hierarchy) {
			found = append(found, hierarchy)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted: mount /sys/fs/cgroup")
	}
	return found, nil
}

// Group is one control group, present under the same name at the root of every hierarchy.
type Group struct {
	Name        string
	Hierarchies []Hierarchy
}

// Create makes the group in every hierarchy. A group that exists already is left as it is.
func (g Group) Create() error {
	for _, hierarchy := range g.Hierarchies {
		if hierarchy.Unified {
			if err := delegate(hierarchy.Path); err != nil {
				return err
			}
		}
		if err := create(hierarchy, filepath.Join(hierarchy.Path, g.Name)); err != nil {
			return err
		}
		if hierarchy.Unified {
			if err := delegate(filepath.Join(hierarchy.Path, g.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Join moves the process into the group's child named child, in every hierarchy, and makes that child if it is missing.
// Processes never sit in the group itself: version 2 gives controllers only to groups without processes.
func (g Group) Join(child string, pid int) error {
	for _, hierarchy := range g.Hierarchies {
		path := filepath.Join(hierarchy.Path, g.Name, child)
		if err := create(hierarchy, path); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("move process %d into its control group: %w", pid, err)
		}
	}
	return nil
}

// Processes returns the ids of all processes in the group and below, in any hierarchy, sorted.
func (g Group) Processes() ([]int, error) {
	var pids []int
	err := g.walk(func(path string) error {
		content, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		// A group can go away while it is read, and a threaded one has no list of processes.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EOPNOTSUPP) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			// 0 stands for a process of another process namespace.
			if pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// Remove deletes the group and everything below it from every hierarchy. It is no error when there is none. It fails
// with EBUSY as long as a process is left in it.
func (g Group) Remove() error {
	return g.walk(func(path string) error {
		err := syscall.Rmdir(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
		return nil
	})
}

// Paths returns the folders of the group that exist, one for each hierarchy that has it.
func (g Group) Paths() []string {
	var existing []string
	for _, hierarchy := range g.Hierarchies {
		path := filepath.Join(hierarchy.Path, g.Name)
		if _, err := os.Stat(path); err == nil {
			existing = append(existing, path)
		}
	}
	return existing
}

// walk visits every folder of the group, the deepest first.
func (g Group) walk(visit func(path string) error) error {
	for _, root := range g.Paths() {
		var folders []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list control group %s: %w", root, err)
		}
		for _, folder := range slices.Backward(folders) {
			if err := visit(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

func create(hierarchy Hierarchy, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make control group: %w", err)
	}
	if !hierarchy.CPUSet {
		return nil
	}
	parent := filepath.Dir(path)
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if err := inherit(filepath.Join(parent, name), filepath.Join(path, name)); err != nil {
			return fmt.Errorf("give control group %s its CPUs: %w", path, err)
		}
	}
	return nil
}

// inherit copies a setting of the parent unless the child has one.
func inherit(from, to string) error {
	current, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(current)) != "" {
		return nil
	}
	value, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, value, 0)
}

// delegate lets the children of a version 2 group use every controller the group has.
func delegate(path string) error {
	controllers, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of control group %s: %w", path, err)
	}
	for _, controller := range strings.Fields(string(controllers)) {
		err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0)
		if err != nil {
			return fmt.Errorf("enable controller %s below control group %s: %w", controller, path, err)
		}
	}
	return nil
}
