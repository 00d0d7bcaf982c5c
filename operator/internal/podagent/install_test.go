package podagent

import (
	"errors"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestInstallCode(t *testing.T) {
	code := fstest.MapFS{
		"ebin/README.md":            {Data: []byte("not this")},
		"ebin/livestash_agent.app":  {Data: []byte("app")},
		"ebin/livestash_agent.beam": {Data: []byte("beam")},
	}
	dir := t.TempDir()
	// Twice: a pod that starts anew finds its volume as it left it.
	for range 2 {
		if err := installCode(code, dir); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "ebin"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("got %v (%v), want the two files", entries, err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s has mode %v (%v), but another user must read it", entry.Name(), info.Mode(), err)
		}
	}
	if got := read(t, filepath.Join(dir, "ebin", "livestash_agent.beam")); got != "beam" {
		t.Errorf("got %q", got)
	}
}

func TestInstallCodeFails(t *testing.T) {
	whole := fstest.MapFS{"ebin/a.app": {}, "ebin/a.beam": {}}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	cases := map[string]struct {
		code fs.FS
		dir  string
		want error
	}{
		"built without the agent": {fstest.MapFS{"ebin/README.md": {}}, t.TempDir(), ErrNoAgent},
		"built with half of it":   {fstest.MapFS{"ebin/a.beam": {}}, t.TempDir(), ErrNoAgent},
		"folder is a file":        {whole, file, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := installCode(c.code, c.dir)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestFromEnvironment(t *testing.T) {
	defaults := Settings{NetTickTime: 20, SyncTimeout: 3000, AppPort: 4000, AgentPort: 9568, ProbePort: 9569}
	cases := map[string]struct {
		env  map[string]string
		want Settings
	}{
		"nothing": {nil, defaults},
		"everything": {
			map[string]string{
				"RELEASE_NODE": "shop@shop-0", "LIBCLUSTER_APP": "shop", "LIVESTASH_PEERS_QUERY": "shop-nodes",
				"LIVESTASH_NET_TICKTIME": "60", "LIVESTASH_SYNC_TIMEOUT_MS": "1", "PORT": "80",
				"LIVESTASH_AGENT_PORT": "7000", "LIVESTASH_READINESS_PATH": "/up?deep=1", "LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS": "false",
			},
			Settings{
				Node: "shop@shop-0", App: "shop", Query: "shop-nodes", NetTickTime: 60, SyncTimeout: 1,
				AppPort: 80, AgentPort: 7000, ProbePort: 7001, ReadinessPath: "/up?deep=1", PreventOverlappingPartitions: "false",
			},
		},
		"bad values": {
			map[string]string{
				"LIVESTASH_NET_TICKTIME": "0", "LIVESTASH_SYNC_TIMEOUT_MS": "infinity", "PORT": "-1",
				"LIVESTASH_AGENT_PORT": "65535", "LIVESTASH_PROBE_PORT": "1e3", "LIVESTASH_READINESS_PATH": "/a HTTP/1.1\r\nHost: b",
				"LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS": "no",
			},
			defaults,
		},
		"a path that is none": {map[string]string{"LIVESTASH_READINESS_PATH": "up"}, defaults},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := FromEnvironment(func(name string) string { return c.env[name] }, quiet); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestRedisURLIsReadFromTheFileThatIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "LIVE_STASH_REDIS_URL")
	if err := os.WriteFile(file, []byte("redis://:secret@shop-redis"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env       map[string]string
		want, log string
	}{
		"a variable":         {map[string]string{"LIVE_STASH_REDIS_URL": "redis://other"}, "redis://other", ""},
		"a file":             {map[string]string{"LIVE_STASH_REDIS_URL_FILE": file}, "redis://:secret@shop-redis", ""},
		"both":               {map[string]string{"LIVE_STASH_REDIS_URL": "redis://other", "LIVE_STASH_REDIS_URL_FILE": file}, "redis://:secret@shop-redis", ""},
		"a file that is not": {map[string]string{"LIVE_STASH_REDIS_URL_FILE": file + "2"}, "", "LIVE_STASH_REDIS_URL_FILE cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			got := FromEnvironment(func(name string) string { return c.env[name] }, log.New(&said, "", 0)).RedisURL
			if got != c.want || (c.log == "") != (said.Len() == 0) || !strings.Contains(said.String(), c.log) {
				t.Errorf("got %q and the log %q", got, said.String())
			}
		})
	}
}
