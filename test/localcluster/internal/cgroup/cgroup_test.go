package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMounted(t *testing.T) {
	tests := map[string]struct {
		mountinfo string
		want      []Hierarchy
		wantErr   bool
	}{
		"version 1 beside an unified hierarchy": {
			mountinfo: `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`,
			want: []Hierarchy{
				{Path: "/sys/fs/cgroup/cpuset", CPUSet: true},
				{Path: "/sys/fs/cgroup/memory"},
				{Path: "/sys/fs/cgroup/systemd"},
				{Path: "/sys/fs/cgroup/unified", Unified: true},
			},
		},
		"version 2 alone": {
			mountinfo: "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			want:      []Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}},
		},
		"the same hierarchy twice": {
			mountinfo: "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n4 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			want:      []Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}},
		},
		"none": {mountinfo: "27 1 254:0 / / rw - ext4 /dev/vda rw\n", wantErr: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "mountinfo")
			write(t, file, test.mountinfo)
			got, err := Mounted(file)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %t", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInheritKeepsWhatIsSet(t *testing.T) {
	parent, child := filepath.Join(t.TempDir(), "parent"), filepath.Join(t.TempDir(), "child")
	write(t, parent, "0-3\n")
	for before, want := range map[string]string{"\n": "0-3\n", "1\n": "1\n"} {
		write(t, child, before)
		if err := inherit(parent, child); err != nil {
			t.Fatal(err)
		}
		if got := read(t, child); got != want {
			t.Errorf("a child with %q has %q afterwards, want %q", before, got, want)
		}
	}
}

func TestProcesses(t *testing.T) {
	group := fakeGroup(t, map[string]string{
		"one/lc/cgroup.procs":            "",
		"one/lc/daemons/cgroup.procs":    "30\n10\n",
		"one/lc/pods/a/cgroup.procs":     "20\n0\n",
		"two/lc/daemons/cgroup.procs":    "10\n40\n",
		"two/other/daemons/cgroup.procs": "50\n",
	})
	got, err := group.Processes()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{10, 20, 30, 40}, got); diff != "" {
		t.Error(diff)
	}
}

func TestProcessesRefusesNonsense(t *testing.T) {
	group := fakeGroup(t, map[string]string{"one/lc/cgroup.procs": "twelve\n"})
	if _, err := group.Processes(); err == nil {
		t.Error("a line that is no number was accepted")
	}
}

func TestRemove(t *testing.T) {
	group := fakeGroup(t, map[string]string{"one/other/keep": ""})
	for _, folder := range []string{"one/lc/pods/a", "one/lc/daemons", "two/lc"} {
		mkdir(t, filepath.Join(filepath.Dir(group.Hierarchies[0].Path), folder))
	}
	if err := group.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := group.Paths(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(group.Hierarchies[0].Path, "other", "keep")); err != nil {
		t.Errorf("another group suffered: %v", err)
	}
	if err := group.Remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestDelegate(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "cgroup.controllers"), "memory\n")
	if err := delegate(folder); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(folder, "cgroup.subtree_control")); got != "+memory" {
		t.Errorf("wrote %q", got)
	}
}

// fakeGroup is the group "lc" of two hierarchies, "one" and "two", made of plain files.
func fakeGroup(t *testing.T, files map[string]string) Group {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		mkdir(t, filepath.Dir(filepath.Join(root, path)))
		write(t, filepath.Join(root, path), content)
	}
	return Group{Name: "lc", Hierarchies: []Hierarchy{{Path: filepath.Join(root, "one")}, {Path: filepath.Join(root, "two")}}}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
