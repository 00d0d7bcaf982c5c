// Package e2e tests the operator, the chart, the workload and the load test on a real Kubernetes: the one that KUBECONFIG
// names. `make test-e2e` makes one, loads the images and runs these tests as a user would work, with kubectl and helm.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/program"
)

const (
	release          = "livestash"
	releaseNamespace = "livestash-system"
)

var (
	registry = cmp.Or(os.Getenv("REGISTRY"), "ghcr.io/livestash-dev")
	version  = cmp.Or(os.Getenv("VERSION"), "0.1.0")
)

// repository is the root of the checkout.
func repository() string {
	path, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return path
}

func TestMain(m *testing.M) {
	if kubeconfig() == "" {
		fmt.Fprintln(os.Stderr, "KUBECONFIG is not set: run `make test-e2e`, or set it to a cluster for tests that has the images")
		os.Exit(1)
	}
	if err := openLeaks(kubeconfig()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	stop := leaks.Namespace(releaseNamespace)
	// The first test of all: the chart installs from the checkout.
	install := append([]string{"install", release, repository(), "--namespace", releaseNamespace, "--create-namespace", "--wait", "--timeout", "3m"}, chartValues()...)
	if out, err := run("", "helm", install...); err != nil {
		fmt.Fprintln(os.Stderr, out, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	fmt.Println(leaks.Seen())
	// No test of its own: hack/test-beside and hack/count-tests know it by how the line begins.
	failed := func(why ...any) {
		fmt.Println(append([]any{"FAIL:"}, why...)...)
		code = 1
	}
	for _, found := range leaks.Found() {
		failed(found)
	}
	if out, err := run("", "helm", "uninstall", release, "--namespace", releaseNamespace, "--wait"); err != nil {
		failed(err, out)
	}
	os.Exit(code)
}

func kubeconfig() string { return os.Getenv("KUBECONFIG") }

// chartValues are helm's arguments for what the chart needs on this cluster: CHART_VALUES names a file with it, or nothing.
func chartValues() []string {
	readers := []string{"--set", "operator.agentReaders={monitoring,e2e-alerts,e2e-observability}"} // where tests have a Prometheus
	if path := os.Getenv("CHART_VALUES"); path != "" {
		return append(readers, "--values", path)
	}
	return readers
}

// run runs a program with input on its standard input, and returns its output, standard error included.
func run(input, name string, args ...string) (string, error) {
	return program.Run(context.Background(), input, name, args...)
}

// namespaceHeld begins what a failed test says of its namespace at the end. hack/count-tests leaves it out.
const namespaceHeld = "The namespace held:"

// space is a namespace for one test that admits only restricted pods. It goes with the test.
type space struct {
	t    *testing.T
	name string
}

func newSpace(t *testing.T, name string) space {
	t.Helper()
	s := space{t, "e2e-" + name}
	s.makeNamespace()
	s.must("", "label", "namespace", s.name, "pod-security.kubernetes.io/enforce=restricted")
	stop := leaks.Namespace(s.name)
	t.Cleanup(func() {
		if err := leaks.Metrics(context.Background(), s.name, "agent", "metrics"); err != nil {
			t.Error(err)
		}
		stop()
		if t.Failed() {
			for _, what := range [][]string{{"describe", "lsc"}, {"get", "all", "-o", "wide"}, {"get", "events"},
				{"logs", "-l", "batch.kubernetes.io/job-name", "--prefix", "--tail=30", "--max-log-requests=20"}} {
				out, _ := s.kubectl("", what...)
				t.Logf("%s kubectl %s:\n%s", namespaceHeld, strings.Join(what, " "), out)
			}
		}
		_, _ = s.kubectl("", "delete", "namespace", s.name, "--wait=false")
	})
	return s
}

// makeNamespace makes the namespace. A test that is run once more may still find the one before.
func (s space) makeNamespace() {
	s.t.Helper()
	s.must("", "wait", "namespace", s.name, "--for=delete", "--timeout=4m")
	s.must("", "create", "namespace", s.name)
}

func (s space) kubectl(input string, args ...string) (string, error) {
	return run(input, "kubectl", append([]string{"--namespace", s.name}, args...)...)
}

// unanswered is what kubectl says when an API server did not answer it.
var unanswered = regexp.MustCompile("TLS handshake timeout|request timed out|connection reset by peer|i/o timeout|unexpected EOF|connection lost|connection refused")

// must is kubectl's output; the test ends when it fails. A question that a busy API server did not answer is asked again for a minute.
func (s space) must(input string, args ...string) string {
	s.t.Helper()
	out, err := s.kubectl(input, args...)
	for end := time.Now().Add(time.Minute); err != nil && args[0] == "get" && unanswered.MatchString(out) && time.Now().Before(end); {
		time.Sleep(time.Second)
		out, err = s.kubectl(input, args...)
	}
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// apply applies a LiveStashCluster named shop with the OTP workload, 2 replicas and the given further lines of spec.
func (s space) apply(spec string) {
	s.t.Helper()
	s.must(s.fleet(spec), "apply", "-f", "-")
}

func (s space) fleet(spec string) string {
	var manifest bytes.Buffer
	fmt.Fprintf(&manifest, "apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: shop}\nspec:\n")
	if !strings.Contains("\n"+spec, "\nimage:") {
		fmt.Fprintf(&manifest, "  image: %s\n", workload())
	}
	fmt.Fprintf(&manifest, "  http: {readinessPath: /healthz}\n")
	if !strings.Contains(spec, "rollout:") {
		fmt.Fprintf(&manifest, "  rollout: {surge: Auto}\n") // pods keep their names
	}
	for line := range strings.Lines(spec) {
		fmt.Fprintf(&manifest, "  %s\n", strings.TrimRight(line, "\n"))
	}
	return manifest.String()
}

// settled waits until the fleet has what its spec asks for.
func (s space) settled() {
	s.t.Helper()
	// The generation first: the conditions of an older spec may still stand.
	s.eventually(time.Minute, func() error {
		out := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.metadata.generation} {.status.observedGeneration}")
		if want, seen, _ := strings.Cut(out, " "); want != seen {
			return fmt.Errorf("generation %s is not seen, only %s", want, seen)
		}
		return nil
	})
	for _, condition := range []string{"Progressing=false", "Available"} {
		s.must("", "wait", "lsc/shop", "--for=condition="+condition, "--timeout=4m")
	}
}

// lose deletes a pod, and waits until the one that takes its place is ready.
func (s space) lose(pod string) {
	s.t.Helper()
	s.must("", "delete", "pod", pod)
	s.must("", "wait", "pod/"+pod, "--for=create", "--timeout=2m")
	s.must("", "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=2m")
}

// condition is "status reason message" of a condition of the LiveStashCluster.
func (s space) condition(kind string) string {
	s.t.Helper()
	return s.conditionOf("shop", kind)
}

// conditionOf is the same of another LiveStashCluster.
func (s space) conditionOf(name, kind string) string {
	s.t.Helper()
	path := fmt.Sprintf(`jsonpath={range .status.conditions[?(@.type=="%s")]}{.status} {.reason} {.message}{end}`, kind)
	return s.must("", "get", "lsc", name, "-o", path)
}

// rpc evaluates an Elixir expression in the running application of a pod.
func (s space) rpc(pod, expression string) (string, error) {
	out, err := s.kubectl("", "exec", pod, "-c", "app", "--", "bin/workload", "rpc", "IO.puts(inspect("+expression+"))")
	return strings.TrimSpace(out), err
}

// eventually waits until check has nothing to say.
func (s space) eventually(within time.Duration, check func() error) {
	s.t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// measured is what the load test says of itself (loadtests/k6/README.md), as far as these tests look.
type measured struct {
	Passed    bool `json:"passed"`
	Cycles    int  `json:"cycles"`
	Recovered struct {
		Yes   int      `json:"yes"`
		No    int      `json:"no"`
		Share *float64 `json:"share"`
	} `json:"recovered"`
	WrongCount  int            `json:"wrong_count"`
	Error       int            `json:"error"`
	Connections map[string]int `json:"connections"`
}

// load runs the reconnect scenario against the two pods of the fleet as a Job: 50 users, 20 seconds, each connection to
// the other pod than the last.
func (s space) load(adapter string) measured {
	s.t.Helper()
	job, err := os.ReadFile(filepath.Join(repository(), "loadtests", "k6", "job.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	fill := strings.NewReplacer("@REGISTRY@", registry, "@VERSION@", version, "@FLEET@", "shop",
		"@ADAPTER@", adapter, "@USERS@", "50", "@DURATION@", "20s")
	s.must(fill.Replace(string(job)), "apply", "-f", "-")
	s.eventually(2*time.Minute, func() error {
		state := s.must("", "get", "job", "reconnect", "-o", "jsonpath={.status.succeeded},{.status.failed}")
		if state == "," || state == "0,0" {
			return fmt.Errorf("the load test is still running")
		}
		return nil
	})
	out := s.must("", "logs", "job/reconnect")
	for line := range strings.Lines(out) {
		if text, found := strings.CutPrefix(line, "LIVESTASH_RESULT "); found {
			var outcome measured
			if err := json.Unmarshal([]byte(text), &outcome); err != nil {
				s.t.Fatal(err)
			}
			s.t.Log(text)
			return outcome
		}
	}
	s.t.Fatalf("the load test gave no result:\n%s", out)
	return measured{}
}
