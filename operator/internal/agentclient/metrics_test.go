package agentclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

// metricsText is the answer of the agent 0.1.0 in a virtual machine of OTP 25 without an application. What was 0 there has
// other values, so that one cannot be taken for another.
func metricsText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	replaced := string(text)
	for line, value := range map[string]string{
		"livestash_stashes 0":     "7",
		"livestash_stash_bytes 0": "4567",
		`livestash_network_bytes_total{kind="distribution",direction="in"} 0`:  "11",
		`livestash_network_bytes_total{kind="distribution",direction="out"} 0`: "12",
		`livestash_network_bytes_total{kind="redis",direction="in"} 0`:         "13",
		`livestash_network_bytes_total{kind="redis",direction="out"} 0`:        "1.4e+01",
	} {
		if !strings.Contains(replaced, line+"\n") {
			t.Fatalf("testdata/metrics.txt has no line %q", line)
		}
		replaced = strings.Replace(replaced, line+"\n", strings.TrimSuffix(line, "0")+value+"\n", 1)
	}
	return replaced
}

func serveMetrics(t *testing.T, code int, body string) (string, int32) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/metrics" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		w.Header().Set(Header, "0.1.0")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

func TestMetrics(t *testing.T) {
	ip, port := serveMetrics(t, http.StatusOK, metricsText(t))
	got, err := New().Metrics(t.Context(), ip, port)
	if err != nil {
		t.Fatal(err)
	}
	want := Metrics{
		Processes: 53, Memory: 11928928 + 4057776, MemoryProcesses: 4057776, MemoryBinary: 683680, MemoryETS: 380016,
		Stashes: 7, StashBytes: 4567, HTTPIn: 284, HTTPOut: 17446, DistributionIn: 11, DistributionOut: 12, RedisIn: 13, RedisOut: 14,
		CPUSeconds: 0.24, Collections: ptr.To(226.0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadMetrics(t *testing.T) {
	cases := map[string]struct {
		code       int
		body, says string
	}{
		"no figures":            {http.StatusOK, "", "it has no erlang_vm_process_count"},
		"one is missing":        {http.StatusOK, strings.Replace(metricsText(t), `usage="ets"`, `usage="tables"`, 1), "it has no erlang_vm_memory_system_bytes_total[usage ets]"},
		"no metrics":            {http.StatusOK, "<html>hello</html>", "text format parsing error"},
		"a crash of the parser": {http.StatusOK, "# HELP o e\n{n=\"\"} 1\n", "not in Prometheus' text format"},
		"another version":       {http.StatusNotFound, "", "it answered 404 to /metrics"},
		"endless":               {http.StatusOK, "a " + strings.Repeat("1", maxBody), "longer than"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ip, port := serveMetrics(t, c.code, c.body)
			_, err := New().Metrics(t.Context(), ip, port)
			var bad *BadAnswerError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Metrics = %v, want a *BadAnswerError that says %q", err, c.says)
			}
		})
	}
	var unreachable *UnreachableError
	ip, port := refused(t)
	if _, err := New().Metrics(t.Context(), ip, port); !errors.As(err, &unreachable) {
		t.Errorf("Metrics of nobody = %v, want an *UnreachableError", err)
	}
	var foreign *ForeignServerError
	ip, port = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metricsText(t)) })
	if _, err := New().Metrics(t.Context(), ip, port); !errors.As(err, &foreign) {
		t.Errorf("Metrics of another server = %v, want a *ForeignServerError", err)
	}
}

// What the node pays is the sum of both containers. Of one alone nothing is told, and an agent of before tells nothing.
func TestMetricsOfThePod(t *testing.T) {
	family := func(parts ...string) string {
		memory, seconds := "# TYPE livestash_pod_memory_bytes gauge\n", "# TYPE livestash_pod_cpu_seconds_total counter\n"
		for _, part := range parts {
			fields := strings.Fields(part)
			memory += fmt.Sprintf("livestash_pod_memory_bytes{part=%q} %s\n", fields[0], fields[1])
			seconds += fmt.Sprintf("livestash_pod_cpu_seconds_total{part=%q} %s\n", fields[0], fields[2])
		}
		return memory + seconds
	}
	const application, helper = "application 1000 2.5", "helper 200 0.25"
	memory, seconds := 1200.0, 2.75
	for name, test := range map[string]struct {
		more            string
		memory, seconds *float64
	}{
		"both containers":   {family(application, helper), &memory, &seconds},
		"the helper is new": {family(application), nil, nil},
		"an older agent":    {"", nil, nil},
	} {
		ip, port := serveMetrics(t, http.StatusOK, metricsText(t)+test.more)
		got, err := New().Metrics(t.Context(), ip, port)
		if err != nil || !cmp.Equal(got.PodMemory, test.memory) || !cmp.Equal(got.PodCPUSeconds, test.seconds) {
			t.Errorf("%s: %v bytes, %v seconds, %v", name, got.PodMemory, got.PodCPUSeconds, err)
		}
	}
	absurd := strings.Replace(family(application, helper), "1000", "1e17", 1)
	ip, port := serveMetrics(t, http.StatusOK, metricsText(t)+absurd)
	if _, err := New().Metrics(t.Context(), ip, port); err == nil || !strings.Contains(err.Error(), "podMemory") {
		t.Errorf("absurd memory: %v", err)
	}
}

// A pod without an agent tells both figures, or is not understood.
func TestUsage(t *testing.T) {
	const both = `# TYPE livestash_pod_memory_bytes gauge
livestash_pod_memory_bytes{part="application"} 1000
livestash_pod_memory_bytes{part="helper"} 200
# TYPE livestash_pod_cpu_seconds_total counter
livestash_pod_cpu_seconds_total{part="application"} 2.5
livestash_pod_cpu_seconds_total{part="helper"} 0.25
`
	ip, port := serveMetrics(t, http.StatusOK, both)
	got, err := New().Usage(t.Context(), ip, port)
	memory, seconds := 1200.0, 2.75
	if diff := cmp.Diff(Metrics{PodOnly: true, PodMemory: &memory, PodCPUSeconds: &seconds}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for says, text := range map[string]string{
		"it does not tell what the pod uses": strings.Replace(both, "helper", "other", 1),
		"podMemory":                          strings.Replace(both, "1000", "1e17", 1),
	} {
		ip, port := serveMetrics(t, http.StatusOK, text)
		if got, err := New().Usage(t.Context(), ip, port); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v, want an error that says %q", got, err, says)
		}
	}
}

// Figures that no pod has are refused, and not drawn or added up.
func TestAbsurdMetrics(t *testing.T) {
	text := metricsText(t)
	for _, figure := range []string{"NaN", "+Inf", "-Inf", "-1", "1e300", "1e17"} {
		ip, port := serveMetrics(t, http.StatusOK, strings.Replace(text, "livestash_stashes 7", "livestash_stashes "+figure, 1))
		_, err := New().Metrics(t.Context(), ip, port)
		var bad *BadAnswerError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "stashes") {
			t.Errorf("%s stashes: %v, want a *BadAnswerError that names them", figure, err)
		}
	}
}
