package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func plugin() string { return filepath.Join(repository(), "bin", "kubectl-livestash") }

// livestash runs the plugin, as `kubectl livestash` would.
func (s space) livestash(args ...string) (string, error) {
	out, err := run("", plugin(), append([]string{"--namespace", s.name}, args...)...)
	return strings.TrimSpace(out), err
}

// plugin fails unless the plugin's verb works and its output has all parts.
func (s space) plugin(verb string, parts ...string) {
	s.t.Helper()
	s.eventually(5*time.Minute, func() error {
		out, err := s.livestash(strings.Fields(verb)...)
		if err != nil {
			return fmt.Errorf("kubectl livestash %s: %w\n%s", verb, err, out)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				return fmt.Errorf("kubectl livestash %s does not say %q:\n%s", verb, part, out)
			}
		}
		return nil
	})
}

// Every verb of the plugin does once what it is for, with a kubelet, agents and a release at the other end. What it says of everything that
// can be wrong is tested against an API server alone.
func TestPlugin(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "plugin")
	s.apply("adapter: ETS\nreplicas: 2")
	s.settled()
	s.rows("shop-1", 20)

	s.plugin("status", "shop is", "2 of 2 pods ready", "every node sees every other")
	s.plugin("doctor", "nothing is wrong")
	s.plugin("sessions", "shop-0", "shop-1", "20")
	s.plugin("rpc --pod shop-1 IO.puts(node())", "shop@shop-1.shop-nodes."+s.name+".svc.")
	s.logs("shop-1")
	s.plugin("logs --tail 5", "[shop-1] ", "said by the test")
	if out, err := s.livestash("rpc", "Process.sleep(60_000)", "--timeout", "4s"); err == nil || !strings.Contains(out, "no answer after 4s") {
		t.Errorf("an expression that does not end: %v\n%s", err, out)
	}

	out, err := s.livestash("drain", "shop-1")
	if err != nil || !strings.Contains(out, "of 20 stashes, 20 handed over and 0 lost") {
		t.Errorf("drain: %v\n%s", err, out)
	}
	s.settled()
	s.plugin("rollout status --watch --timeout 4m", "2/2 pods", "Complete")

	s.pausesAndTakesBack()
	s.remote("shop-1")
	s.reports()
	s.migrates()
}

// logs has a pod write "said by the test" to its log.
func (s space) logs(pod string) {
	s.t.Helper()
	// In a process of the pod's own: the logger leaves out what is said on behalf of another node.
	const log = `spawn(fn -> Process.group_leader(self(), Process.whereis(:user)); :logger.error(~c"said by the test") end)`
	if out, err := s.livestash("rpc", "shop", "--pod", pod, log); err != nil {
		s.t.Errorf("rpc: %v\n%s", err, out)
	}
}

// pausesAndTakesBack: a restart waits while rollouts are paused, and a release that cannot start is taken back.
func (s space) pausesAndTakesBack() {
	s.t.Helper()
	pods := func() string {
		return s.must("", "get", "pods", "-l", "livestash.dev/cluster=shop", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before := pods()
	s.plugin("rollout pause", "Rollouts of shop are paused")
	s.plugin("restart", "The pods of shop are replaced", "But it is paused")
	s.plugin("rollout status", "0/2 pods", "Paused")
	if now := pods(); now != before {
		s.t.Errorf("the pods were %s, and are %s while rollouts are paused", before, now)
	}
	s.plugin("rollout resume", "Rollouts of shop go on")
	s.plugin("rollout status --watch --timeout 4m", "2/2 pods", "Complete")
	for uid := range strings.FieldsSeq(before) {
		if strings.Contains(pods(), uid) {
			s.t.Errorf("the pod %s was not restarted", uid)
		}
	}

	good := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.spec.image}")
	s.must("", "patch", "lsc", "shop", "--type=merge", "--patch", `{"spec":{"image":"example.invalid/shop:2"}}`)
	s.plugin("rollout status", "example.invalid/shop:2")
	s.plugin("rollout undo", "shop goes back to the image "+good)
	s.plugin("rollout status --watch --timeout 4m", "2/2 pods", "Complete")
	s.settled()
}

// buffer is written by one and read by another.
type buffer struct {
	mutex sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.String()
}

// remote types an expression into the remote shell, on a terminal that script(1) makes, and leaves it.
func (s space) remote(pod string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	shown := &buffer{}
	command := exec.CommandContext(ctx, "script", "--quiet", "--return", "--command", plugin()+" --namespace "+s.name+" remote shop --pod "+pod, "/dev/null")
	command.Env = append(os.Environ(), "TERM=xterm")
	command.Stdout, command.Stderr = shown, shown
	keys, err := command.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	waits := func(text string) {
		s.t.Helper()
		s.eventually(30*time.Second, func() error {
			if !strings.Contains(shown.String(), text) {
				return fmt.Errorf("the remote shell does not show %q:\n%s", text, shown)
			}
			return nil
		})
	}
	waits("iex(")
	_, _ = io.WriteString(keys, "IO.puts(\"typed on \" <> to_string(node()))\r")
	waits("typed on shop@" + pod)
	// Ctrl-C twice, the second when the first was heard: a terminal makes one of two that come at once.
	_, _ = io.WriteString(keys, "\x03")
	waits("BREAK:")
	_, _ = io.WriteString(keys, "\x03")
	if err := command.Wait(); ctx.Err() != nil {
		s.t.Errorf("the remote shell cannot be left: %v\n%s", err, shown)
	}
	s.plugin("status", "2 of 2 pods ready") // the shell was left, the pod was not
}

// reports: the archive has what the pods say, and no secret.
func (s space) reports() {
	s.t.Helper()
	s.logs("shop-1")
	archive := filepath.Join(s.t.TempDir(), "shop.tar.gz")
	s.plugin("report --operator-namespace "+releaseNamespace+" --out "+archive, archive)
	text, err := run("", "tar", "--extract", "--to-stdout", "--gzip", "--file", archive)
	if err != nil {
		s.t.Fatalf("tar: %v\n%.300s", err, text)
	}
	for _, part := range []string{"said by the test", "every node sees every other", "kind: LiveStashCluster", "shop-1"} {
		if !strings.Contains(text, part) {
			s.t.Errorf("%q is not in the report", part)
		}
	}
	for _, key := range []string{"cookie", "secret-key-base"} {
		if value := s.secretValue("shop-secrets", key); value == "" || strings.Contains(text, value) {
			s.t.Errorf("the %s (%d bytes) is in the report", key, len(value))
		}
	}
}

// migrates: what is written for a Deployment of this cluster is taken by its API server.
func (s space) migrates() {
	s.t.Helper()
	s.must(fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
spec:
  replicas: 3
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers:
      - name: web
        image: %s/livestash-workload-otp:%s
        ports: [{containerPort: 4000}]
        env: [{name: GREETING, value: hello}]
`, registry, version), "apply", "-f", "-")
	out, err := s.livestash("migrate", "cart")
	if err != nil {
		s.t.Fatalf("migrate: %v\n%s", err, out)
	}
	taken := s.must(out, "apply", "--dry-run=server", "-f", "-", "-o", "jsonpath={.kind} {.metadata.name} {.spec.replicas} {.spec.env[0].value}")
	if taken != "LiveStashCluster cart 3 hello" {
		s.t.Errorf("the API server took %q of\n%s", taken, out)
	}
	s.must("", "delete", "deployment", "cart")
}

// A virtual machine that crashes leaves its dump where the plugin finds it, once more than the pod keeps.
func TestPluginCrashdump(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "plugin-crash")
	s.apply("adapter: ETS\nreplicas: 1\nbeam: {crashDumps: {keep: 1, maxSize: 2Mi}}")
	s.settled()
	s.plugin("crashdump", "shop-0", "-")
	for i, slogan := range []string{"the first of the test", "the second of the test"} {
		// The answer to who asks for that is an end of the connection.
		out, err := s.livestash("rpc", "shop", `:erlang.halt(~c"`+slogan+`")`)
		t.Logf("%v\n%s", err, out)
		s.plugin("crashdump", fmt.Sprintf("shop-0   %d ", i+1), "erl_crash-", slogan)
		s.must("", "wait", "--for=condition=Ready", "--timeout=4m", "pod/shop-0")
	}
	if out, err := s.livestash("crashdump"); err != nil || strings.Contains(out, "the first") {
		t.Errorf("after a second crash: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "dump")
	s.plugin("crashdump get shop-0 --out "+file, file, "secrets included")
	text, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(text, []byte("=erl_crash_dump:")) || len(text) > 3<<20 {
		t.Errorf("the dump has %d bytes, %v: %.100s", len(text), err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others may read it", info.Mode(), err)
	}
}

// The verbs around load tests: one is run, watched, and its report fetched.
func TestPluginBench(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "plugin-bench")
	s.apply("adapter: ETS\nreplicas: 2\nttl: 10s")
	s.settled()
	if out, err := s.livestash("bench", "run", "evening", "--users", "20", "--duration", "40s", "--max-client-delay", "1m", "--watch"); err != nil || !strings.Contains(out, "Passed") {
		t.Fatalf("bench run: %v\n%s", err, out)
	}
	s.plugin("bench watch evening", "1/1 runs", "Passed")
	folder := t.TempDir()
	s.plugin("bench report evening --out "+folder, "report.html")
	for _, name := range []string{"report.html", "report.md", "report.json"} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || !bytes.Contains(text, []byte("ETS")) {
			t.Errorf("%s: %v, %d bytes", name, err, len(text))
		}
	}
}
