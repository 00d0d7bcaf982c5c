// Package registry is what the clusters of one machine must agree about, wherever each keeps its state: who works on which
// cluster at this moment, which addresses are taken, and which empty folders were made only as mount points.
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Registry is a folder that all clusters of the machine use.
type Registry struct{ Dir string }

const (
	machineLock     = "machine.lock"
	mountPointsFile = "mount-points"
	entrySuffix     = ".cluster.json"
)

// Entry is one cluster.
type Entry struct {
	// Dir is where it keeps its state.
	Dir string `json:"dir"`
	// Slot is the number of its pair of addresses.
	Slot int `json:"slot"`
}

// LockCluster waits until no other command works on the cluster, then keeps others out until the file is closed.
// waiting is called once, when there is a wait, with the process id of the other command.
func (r Registry) LockCluster(ctx context.Context, id string, waiting func(pid string)) (*os.File, error) {
	return r.lock(ctx, id+".lock", waiting)
}

// Claim enters the cluster and returns its slot: the one it has, or else the first free one counted from preferred.
// taken says why a slot cannot be used, or nothing.
func (r Registry) Claim(ctx context.Context, id, dir string, preferred, slots int, taken func(slot int) (string, error)) (int, error) {
	lock, err := r.lock(ctx, machineLock, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = lock.Close() }()
	entries, err := r.entries()
	if err != nil {
		return 0, err
	}
	if own, known := entries[id]; known {
		return own.Slot, nil
	}
	used := map[int]bool{}
	for _, entry := range entries {
		used[entry.Slot] = true
	}
	reason := "other clusters have them"
	for i := range slots {
		slot := (preferred + i) % slots
		if used[slot] {
			continue
		}
		obstacle, err := taken(slot)
		if err != nil {
			return 0, err
		}
		if obstacle != "" {
			reason = obstacle
			continue
		}
		return slot, writeJSON(filepath.Join(r.Dir, id+entrySuffix), Entry{Dir: dir, Slot: slot})
	}
	return 0, fmt.Errorf("no address range is free: %s; free one of them", reason)
}

// MakeMountPoints makes those of the folders that are missing and remembers them for Release.
func (r Registry) MakeMountPoints(ctx context.Context, folders []string) error {
	lock, err := r.lock(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	made, err := r.mountPoints()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err == nil {
			continue
		}
		// Written down first: a folder that is remembered but missing does no harm, one that is forgotten stays.
		if !slices.Contains(made, folder) {
			made = append(made, folder)
			if err := writeJSON(filepath.Join(r.Dir, mountPointsFile), made); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Release removes the cluster. The last one takes the mount points with it that are still empty: removing a folder
// earlier would undo the mounts that another cluster has on it.
func (r Registry) Release(ctx context.Context, id string) error {
	lock, err := r.lock(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := removeIfThere(filepath.Join(r.Dir, id+entrySuffix)); err != nil {
		return err
	}
	entries, err := r.entries()
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return nil
	}
	folders, err := r.mountPoints()
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		err := os.Remove(folder)
		// Something else uses it by now: then it is no longer ours.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return removeIfThere(filepath.Join(r.Dir, mountPointsFile))
}

// Forget removes the lock of a cluster that is gone, and the registry's folder with the last one. The caller holds the lock.
func (r Registry) Forget(ctx context.Context, id string) error {
	lock, err := r.lock(ctx, machineLock, nil)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := removeIfThere(filepath.Join(r.Dir, id+".lock")); err != nil {
		return err
	}
	left, err := os.ReadDir(r.Dir)
	if err != nil {
		return err
	}
	if len(left) > 1 {
		return nil
	}
	if err := removeIfThere(filepath.Join(r.Dir, machineLock)); err != nil {
		return err
	}
	// A command that waits for the lock may have made its file anew.
	if err := os.Remove(r.Dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r Registry) entries() (map[string]Entry, error) {
	files, err := filepath.Glob(filepath.Join(r.Dir, "*"+entrySuffix))
	if err != nil {
		return nil, err
	}
	entries := map[string]Entry{}
	for _, file := range files {
		var entry Entry
		if err := readJSON(file, &entry); err != nil {
			return nil, err
		}
		entries[strings.TrimSuffix(filepath.Base(file), entrySuffix)] = entry
	}
	return entries, nil
}

func (r Registry) mountPoints() ([]string, error) {
	var folders []string
	err := readJSON(filepath.Join(r.Dir, mountPointsFile), &folders)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return folders, err
}

func (r Registry) lock(ctx context.Context, name string, waiting func(pid string)) (*os.File, error) {
	path := filepath.Join(r.Dir, name)
	for {
		if err := os.MkdirAll(r.Dir, 0o755); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(file, path) {
			return file, writePID(file)
		}
		if err == nil {
			// Its last holder removed the file together with the cluster.
			_ = file.Close()
			continue
		}
		owner, readErr := os.ReadFile(path)
		_ = file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if readErr == nil && waiting != nil {
			waiting(strings.TrimSpace(string(owner)))
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another localcluster command (process %s) still works on it: wait for it or end it",
				strings.TrimSpace(string(owner)))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func sameFile(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
