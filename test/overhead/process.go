package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// process is a process of a pod on this machine, which is the pod's node.
type process int

// findProcess is the first process of a container with this name.
func findProcess(pod *corev1.Pod, container, name string) (process, error) {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return 0, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	_, id, found := strings.Cut(pod.Status.ContainerStatuses[i].ContainerID, "://")
	if !found || id == "" {
		return 0, fmt.Errorf("container %s of pod %s does not run", container, pod.Name)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, file := range files {
		// A process may end while this goes on.
		groups, _ := os.ReadFile(file)
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
		if !strings.Contains(string(groups), id) || strings.TrimSpace(string(comm)) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return 0, err
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return 0, fmt.Errorf("no process %s of pod %s is on this machine: measure with CLUSTER=local, as root", name, pod.Name)
	}
	return process(slices.Min(pids)), nil
}

// cpu is the CPU time of all threads that the process has, to the nanosecond. The processes measured here keep theirs.
func (p process) cpu() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		used, _, _ := strings.Cut(string(text), " ")
		nanoseconds, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(nanoseconds)
	}
	if sum == 0 {
		return 0, fmt.Errorf("process %d has ended, or this kernel does not count its CPU time", p)
	}
	return sum, nil
}

// resident are the bytes that the process has in memory, its shared files included.
func (p process) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", p)
}

// loadAverage is the machine's, of the last minute.
func loadAverage() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}
