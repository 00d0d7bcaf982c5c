package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A JSON API, closed, with a rate and sought to its knee, and chat rooms over two pods and two runners, each on a fresh fleet: answers and deliveries are counted,
// and the report has what they cost. A Prometheus takes what each of the runners sends.
func TestBenchmarkOfRequestsAndRooms(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark-stashless")
	// As many requests as can be answered would take the whole machine, and the operator could not ask what they cost.
	target := strings.Replace(ownFleet(2), "http:", "resources: {requests: {cpu: 100m}, limits: {cpu: 300m, memory: 512Mi}}, http:", 1) +
		"parallelism: 2\nprometheusRemoteWrite: {url: \"http://prometheus:9090/api/v1/write\"}\n"
	p := s.prometheus()
	for name, c := range map[string]struct {
		spec, duration, says string
		runs                 int
		// least is how many answers or messages there must be, and heard how often a message is.
		least, heard int64
		// knee is the size of the last step of a search, which carries more.
		knee int32
	}{
		"requests": {
			spec:     "scenario: Requests\nmatrix: {runs: [{connections: 4, duration: 30s}, {rate: 20, duration: 30s}]}\nthresholds: {" + patient + "}",
			duration: "request", says: "requests got a good answer", runs: 2, least: 250,
		},
		"rooms": {
			spec:     "scenario: Rooms\nrooms: {size: 10, speakers: 2, every: 1s-2s}\nmatrix: {runs: [{users: 40, ramp: 5s, duration: 25s}]}\nthresholds: {minCollections: 1, " + patient + "}",
			duration: "delivery", says: "messages reached their whole room", runs: 1, least: 40, heard: 10,
		},
		"knee": {
			spec:     "scenario: Requests\nmatrix: {runs: [{rate: 5, duration: 30s}], seek: {steps: 2, factor: \"3\", while: {p95: 20s}}}\nthresholds: {" + patient + "}",
			duration: "request", says: "carries ≥ ", runs: 2, least: 50, knee: 15,
		},
	} {
		s.benchmark(name, target+c.spec)
		now := s.finished(name, 12*time.Minute)
		if now.Verdict != "Passed" || len(now.Runs) != c.runs {
			t.Errorf("%s ended with %+v", name, now)
			continue
		}
		if c.knee > 0 && (len(now.Knees) != 1 || now.Knees[0].Size != c.knee || !now.Knees[0].AtLeast || now.Knees[0].Verdict != "Passed") {
			t.Errorf("%s: the knees are %+v", name, now.Knees)
		}
		r := s.reported(now.Report.ConfigMap)
		p.at = time.Now()
		for place, run := range r.Runs {
			// Prometheus refuses all that comes along with one sample of a series that another runner writes, too.
			sent := fmt.Sprintf("sum by (runner) (count_over_time(k6_vus{testid=%q}[10m])) >= 5", now.Runs[place].Runner)
			if runners, err := p.query(sent); err != nil || runners != 2 {
				t.Errorf("%s: %d runners have sent what they measured (%v), want 2", name, runners, err)
			}
			t.Logf("%s: %d good, %d failed, %d heard, %s a second, p95 %s, CPU %.1f s", name, run.Counts.Good, run.Counts.Failed, run.Counts.Heard,
				now.Runs[place].Second, now.Runs[place].P95, run.Samples["cpu"].Total)
			if run.Adapter != "None" || run.Counts.Good < c.least || run.Counts.Failed != 0 || run.Counts.Error != 0 || !isHeard(run, c.heard) {
				t.Errorf("%s: %+v", name, run)
			}
			if run.Durations[c.duration].Count == 0 || now.Runs[place].Second == "" || now.Runs[place].P95 == "" || run.Samples["cpu"].Total == 0 || run.Samples["memory"].Peak == 0 || run.Samples["collections"].Total == 0 {
				t.Errorf("%s: %+v of %+v", name, run, now.Runs[place])
			}
		}
		if text := s.must("", "get", "configmap", now.Report.ConfigMap, "-o", `jsonpath={.data.report\.md}`); !strings.Contains(text, c.says) {
			t.Errorf("%s: report.md does not say %q: %s", name, c.says, text)
		}
	}
}

// isHeard says whether each message of a run was heard by a room of that size, but for members who were still on their way when the first ones spoke: who is not in the
// room is not expected to hear anything.
func isHeard(run reportedRun, size int64) bool {
	all := size * run.Counts.Good
	return run.Counts.Heard <= all && run.Counts.Heard >= all-all/10
}

// A server that is no fleet, beside one: the operator makes it, loads it in its protocol, and has what its pod uses, its Redis included, though
// no agent is in it. One that speaks another protocol than was said measures nothing, and says so.
func TestBenchmarkOfRivals(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "benchmark-rivals")
	image := workload()
	of := func(protocol string) string {
		return fmt.Sprintf(`target: {template: {spec: {image: %q, replicas: 1, http: {readinessPath: /healthz}}}}
scenario: Rooms
rooms: {size: 10, speakers: 2, every: 1s-2s}
matrix:
  variants:
  - {name: fleet}
  - name: server
    server: {image: %q, port: 4321, protocol: %s, redis: {}, env: [{name: SECRET_KEY_BASE, value: %q}, {name: LIVE_STASH_ADAPTER, value: none}]}
  runs: [{users: 40, ramp: 5s, duration: 25s}]`, image, image, protocol, strings.Repeat("no secret ", 8))
	}
	s.benchmark("rivals", of("Phoenix")+"\nthresholds: {"+patient+", against: {memory: \"50\", cpu: \"50\"}}")
	now := s.finished("rivals", 12*time.Minute)
	if now.Verdict != "Passed" || len(now.Runs) != 2 {
		t.Fatalf("it ended with %+v", now)
	}
	for _, run := range s.reported(now.Report.ConfigMap).Runs {
		memory, cpu := run.Samples["podMemory"], run.Samples["podCpu"]
		t.Logf("%s: %d good, %.1f MB, CPU %.2f s, %d points", run.Adapter, run.Counts.Good, memory.Peak/1e6, cpu.Total, len(memory.Points))
		if run.Replicas != 1 || run.Counts.Good < 40 || run.Counts.Failed != 0 || !isHeard(run, 10) {
			t.Errorf("%+v", run)
		}
		// A virtual machine of Erlang takes 30 MB at least.
		if memory.Peak < 3e7 || len(memory.Points) < 3 || cpu.Total <= 0 {
			t.Errorf("its pod uses %+v, %+v", memory, cpu)
		}
	}
	if left := s.must("", "get", "statefulset,service,networkpolicy", "-l", "livestash.dev/benchmark=rivals", "-o", "name"); left != "" {
		t.Errorf("there are still %s", left)
	}

	s.benchmark("mistaken", strings.Replace(of("ActionCable"), "  - {name: fleet}\n", "", 1))
	s.ended("mistaken", "Errored", "server.protocol says")
}
