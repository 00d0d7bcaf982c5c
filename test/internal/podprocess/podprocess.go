// Package podprocess finds the processes of pods on a machine that is their node, as it is with the local cluster.
package podprocess

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Find is the id of the first process with this name in a container of a pod. Another one of a BEAM would be a
// `bin/app rpc`.
func Find(pod *corev1.Pod, container, name string) (int, error) {
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
		return 0, fmt.Errorf("no process %s of pod %s is on this machine: run this as root, with CLUSTER=local", name, pod.Name)
	}
	return slices.Min(pids), nil
}
