//go:build integration

// Package integration tries localcluster as a user does: as a program, with real clusters. It needs root and the built
// programs, in the folder that LOCALCLUSTER_BIN names (default: bin of the repository).
package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
	"github.com/livestash-dev/livestash/test/localcluster/internal/image"
)

const probeImage = "localhost/livestash-localcluster/probe:test"

// lab is one cluster of a test, with a state folder of its own.
type lab struct {
	t                   *testing.T
	bin, name, stateDir string
	before              snapshot
}

func newLab(t *testing.T, name string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the integration test needs root")
	}
	bin := os.Getenv("LOCALCLUSTER_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "..", "bin")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	// A short path: sockets live below it.
	stateDir, err := os.MkdirTemp("", "lc")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, bin: bin, name: name, stateDir: stateDir}
	l.before = takeSnapshot(t, l.id(), l.signs()...)
	t.Cleanup(func() {
		l.must(l.try("down"))
		if err := os.RemoveAll(stateDir); err != nil {
			t.Error(err)
		}
	})
	return l
}

// signs tell the cluster's processes from all others.
func (l *lab) signs() []string {
	return []string{filepath.Join(l.stateDir, l.name), "localcluster-" + l.name + "-"}
}

// id is what the program derives from the place of the cluster's state, for names of links and files.
func (l *lab) id() string {
	sum := sha256.Sum256([]byte(l.path()))
	return hex.EncodeToString(sum[:4])
}

func (l *lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.stateDir, l.name}, parts...)...)
}

func (l *lab) command(args ...string) *exec.Cmd {
	first, rest := args[0], args[1:]
	flags := []string{first, "--name", l.name, "--state-dir", l.stateDir, "--bin-dir", l.bin}
	return exec.Command(filepath.Join(l.bin, "localcluster"), append(flags, rest...)...)
}

type result struct {
	args           []string
	stdout, stderr string
	err            error
}

func run(command *exec.Cmd) result {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	return result{command.Args, stdout.String(), stderr.String(), err}
}

func (l *lab) try(args ...string) result { return run(l.command(args...)) }

func (l *lab) must(r result) string {
	l.t.Helper()
	if r.err != nil {
		l.t.Fatalf("%s: %v\n%s%s", strings.Join(r.args, " "), r.err, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

func (l *lab) tryKubectl(args ...string) result {
	flags := []string{"--kubeconfig", l.path("kubeconfig")}
	return run(exec.Command(filepath.Join(l.bin, "kubectl"), append(flags, args...)...))
}

func (l *lab) kubectl(args ...string) string {
	l.t.Helper()
	return l.must(l.tryKubectl(args...))
}

// in makes a part of a test of a function that uses the lab.
func (l *lab) in(part func(*lab)) func(*testing.T) {
	return func(t *testing.T) {
		own := *l
		own.t = t
		part(&own)
	}
}

// probe runs the probe in a pod of the namespace probe.
func (l *lab) probe(pod string, args ...string) string {
	l.t.Helper()
	return l.kubectl(append([]string{"exec", "-n", "probe", pod, "--", "/probe"}, args...)...)
}

// eventually repeats a check until it finds nothing to complain about.
func (l *lab) eventually(what string, check func() string) {
	l.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		complaint := check()
		if complaint == "" {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: %s", what, complaint)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// mustWork waits until status finds nothing wrong: on a busy machine a part may be late with an answer.
func (l *lab) mustWork() {
	l.t.Helper()
	l.eventually("status", func() string {
		if answer := l.try("status"); answer.err != nil {
			return fmt.Sprintf("%v\n%s%s", answer.err, answer.stdout, answer.stderr)
		}
		return ""
	})
}

func (l *lab) record(role string) daemon.Record {
	l.t.Helper()
	record, known, err := daemon.ReadRecord(l.path("run", role+".json"))
	if err != nil || !known {
		l.t.Fatalf("record of %s: %v, known %t", role, err, known)
	}
	return record
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestCluster follows one cluster from its first start to its end.
func TestCluster(t *testing.T) {
	l := newLab(t, "it")
	l.must(l.try("up"))

	t.Run("a second up changes nothing", func(t *testing.T) {
		before := l.record("kubelet")
		fastest := time.Hour
		for range 3 { // a busy machine may hold up one of them
			started := time.Now()
			answer := l.try("up")
			fastest = min(fastest, time.Since(started))
			l.must(answer)
			if !strings.Contains(answer.stderr, "was up already") {
				t.Errorf("it does not say that the cluster was up: %s", answer.stderr)
			}
		}
		if fastest > 3*time.Second {
			t.Errorf("it took %s", fastest)
		}
		if after := l.record("kubelet"); after != before {
			t.Errorf("the kubelet changed from %+v to %+v", before, after)
		}
	})
	t.Run("other options are refused", func(t *testing.T) {
		answer := l.try("up", "--control-plane-only")
		if answer.err == nil || !strings.Contains(answer.stderr, "run localcluster down") {
			t.Errorf("error %v: %s", answer.err, answer.stderr)
		}
	})

	l.loadProbe()
	l.kubectl("apply", "-f", "testdata/objects.yaml")
	l.kubectl("rollout", "status", "-n", "probe", "statefulset/probe", "--timeout=90s")
	l.kubectl("wait", "-n", "probe", "pod/never-ready", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")

	t.Run("names", l.in((*lab).testNames))
	t.Run("services", l.in((*lab).testServices))
	t.Run("volumes", l.in((*lab).testVolumes))
	t.Run("rights", l.in((*lab).testRights))
	t.Run("kubelet", l.in((*lab).testKubelet))
	t.Run("beside another cluster", l.in((*lab).testBeside))
	t.Run("repair", l.in((*lab).testRepair))
	t.Run("new namespaces", l.in((*lab).testNewNamespaces))

	namespaces := namespacesOf(t, l.signs()[1])
	if len(namespaces) < 4 {
		t.Errorf("found only the namespaces %v: the check below would be worth nothing", namespaces)
	}
	l.must(l.try("down"))
	mustBeGone(t, namespaces)
	l.before.mustEqual(t, l.id(), l.signs()...)
	l.must(l.try("down"))
	l.before.mustEqual(t, l.id(), l.signs()...)
}

func (l *lab) loadProbe() {
	l.t.Helper()
	program := filepath.Join(l.t.TempDir(), "probe")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../internal/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	l.must(run(build))
	archive := filepath.Join(l.t.TempDir(), "probe.tar")
	if err := image.WriteProgram(archive, probeImage, program); err != nil {
		l.t.Fatal(err)
	}
	equal(l.t, "names printed by load", l.must(l.try("load", archive)), probeImage)
}

func (l *lab) testNames() {
	t := l.t
	ips := map[string]string{}
	for _, pod := range []string{"probe-0", "probe-1", "never-ready"} {
		ips[pod] = l.kubectl("get", "pod", "-n", "probe", pod, "-o", "jsonpath={.status.podIP}")
	}
	const domain = ".nodes.probe.svc.cluster.local"
	equal(t, "A record of a pod", l.probe("probe-0", "a", "probe-1"+domain), ips["probe-1"])
	equal(t, "A record of a pod that is not ready", l.probe("probe-0", "a", "never-ready"+domain), ips["never-ready"])
	equal(t, "SRV records of a headless Service", l.probe("probe-1", "srv", "_epmd._tcp.nodes.probe.svc.cluster.local"),
		fmt.Sprintf("never-ready%[1]s.:4369 probe-0%[1]s.:4369 probe-1%[1]s.:4369", domain))
	equal(t, "A records of a headless Service", fmt.Sprint(len(strings.Fields(l.probe("probe-0", "a", "nodes")))), "3")
	equal(t, "name of the API server", l.probe("probe-0", "a", "kubernetes.default"), "10.96.0.1")

	answer := l.tryKubectl("exec", "-n", "probe", "probe-0", "--", "/probe", "a", "www.example.org")
	if answer.err == nil || !strings.Contains(answer.stderr, "no such host") {
		t.Errorf("a name outside: error %v: %s%s", answer.err, answer.stdout, answer.stderr)
	}
}

func (l *lab) testServices() {
	t := l.t
	equal(t, "through a Service, from a pod on the same bridge", l.probe("probe-1", "get", "http://first"), "probe-0")
	equal(t, "through a Service, to the pod itself", l.probe("probe-0", "get", "http://first"), "probe-0")
	seen := map[string]bool{}
	for range 30 {
		seen[l.probe("probe-0", "get", "http://ready")] = true
	}
	if !seen["probe-0"] || !seen["probe-1"] || len(seen) != 2 {
		t.Errorf("30 requests to a Service of two ready pods were answered by %v", seen)
	}

	server := l.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	nodeIP := regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`).FindString(server)
	answer, err := httpGet("http://" + nodeIP + ":30080")
	if err != nil || !strings.HasPrefix(answer, "probe-") {
		t.Errorf("node port from the machine: %q, %v", answer, err)
	}
	clusterIP := l.kubectl("get", "service", "-n", "probe", "first", "-o", "jsonpath={.spec.clusterIP}")
	program := filepath.Join(t.TempDir(), "probe")
	l.must(run(exec.Command("go", "build", "-o", program, "../internal/probe")))
	equal(t, "cluster IP through exec", l.must(l.try("exec", "--", program, "get", "http://"+clusterIP)), "probe-0")

	machineIP := previousAddress(nodeIP)
	blocked := l.tryKubectl("exec", "-n", "probe", "probe-0", "--", "/probe", "dial", machineIP+":1")
	if !strings.Contains(blocked.stderr, "no route to host") {
		t.Errorf("a pod reaches the machine: %v %s%s", blocked.err, blocked.stdout, blocked.stderr)
	}
	outside := l.tryKubectl("exec", "-n", "probe", "probe-0", "--", "/probe", "dial", "192.0.2.1:80")
	if !strings.Contains(outside.stderr, "unreachable") && !strings.Contains(outside.stderr, "no route to host") {
		t.Errorf("a pod has a way out: %v %s%s", outside.err, outside.stdout, outside.stderr)
	}
}

// previousAddress is the machine's end of a pair of addresses, given the cluster's.
func previousAddress(ip string) string {
	var a, b, c, d int
	if _, err := fmt.Sscanf(ip, "%d.%d.%d.%d", &a, &b, &c, &d); err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d.%d", a, b, c, d-1)
}

func (l *lab) testVolumes() {
	t := l.t
	for file, want := range map[string]string{
		"/map/key":    "from the config map",
		"/secret/key": "from the secret",
		"/all/map":    "from the config map",
		"/all/secret": "from the secret",
		"/all/name":   "probe-0",
	} {
		equal(t, file, l.probe("probe-0", "read", file), want)
	}
	l.probe("probe-0", "write", "/scratch/file", "scratch")
	equal(t, "emptyDir", l.probe("probe-0", "read", "/scratch/file"), "scratch")

	l.probe("probe-0", "write", "/data/file", "kept")
	volume := l.kubectl("get", "pvc", "-n", "probe", "data-probe-0", "-o", "jsonpath={.spec.volumeName}")
	folder := l.path("node-0", "volumes", volume)
	content, err := os.ReadFile(filepath.Join(folder, "file"))
	equal(t, "the volume's folder", fmt.Sprint(string(content), err), "kept<nil>")
	l.kubectl("delete", "pod", "-n", "probe", "probe-0", "--wait")
	// Not by the rollout's status, which may still be that of before. The pod of before is gone: any probe-0 is another one.
	l.kubectl("wait", "-n", "probe", "pod/probe-0", "--for=create", "--timeout=60s")
	l.kubectl("wait", "-n", "probe", "pod/probe-0", "--for=condition=Ready", "--timeout=60s")
	equal(t, "volume after a restart", l.probe("probe-0", "read", "/data/file"), "kept")

	l.kubectl("scale", "-n", "probe", "statefulset/probe", "--replicas=1")
	second := l.kubectl("get", "pvc", "-n", "probe", "data-probe-1", "-o", "jsonpath={.spec.volumeName}")
	l.kubectl("wait", "-n", "probe", "pod/probe-1", "--for=delete", "--timeout=60s")
	l.kubectl("delete", "pvc", "-n", "probe", "data-probe-1", "--wait")
	l.eventually("deletion of the volume", func() string {
		if l.tryKubectl("get", "pv", second).err == nil {
			return "the PersistentVolume is still there"
		}
		if _, err := os.Stat(l.path("node-0", "volumes", second)); !os.IsNotExist(err) {
			return "its folder is still there"
		}
		return ""
	})
	l.kubectl("scale", "-n", "probe", "statefulset/probe", "--replicas=2")
	l.kubectl("rollout", "status", "-n", "probe", "statefulset/probe", "--timeout=60s")

	machine := t.TempDir()
	if err := os.WriteFile(filepath.Join(machine, "file"), []byte("of the machine"), 0o644); err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile("testdata/host-path.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "host-path.yaml")
	if err := os.WriteFile(file, bytes.ReplaceAll(object, []byte("FOLDER"), []byte(machine)), 0o644); err != nil {
		t.Fatal(err)
	}
	l.kubectl("apply", "-f", file)
	l.kubectl("wait", "pod/host-path", "--for=condition=Ready", "--timeout=60s")
	equal(t, "hostPath", l.kubectl("exec", "host-path", "--", "/probe", "read", "/machine/file"), "of the machine")
	nodeIP := l.kubectl("get", "pod", "host-path", "-o", "jsonpath={.status.hostIP}")
	answer, err := httpGet("http://" + nodeIP + ":18080")
	equal(t, "hostPort", fmt.Sprint(answer, err), "host-path<nil>")
	l.kubectl("delete", "pod", "host-path", "--wait")
}

func (l *lab) testRights() {
	t := l.t
	refused := l.tryKubectl("run", "-n", "probe", "root", "--image="+probeImage)
	if refused.err == nil || !strings.Contains(refused.stderr, `violates PodSecurity "restricted`) {
		t.Errorf("restricted Pod Security is not enforced: %v %s", refused.err, refused.stderr)
	}
	equal(t, "rights of a pod's account", l.tryKubectl("auth", "can-i", "list", "pods", "-n", "probe",
		"--as=system:serviceaccount:probe:default").stdout, "no\n")
	token := l.probe("probe-0", "read", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	review := exec.Command(filepath.Join(l.bin, "kubectl"), "--kubeconfig", l.path("kubeconfig"),
		"create", "-f", "-", "-o", "jsonpath={.status.user.username}")
	review.Stdin = strings.NewReader(fmt.Sprintf(
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, token))
	equal(t, "owner of the token", l.must(run(review)), "system:serviceaccount:probe:default")
}

func (l *lab) testKubelet() {
	t := l.t
	equal(t, "logs", l.kubectl("logs", "-n", "probe", "probe-0"), "serving as probe-0")

	forward := exec.Command(filepath.Join(l.bin, "kubectl"), "--kubeconfig", l.path("kubeconfig"),
		"port-forward", "-n", "probe", "pod/probe-1", ":8080")
	output, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait()
	}()
	line := make([]byte, 200)
	n, err := output.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(string(line[:n]))
	if port == nil {
		t.Fatalf("port-forward says %q", line[:n])
	}
	answer, err := httpGet("http://127.0.0.1:" + port[1])
	equal(t, "port-forward", fmt.Sprint(answer, err), "probe-1<nil>")
}

// testBeside runs a second cluster, of the other kind, and checks that it counts requests.
func (l *lab) testBeside() {
	t := l.t
	other := newLab(t, "it2")
	audit := filepath.Join(t.TempDir(), "audit.log")
	other.must(other.try("up", "--control-plane-only", "--audit-log", audit))
	other.mustWork()
	other.kubectl("create", "configmap", "counted")
	content, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	for line := range strings.Lines(string(content)) {
		var event struct {
			Stage, Level, Verb string
			ObjectRef          struct{ Resource, Name string }
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if event.Stage != "ResponseComplete" || event.Level != "Metadata" {
			t.Errorf("stage %q, level %q", event.Stage, event.Level)
		}
		if event.Verb == "create" && event.ObjectRef.Resource == "configmaps" && event.ObjectRef.Name == "counted" {
			created++
		}
	}
	equal(t, "logged creations of the ConfigMap", fmt.Sprint(created), "1")
	refused := other.try("load", audit)
	if refused.err == nil || !strings.Contains(refused.stderr, "only a control plane") {
		t.Errorf("load: %v %s", refused.err, refused.stderr)
	}
	other.must(other.try("down"))
	other.before.mustEqual(t, other.id(), other.signs()...)
	l.mustWork()
}

// testRepair kills what a cluster consists of, and wants it back without a restart of any container.
func (l *lab) testRepair() {
	t := l.t
	containers := l.containers()
	for _, role := range []string{"etcd", "kube-apiserver", "containerd", "kubelet", "kube-proxy", "provisioner"} {
		if err := l.record(role).Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	l.eventually("status of a broken cluster", func() string {
		answer := l.try("status")
		if answer.err == nil || !strings.Contains(answer.stdout, "To repair it, run: localcluster up") {
			return answer.stdout
		}
		return ""
	})
	l.must(l.try("up"))
	l.mustWork()
	equal(t, "containers after the repair", l.containers(), containers)
	equal(t, "a Service after the repair", l.probe("probe-1", "get", "http://first"), "probe-0")
}

// testNewNamespaces kills the process that keeps the namespaces, as a restart of the machine would.
func (l *lab) testNewNamespaces() {
	t := l.t
	if err := l.record("holder").Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.must(l.try("up"))
	l.eventually("pods after the loss of their namespaces", func() string {
		answer := l.tryKubectl("exec", "-n", "probe", "probe-1", "--", "/probe", "get", "http://first")
		if answer.err != nil || strings.TrimSpace(answer.stdout) != "probe-0" {
			return answer.stdout + answer.stderr
		}
		return ""
	})
	equal(t, "volume after the loss of the namespaces", l.probe("probe-0", "read", "/data/file"), "kept")
}

func (l *lab) containers() string {
	l.t.Helper()
	return l.kubectl("get", "pods", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].containerID}\n{end}")
}

// TestKilledUp ends `up` the hard way at many points, and wants nothing left behind by `down`, or a whole cluster by
// another `up`.
func TestKilledUp(t *testing.T) {
	l := newLab(t, "it-killed")
	delays := []time.Duration{2, 5, 10, 20, 40, 60, 80, 100, 130, 160, 200, 300, 500, 1000, 2500, 4000, 5500, 7000, 8500}
	for _, delay := range delays {
		delay *= time.Millisecond
		t.Run(delay.String(), l.in(func(l *lab) {
			l.killUp(delay)
			l.must(l.try("down"))
			l.before.mustEqual(l.t, l.id(), l.signs()...)
		}))
	}
	t.Run("then up", l.in(func(l *lab) {
		for _, delay := range []time.Duration{60 * time.Millisecond, 150 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
			l.killUp(delay)
		}
		l.must(l.try("up"))
		l.mustWork()
		l.must(l.try("down"))
		l.before.mustEqual(l.t, l.id(), l.signs()...)
	}))
}

func (l *lab) killUp(after time.Duration, flags ...string) {
	l.t.Helper()
	up := l.command(append([]string{"up"}, flags...)...)
	if err := up.Start(); err != nil {
		l.t.Fatal(err)
	}
	time.Sleep(after)
	if err := up.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := up.Wait(); err == nil {
		l.t.Logf("up was faster than %s", after)
	}
}

// TestRefusals wants a sentence that says what to do for everything that cannot work.
func TestRefusals(t *testing.T) {
	l := newLab(t, "it-refused")
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		user uint32
		want string
	}{
		"not root":            {args: []string{"up"}, user: 65534, want: "sudo"},
		"no programs":         {args: []string{"up", "--bin-dir", empty}, want: "localcluster, kubernetes, coredns, pause: build it"},
		"too many nodes":      {args: []string{"up", "--nodes", "10"}, want: "1 to 9 nodes"},
		"nodes of none":       {args: []string{"up", "--control-plane-only", "--nodes", "2"}, want: "has no nodes"},
		"bad name":            {args: []string{"up", "--name", "Not_A_Name"}, want: "small letters"},
		"long path":           {args: []string{"up", "--state-dir", "/tmp/" + strings.Repeat("x", 100)}, want: "too long by"},
		"no folder for audit": {args: []string{"up", "--audit-log", empty + "/none/audit.log"}, want: "make it first"},
		"status of nothing":   {args: []string{"status"}, want: "run localcluster up"},
		"load into nothing":   {args: []string{"load", "image.tar"}, want: "run localcluster up"},
		"exec in nothing":     {args: []string{"exec", "true"}, want: "run localcluster up"},
		"kubeconfig of none":  {args: []string{"kubeconfig"}, want: "run localcluster up"},
	} {
		t.Run(name, func(t *testing.T) {
			command := l.command(test.args...)
			if test.user != 0 {
				command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: test.user, Gid: test.user}}
			}
			answer := run(command)
			if answer.err == nil || !strings.Contains(answer.stderr, test.want) {
				t.Errorf("error %v, want %q in: %s", answer.err, test.want, answer.stderr)
			}
		})
	}
	l.before.mustEqual(t, l.id(), l.signs()...)
}

func httpGet(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}
