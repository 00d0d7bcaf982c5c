package podagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pod writes the processes of a pod, and what each sees of its control group, into a folder of its own.
func pod(t *testing.T, groups map[string]string, unseen ...string) string {
	t.Helper()
	files := map[string]string{}
	for process, group := range groups {
		files[process+"/cgroup"] = group
		for name, text := range map[string]string{
			"memory.current": "5000\n", "memory.stat": "inactive_file 1000\n", "cpu.stat": "usage_usec 1500000\n", "cgroup.events": "",
		} {
			files[filepath.Join(process, "root/sys/fs/cgroup", name)] = text
		}
	}
	proc := cgroups(t, files)
	for _, process := range unseen {
		if err := os.RemoveAll(filepath.Join(proc, process, "root")); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

// Each container is counted once, however many processes it has, and that of the namespaces, whose files another user has, is not.
func TestCount(t *testing.T) {
	groups := map[string]string{"self": "0::/\n", "1": "0::/../pause\n", "7": "0::/../server\n", "8": "0::/../server\n", "9": "0::/../redis\n", "12": "0::/\n"}
	text, err := counter{pod(t, groups, "1"), 3}.count()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`livestash_pod_memory_bytes{part="application"} 8000`, `livestash_pod_memory_bytes{part="helper"} 4000`,
		`livestash_pod_cpu_seconds_total{part="application"} 3.000000`, `livestash_pod_cpu_seconds_total{part="helper"} 1.500000`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %s:\n%s", want, text)
		}
	}
}

// What sees a part of the pod says nothing, and says why.
func TestCountSaysNoPart(t *testing.T) {
	groups := map[string]string{"self": "0::/\n", "7": "0::/../server\n", "9": "0::/../redis\n"}
	if text, err := (counter{pod(t, groups, "9"), 3}).count(); err == nil || err.Error() != "the control groups of 2 of 3 containers are to be seen" {
		t.Errorf("it says %q (%v)", text, err)
	}
}

// What cannot be told is no figure.
func TestUsageIsToldOrNot(t *testing.T) {
	if now := (counter{pod(t, map[string]string{"self": "0::/\n"}), 1}).page("/metrics"); now.status != statusOK || !strings.Contains(now.text, `{part="helper"} 4000`) {
		t.Errorf("it answers %+v", now)
	}
	if now := (counter{t.TempDir(), 1}).page("/metrics"); now.status != statusUnavailable {
		t.Errorf("without anything to see it answers %+v", now)
	}
	if now := (counter{t.TempDir(), 1}).page("/status"); now.status != "404 Not Found" {
		t.Errorf("to another question it answers %+v", now)
	}
}
