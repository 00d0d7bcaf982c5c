//go:build integration

package integration

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// snapshot is what a cluster could leave behind on the machine. Of processes, only those that show a sign of the cluster
// are in it: a machine starts and ends others all the time. Other clusters may come and go as well.
type snapshot struct {
	things map[string]bool
	// shared are the folders that the last of all clusters removes, so they count only when there is no other one.
	shared map[string]bool
	others bool
}

// takeSnapshot looks for signs (the cluster's state folder, the beginning of its control group's name) in processes, and
// at everything else as it is. The id is the cluster's own in names of links and files.
func takeSnapshot(t *testing.T, id string, signs ...string) snapshot {
	t.Helper()
	found := map[string]bool{}
	for _, process := range processesWith(t, signs...) {
		found["process "+process] = true
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		found["mount "+strings.Fields(line)[4]] = true
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if !strings.HasPrefix(link.Name, "lc-") || link.Name == "lc-"+id {
			found["link "+link.Name] = true
		}
	}
	for _, path := range paths(t,
		"/sys/fs/cgroup/"+signs[1]+"*", "/sys/fs/cgroup/*/"+signs[1]+"*", "/run/livestash-localcluster/"+id+"*",
		"/opt/containerd", "/usr/libexec/kubernetes", "/etc/cni",
		"/run/netns/*", "/run/containerd/*", "/var/lib/kubelet/*", "/var/lib/cni/*", "/var/log/pods/*", "/var/log/containers/*",
	) {
		found["file "+path] = true
	}
	shared := map[string]bool{}
	for _, path := range paths(t, "/run/livestash-localcluster", "/run/netns", "/run/containerd", "/var/lib/kubelet",
		"/var/lib/cni", "/var/log/pods", "/var/log/containers") {
		shared["folder "+path] = true
	}
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", setting))
		if err != nil {
			t.Fatal(err)
		}
		found["setting "+setting+" = "+strings.TrimSpace(string(value))] = true
	}
	clusters := paths(t, "/run/livestash-localcluster/*.cluster.json")
	others := slices.ContainsFunc(clusters, func(file string) bool { return filepath.Base(file) != id+".cluster.json" })
	return snapshot{found, shared, others}
}

func paths(t *testing.T, patterns ...string) []string {
	t.Helper()
	var found []string
	for _, pattern := range patterns {
		matching, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, matching...)
	}
	return found
}

// processesWith lists the living processes with a sign in their command, environment or control groups.
func processesWith(t *testing.T, signs ...string) []string {
	t.Helper()
	var found []string
	for _, folder := range paths(t, "/proc/[0-9]*") {
		if pid, _ := strconv.Atoi(filepath.Base(folder)); pid == os.Getpid() {
			continue
		}
		var seen []byte
		for _, file := range []string{"cmdline", "environ", "cgroup"} {
			// A process may end while it is looked at.
			content, _ := os.ReadFile(filepath.Join(folder, file))
			seen = append(seen, content...)
		}
		for _, sign := range signs {
			if strings.Contains(string(seen), sign) && !ended(folder) {
				found = append(found, fmt.Sprintf("%s (has %q)", filepath.Base(folder), sign))
				break
			}
		}
	}
	return found
}

func ended(folder string) bool {
	status, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return true
	}
	return strings.Contains(string(status), ") Z ")
}

// namespacesOf returns the network and mount namespaces that processes with the sign are in, besides the test's own, each held open: a
// namespace that has ended gives its number to another one, of another cluster say.
func namespacesOf(t *testing.T, sign string) map[string]*os.File {
	t.Helper()
	found := map[string]*os.File{}
	for _, process := range processesWith(t, sign) {
		pid, _, _ := strings.Cut(process, " ")
		for _, kind := range []string{"net", "mnt"} {
			link := filepath.Join("/proc", pid, "ns", kind)
			namespace, err := os.Readlink(link)
			own, _ := os.Readlink(filepath.Join("/proc/self/ns", kind))
			if err != nil || namespace == own || found[namespace] != nil {
				continue
			}
			held, err := os.Open(link)
			if err != nil {
				continue
			}
			t.Cleanup(func() { _ = held.Close() })
			found[namespace] = held
		}
	}
	return found
}

// mustBeGone fails when any process is still in one of the namespaces, and lets go of them.
func mustBeGone(t *testing.T, namespaces map[string]*os.File) {
	t.Helper()
	for _, link := range paths(t, "/proc/[0-9]*/ns/*") {
		// A process may end while it is looked at.
		if namespace, err := os.Readlink(link); err == nil && namespaces[namespace] != nil && !ended(filepath.Dir(filepath.Dir(link))) {
			t.Errorf("%s is still in the cluster's namespace %s", link, namespace)
		}
	}
	for _, held := range namespaces {
		_ = held.Close()
	}
}

// mustEqual fails when the machine has not come back to the earlier snapshot within a minute: the kernel removes links
// and mounts of ended namespaces a moment later, or more on a busy machine.
func (before snapshot) mustEqual(t *testing.T, id string, signs ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		after := takeSnapshot(t, id, signs...)
		differences := difference(before.things, after.things)
		if !before.others && !after.others {
			differences = append(differences, difference(before.shared, after.shared)...)
		}
		if len(differences) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the machine is not as it was:\n%s", strings.Join(differences, "\n"))
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func difference(before, after map[string]bool) []string {
	var found []string
	for _, thing := range slices.Sorted(maps.Keys(after)) {
		if !before[thing] {
			found = append(found, "left behind: "+thing)
		}
	}
	for _, thing := range slices.Sorted(maps.Keys(before)) {
		if !after[thing] {
			found = append(found, "taken away: "+thing)
		}
	}
	return found
}
