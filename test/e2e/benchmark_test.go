package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// benchmarked is the status of a LiveStashBenchmark, as far as these tests look.
type benchmarked struct {
	Phase    string `json:"phase"`
	Progress string `json:"progress"`
	Verdict  string `json:"verdict"`
	Runs     []struct {
		Name     string `json:"name"`
		Adapter  string `json:"adapter"`
		Phase    string `json:"phase"`
		Attempt  int    `json:"attempt"`
		Runner   string `json:"runner"`
		Verdict  string `json:"verdict"`
		Message  string `json:"message"`
		Delay    string `json:"clientDelay"`
		Warmup   bool   `json:"warmup"`
		LoadedAt string `json:"loadStartedAt"`
		Second   string `json:"perSecond"`
		P95      string `json:"answerP95"`
	} `json:"runs"`
	Knees []struct {
		Size    int32  `json:"size"`
		AtLeast bool   `json:"atLeast"`
		Verdict string `json:"verdict"`
	} `json:"knees"`
	Report struct {
		ConfigMap string `json:"configMap"`
	} `json:"report"`
}

// reported is a benchmark's report, as far as these tests look.
type reported struct {
	SchemaVersion int    `json:"schemaVersion"`
	Verdict       string `json:"verdict"`
	Machine       struct {
		Nodes []struct {
			CPU float64 `json:"cpu"`
		} `json:"nodes"`
	} `json:"machine"`
	Runs []reportedRun `json:"runs"`
}

type reportedRun struct {
	Adapter  string  `json:"adapter"`
	Verdict  string  `json:"verdict"`
	Message  string  `json:"message"`
	Delay    float64 `json:"clientDelay"`
	Bound    bool    `json:"clientBound"`
	Replicas int     `json:"replicas"`
	Counts   struct {
		Planned   int64 `json:"planned"`
		Cycles    int64 `json:"cycles"`
		Recovered int64 `json:"recovered"`
		Lost      int64 `json:"notRecovered"`
		Dropped   int64 `json:"dropped"`
		Cut       int64 `json:"cut"`
		Error     int64 `json:"error"`
		Good      int64 `json:"good"`
		Failed    int64 `json:"failed"`
		Heard     int64 `json:"deliveries"`
	} `json:"counts"`
	Events []struct {
		Kind string  `json:"kind"`
		At   float64 `json:"atSeconds"`
		Took float64 `json:"tookSeconds"`
	} `json:"events"`
	Durations map[string]struct {
		Count int64   `json:"count"`
		P95   float64 `json:"p95"`
	} `json:"durations"`
	Samples map[string]series `json:"samples"`
}

type series struct {
	Points [][2]float64 `json:"points"`
	Peak   float64      `json:"peak"`
	Total  float64      `json:"total"`
}

// patient is for thresholds: the machines of these tests have other work as well, and k6 may be late.
const patient = "maxClientDelay: 1m"

// benchmark makes a LiveStashBenchmark of users who reconnect, with the given further lines of spec.
func (s space) benchmark(name, spec string) {
	s.t.Helper()
	var manifest strings.Builder
	fmt.Fprintf(&manifest, "apiVersion: livestash.dev/v1alpha1\nkind: LiveStashBenchmark\nmetadata: {name: %s}\nspec:\n  runner: Job\n  cooldown: 1s\n", name)
	if !strings.Contains(spec, "scenario:") {
		manifest.WriteString("  scenario: Reconnect\n")
	}
	if !strings.Contains(spec, "thresholds:") {
		manifest.WriteString("  thresholds: {" + patient + "}\n")
	}
	for line := range strings.Lines(spec) {
		fmt.Fprintf(&manifest, "  %s\n", strings.TrimRight(line, "\n"))
	}
	s.must(manifest.String(), "apply", "-f", "-")
}

func (s space) benchmarked(name string) benchmarked {
	s.t.Helper()
	var object struct {
		Status benchmarked `json:"status"`
	}
	if err := json.Unmarshal([]byte(s.must("", "get", "lsb", name, "-o", "json")), &object); err != nil {
		s.t.Fatal(err)
	}
	return object.Status
}

// running waits until the load of a benchmark's first run has begun.
func (s space) running(name string) benchmarked {
	s.t.Helper()
	var now benchmarked
	s.eventually(5*time.Minute, func() error {
		now = s.benchmarked(name)
		if len(now.Runs) == 0 || now.Runs[0].LoadedAt == "" {
			return fmt.Errorf("benchmark %s does not run: %+v", name, now)
		}
		return nil
	})
	return now
}

// finished waits until a benchmark is over.
func (s space) finished(name string, within time.Duration) benchmarked {
	s.t.Helper()
	var now benchmarked
	s.eventually(within, func() error {
		now = s.benchmarked(name)
		if now.Phase != "Finished" {
			return fmt.Errorf("benchmark %s is not over: %+v", name, now)
		}
		return nil
	})
	s.t.Logf("%s: %+v", name, now)
	return now
}

func (s space) reported(config string) reported {
	s.t.Helper()
	var r reported
	text := s.must("", "get", "configmap", config, "-o", `jsonpath={.data.report\.json}`)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// script makes a ConfigMap with a k6 script.
func (s space) script(name, text string) {
	s.t.Helper()
	s.must("", "create", "configmap", name, "--from-literal=test.js="+text)
}

// ended checks that the one run of a benchmark has this verdict, and that its message has this text in it.
func (s space) ended(name, verdict, message string) benchmarked {
	s.t.Helper()
	now := s.finished(name, 8*time.Minute)
	if now.Verdict != verdict || len(now.Runs) != 1 || !strings.Contains(now.Runs[0].Message, message) {
		s.t.Errorf("benchmark %s ended with %+v, want %s because %q", name, now, verdict, message)
	}
	return now
}

// Five adapters, a fresh fleet for each, two runners: a table and a report at the end.
func TestBenchmarkOfAllAdapters(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark")
	s.benchmark("small", ownFleet(2)+"parallelism: 2\nmatrix: {runs: [{users: 50, ttl: 10s, ramp: 3s, duration: 30s}]}")
	now := s.finished("small", 12*time.Minute)
	if now.Verdict != "Passed" || now.Progress != "5/5" {
		t.Fatalf("it ended with %+v", now)
	}

	r := s.reported(now.Report.ConfigMap)
	if r.SchemaVersion != 2 || r.Verdict != "Passed" || len(r.Machine.Nodes) == 0 || r.Machine.Nodes[0].CPU < 1 {
		t.Errorf("the report says version %d, verdict %s, nodes %v", r.SchemaVersion, r.Verdict, r.Machine.Nodes)
	}
	var adapters []string
	for _, run := range r.Runs {
		adapters = append(adapters, run.Adapter)
		samples := run.Samples
		t.Logf("%s: %d cycles, p95 %.1f ms, ETS %.0f B, stashes %.0f, HTTP out %.0f B, Redis %.0f B in, CPU %.1f s, %s", run.Adapter, run.Counts.Cycles,
			run.Durations["reconnect"].P95, samples["memoryEts"].Peak, samples["stashes"].Peak, samples["httpOut"].Total, samples["redisIn"].Total, samples["cpu"].Total, run.Message)
		if run.Counts.Planned != 50 || run.Counts.Cycles < 50 || run.Counts.Error != 0 || run.Replicas != 2 || run.Durations["reconnect"].Count == 0 {
			t.Errorf("%s: %+v", run.Adapter, run)
		}
		if keeps := run.Adapter != "None"; (run.Counts.Recovered > 0) != keeps {
			t.Errorf("%s: %d users found their state", run.Adapter, run.Counts.Recovered)
		}
		if len(samples["processes"].Points) < 2 || samples["processes"].Peak < 100 || samples["httpOut"].Total == 0 || samples["cpu"].Total == 0 {
			t.Errorf("%s: samples %+v", run.Adapter, samples)
		}
		if has := samples["redisOut"].Total > 0; has != (run.Adapter == "Redis") {
			t.Errorf("%s: %.0f bytes to Redis", run.Adapter, samples["redisOut"].Total)
		}
		inPods := run.Adapter == "ETS" || run.Adapter == "Mnesia"
		if has := samples["stashBytes"].Peak > 0; has != inPods {
			t.Errorf("%s: %.0f bytes of stashes in the pods", run.Adapter, samples["stashBytes"].Peak)
		}
	}
	if want := []string{"None", "ETS", "BrowserMemory", "Redis", "Mnesia"}; !slices.Equal(adapters, want) {
		t.Errorf("the report has runs of %v", adapters)
	}
	for _, file := range []string{"md", "html"} {
		if text := s.must("", "get", "configmap", now.Report.ConfigMap, "-o", `jsonpath={.data.report\.`+file+`}`); !strings.Contains(text, "Mnesia") {
			t.Errorf("report.%s does not speak of Mnesia: %.200s", file, text)
		}
	}
	if left := s.must("", "get", "lsc,jobs,pods", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// Users reach a fresh fleet through an nginx alone, which comes before them and goes with the fleet.
func TestBenchmarkThroughAProxy(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark-proxy")
	s.benchmark("proxied", ownFleet(2)+fmt.Sprintf(`scenario: Reconnect
routing: Proxy
proxy: {image: "%s/livestash-test-nginx:%s"}
thresholds: {%s}
matrix: {adapters: [ETS], runs: [{users: 20, ttl: 10s, ramp: 3s, duration: 20s}]}`, registry, version, patient))
	now := s.finished("proxied", 5*time.Minute)
	if now.Verdict != "Passed" {
		t.Fatalf("it ended with %+v", now)
	}
	run := s.reported(now.Report.ConfigMap).Runs[0]
	t.Logf("%d returns, p95 %.1f ms", run.Counts.Recovered, run.Durations["reconnect"].P95)
	if run.Counts.Recovered < 20 || run.Counts.Error != 0 {
		t.Errorf("%+v", run)
	}
	if left := s.must("", "get", "statefulset,service,networkpolicy,pod", "-o", "name"); strings.Contains(left, "proxied") {
		t.Errorf("there are still %s", left)
	}
}

// ownFleet is the target of a benchmark that makes its fleet itself.
func ownFleet(replicas int) string {
	return fmt.Sprintf(`target: {template: {spec: {image: %q, replicas: %d, http: {readinessPath: /healthz}}}}
`, workload(), replicas)
}

// A deploy, a pod that is deleted and one pod more, while users are there all the time: nobody loses anything, and the report tells what each
// took.
func TestBenchmarkOfADeploy(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark-deploy")
	s.benchmark("deploy", ownFleet(2)+`routing: Service
matrix: {adapters: [ETS], runs: [{users: 40, ttl: 1m, ramp: 3s, duration: 4m}]}
events: [{at: 10s, kind: Rollout, within: 110s}, {at: 125s, kind: DeletePod, within: 50s}, {at: 180s, kind: Scale, replicas: 3, within: 45s}]
thresholds: {maxLost: 0, `+patient+"}")
	now := s.finished("deploy", 15*time.Minute)
	if now.Verdict != "Passed" {
		t.Fatalf("it ended with %+v", now)
	}
	run := s.reported("deploy-report").Runs[0]
	t.Logf("%+v, cut %d, durations %+v: %s", run.Events, run.Counts.Cut, run.Durations, run.Message)
	if run.Counts.Lost != 0 || run.Counts.Recovered < 200 || run.Counts.Cut == 0 || run.Replicas != 3 {
		t.Errorf("the report says %+v of %d pods", run.Counts, run.Replicas)
	}
	var kinds []string
	for _, event := range run.Events {
		kinds = append(kinds, event.Kind)
		if event.Took < 1 {
			t.Errorf("%s took %g s", event.Kind, event.Took)
		}
	}
	if !slices.Equal(kinds, []string{"Rollout", "DeletePod", "Scale"}) {
		t.Errorf("the events are %v", kinds)
	}
	during, outside := run.Durations["reconnect_during"].Count, run.Durations["reconnect_outside"].Count
	if during == 0 || outside == 0 || during+outside != run.Durations["reconnect"].Count {
		t.Errorf("%d returns during the events and %d outside of them, of %d", during, outside, run.Durations["reconnect"].Count)
	}
	s.must("", "wait", "lsb/deploy", "--for=condition=Passed", "--timeout=10s")
}

// A run with a warm-up, held against one of before: a gate that is closed by a limit that nobody can keep.
func TestBenchmarkAgainstAnother(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark-against")
	const brief = "adapters: [ETS], runs: [{users: 40, ttl: 10s, ramp: 3s, duration: 40s}]}\n"
	s.benchmark("before", ownFleet(2)+"matrix: {"+brief)
	s.finished("before", 8*time.Minute)
	s.benchmark("after", ownFleet(2)+"matrix: {warmup: 1, "+brief+`compareWith: {benchmarkRef: {name: before}, atMost: {memory: "0.01", reconnect: "100"}}`)
	now := s.finished("after", 15*time.Minute)
	if now.Verdict != "Failed" || len(now.Runs) != 2 || !now.Runs[0].Warmup || now.Runs[1].Verdict != "Passed" {
		t.Errorf("it ended with %+v", now)
	}
	s.must("", "wait", "lsb/after", "--for=condition=Failed", "--timeout=10s")
	if said := s.must("", "get", "lsb", "after", "-o", "jsonpath={.status.comparison.message}"); !strings.Contains(said, "memory at its peak ") || strings.Contains(said, "p95 of returns") {
		t.Errorf("the comparison says %q", said)
	}
	if runs := s.reported("after-report").Runs; len(runs) != 1 {
		t.Errorf("the report has %d runs, with the warm-up", len(runs))
	}
}

// Whatever goes wrong ends with the right verdict and a sentence, never with figures that look like a result.
func TestBenchmarksThatGoWrong(t *testing.T) {
	s := newSpace(t, "benchmark-wrong")
	s.apply("adapter: ETS\nttl: 10s")
	s.settled()
	const browser = "matrix: {adapters: [BrowserMemory], runs: [{users: 60, ttl: 10s, ramp: 2s, duration: 1m}]}\n"
	const matrix = "matrix: {adapters: [ETS], runs: [{users: 20, ttl: 10s, ramp: 2s, duration: 20s}]}\n"
	// For what must be done, or be seen, before the run is over.
	longer := strings.Replace(matrix, "20s", "1m", 1)

	t.Run("a runner is killed", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("killed", longer+`parallelism: 2
target: {url: "http://shop-0.shop-nodes:4000"}`)
		job := s.running("killed").Runs[0].Runner
		pods := "livestash.dev/benchmark-test=" + job + ",batch.kubernetes.io/job-completion-index=1"
		if token := s.must("", "get", "pods", "-l", pods, "-o", "jsonpath={.items[0].spec.automountServiceAccountToken}"); token != "false" {
			t.Errorf("automountServiceAccountToken of the runner is %q", token)
		}
		s.must("", "delete", "pod", "-l", pods, "--grace-period=0", "--force")
		s.ended("killed", "Errored", "Runner 2 of 2 was lost before it reported: its pod is gone")
	})

	t.Run("a threshold does not hold", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("slow", matrix+`parallelism: 2
thresholds: {p99: {reconnect: 1ms}, `+patient+`}
target: {url: "http://shop-1.shop-nodes:4000"}`)
		s.ended("slow", "Failed", "p99.reconnect: ")
	})

	t.Run("a script has a syntax error", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.script("script", "export default function () {")
		s.benchmark("broken", matrix+`scenario: Script
script: {configMapRef: {name: script, key: test.js}}
target: {url: "http://shop"}`)
		s.ended("broken", "Errored", "test.js: Line 1:29 Unexpected end of input")
	})

	t.Run("the URL answers 404", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("lost", matrix+`target: {url: "http://shop-0.shop-nodes:9568"}`)
		s.ended("lost", "Errored", "There is nothing to test")
	})

	t.Run("the target does not exist", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("nowhere", matrix+"runDeadline: 1m\ntarget: {clusterRef: {name: nowhere}}")
		s.ended("nowhere", "Errored", "There is no LiveStashCluster nowhere")
	})

	t.Run("the API server refuses the template", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("refused", matrix+"target: {template: {spec: {image: x, http: {port: 4369}}}}")
		s.ended("refused", "Errored", "http.port must not be 4369")
	})

	t.Run("k6 is starved", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.script("starved", `import reconnect, * as scenario from '/loadtests/k6/scenarios/reconnect.js';
export const { options, setup, handleSummary } = scenario;
export default async function (prepared) {
  const busy = setInterval(() => { for (const end = Date.now() + 500; Date.now() < end;); }, 600);
  await reconnect(prepared);
  clearInterval(busy);
}`)
		s.benchmark("starved", longer+`scenario: Script
script: {configMapRef: {name: starved, key: test.js}}
thresholds: {maxClientDelay: 250ms}
target: {url: "http://shop"}`)
		if delay, err := time.ParseDuration(s.ended("starved", "Errored", "The client was the bottleneck").Runs[0].Delay); err != nil || delay < 250*time.Millisecond {
			t.Errorf("the client was late by %s: %v", delay, err)
		}
		// What was counted stands.
		if r := s.reported("starved-report").Runs[0]; !r.Bound || r.Delay < 250 || r.Counts.Recovered == 0 || r.Durations["reconnect"].Count == 0 {
			t.Errorf("the report says %+v", r)
		}
	})

	t.Run("a script is content with two seconds", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.script("short", `import { readOptions } from '/loadtests/k6/lib/options.js';
import { summary } from '/loadtests/k6/lib/report.js';
import { k6Options, prepare, runUsers } from '/loadtests/k6/lib/scenario.js';
const config = readOptions(Object.assign({}, __ENV, { DURATION: '2s', RAMP: '500ms' }));
export const options = k6Options(config);
export const setup = () => prepare(config);
export default (prepared) => runUsers(config, prepared, async (user) => {
  while (!user.over) {
    if ((await user.arrive()) && (await user.stash())) {
      await user.stay(300);
    }
    await user.leave();
  }
});
export const handleSummary = (data) => summary(data, config);`)
		s.benchmark("short", matrix+`scenario: Script
script: {configMapRef: {name: short, key: test.js}}
target: {url: "http://shop"}`)
		s.ended("short", "Errored", "ran another test than it should have: 2s with a TTL of 10s instead of 20s and 10s")
	})

	t.Run("a pod of the fleet crashes", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("crashed", browser+`thresholds: {minRecovered: "0", maxFailed: "1", `+patient+"}\n"+ownFleet(1))
		s.running("crashed")
		// Not must: the answer may be lost with the machine.
		_, _ = s.kubectl("", "exec", "crashed-01-browser-0", "-c", "app", "--", "bin/workload", "rpc", ":erlang.halt(7, flush: false)")
		s.ended("crashed", "Failed", "maxRestarts: 1 of the fleet's pods restarted during the run (crashed-01-browser-0: container app ended with exit code 7")
	})

	t.Run("the server drops sockets", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("dropping", browser+"scenario: Visits\n"+ownFleet(1))
		s.running("dropping")
		s.must("", "exec", "dropping-01-browser-0", "-c", "app", "--", "bin/workload", "rpc", `spawn(fn -> for _ <- 1..60 do
  for {listener, _} <- :ranch.info(), pid <- :ranch.procs(listener, :connections), :rand.uniform() < 0.1, do: Process.exit(pid, :kill)
  Process.sleep(500)
end end)`)
		s.ended("dropping", "Failed", "maxFailed: ")
		if counts := s.reported("dropping-report").Runs[0].Counts; counts.Dropped < 5 || counts.Recovered == 0 {
			t.Errorf("the report says %+v; want dropped sockets, and users who came back", counts)
		}
	})

	t.Run("the server keeps stashes for ever", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.must(strings.Replace(s.fleet("adapter: BrowserMemory\nttl: 1h\nreplicas: 1"), "{name: shop}", "{name: keeps}", 1), "apply", "-f", "-")
		s.eventually(5*time.Minute, func() error {
			if ready := s.must("", "get", "lsc", "keeps", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status}`); ready != "True" {
				return fmt.Errorf("the fleet keeps is not available: %s", ready)
			}
			return nil
		})
		s.benchmark("forever", browser+`scenario: Visits
target: {url: "http://keeps"}`)
		s.ended("forever", "Failed", "the target does not expire stashes after 10s")
	})

	t.Run("it is deleted midway", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("deleted", longer+ownFleet(1))
		s.running("deleted")
		s.must("", "delete", "lsb", "deleted")
		s.eventually(3*time.Minute, func() error {
			left := s.must("", "get", "lsc,jobs,configmaps", "-l", "livestash.dev/benchmark=deleted", "-o", "name")
			left += s.must("", "get", "pods", "-l", "livestash.dev/benchmark=deleted", "-o", "name")
			left += s.must("", "get", "pods,services", "-l", "livestash.dev/cluster=deleted-01-ets", "-o", "name")
			if left != "" {
				return fmt.Errorf("left: %s", left)
			}
			return nil
		})
	})

	t.Run("the operator is restarted midway", func(t *testing.T) {
		t.Parallel()
		s := s.in(t)
		s.benchmark("restarted", longer+"target: {clusterRef: {name: shop}}")
		before := s.running("restarted").Runs[0]
		operator := space{t, releaseNamespace}
		operator.must("", "delete", "pod", "-l", "app.kubernetes.io/name=livestash-operator,app.kubernetes.io/component=operator")
		after := s.ended("restarted", "Passed", "").Runs[0]
		if after.Runner != before.Runner || after.Attempt != 1 {
			t.Errorf("it ran as %s and went on as %s, attempt %d", before.Runner, after.Runner, after.Attempt)
		}
		if r := s.reported("restarted-report"); len(r.Runs) != 1 || r.Runs[0].Counts.Cycles == 0 || len(r.Runs[0].Samples["processes"].Points) == 0 {
			t.Errorf("the report says %+v", r)
		}
	})
}
