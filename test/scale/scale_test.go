package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOperatorKeepsItsBounds runs a small measurement from end to end: a control plane, the operator, ten clusters.
func TestOperatorKeepsItsBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, which takes half a minute")
	}
	if os.Geteuid() != 0 {
		t.Skip("localcluster needs root")
	}
	t.Parallel() // it mostly waits
	measured, err := run(t.Context(), options{
		clusters: 10,
		pods:     3,
		bin:      filepath.Join("..", "..", "bin"),
		config:   filepath.Join("..", "..", "config"),
		name:     "scale-test",
		idle:     10 * time.Second,
		out:      t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range measured.brokenBounds() {
		t.Error("broken bound:", bound)
	}
	// The bounds above would also be kept by an operator that does nothing.
	const fewestChildren = 7 // a ServiceAccount, two Services, a NetworkPolicy, a PodDisruptionBudget, a Secret, a StatefulSet
	if measured.children < measured.clusters*fewestChildren {
		t.Errorf("%d children of %d clusters, want at least %d of each", measured.children, measured.clusters, fewestChildren)
	}
	if len(measured.requests) < measured.children {
		t.Errorf("%d requests made %d children: the audit log was not counted in full", len(measured.requests), measured.children)
	}
	if measured.created <= 0 || measured.made <= 0 || measured.cpu() <= 0 || measured.after.peak <= 0 {
		t.Errorf("a figure is missing: %+v", measured.report())
	}
}

// TestOperatorRestsWithAgents lets pods run, whose agents answer or, a third of them, never do.
func TestOperatorRestsWithAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, which takes three minutes")
	}
	if os.Geteuid() != 0 {
		t.Skip("localcluster needs root")
	}
	t.Parallel() // it mostly waits
	measured, err := run(t.Context(), options{
		clusters:   10,
		pods:       3,
		withAgents: true,
		silent:     1. / 3,
		bin:        filepath.Join("..", "..", "bin"),
		config:     filepath.Join("..", "..", "config"),
		name:       "scale-test-agents",
		idle:       35 * time.Second, // longer than it takes to ask everybody once
		upheavals:  true,
		out:        t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range measured.brokenBounds() {
		t.Error("broken bound:", bound)
	}
	agents := measured.agents
	const warmUpPods = 3
	if want := measured.clusters*measured.pods + warmUpPods; agents.all != want || agents.silent != want/3 {
		t.Errorf("%d agents, %d silent, want %d and a third", agents.all, agents.silent, want)
	}
	// The bounds would also be kept by an operator that asks nobody.
	if agents.asked < int64(agents.all-agents.silent) {
		t.Errorf("%d questions at rest: %d agents were there to answer", agents.asked, agents.all-agents.silent)
	}
	if len(agents.changes) != measured.clusters {
		t.Errorf("%d of %d changes were measured", len(agents.changes), measured.clusters)
	}
	for _, took := range agents.changes {
		if took >= changeLimit {
			t.Errorf("a changed spec was not in the StatefulSet after %s", took)
		}
	}
	// An operator that does nothing would make fewer. One that does too much would make more: a change costs five, and pods that go or come cost two
	// events and a write of the status every five seconds. Of a restart's, 20 are of the one fleet that changed meanwhile.
	u := measured.upheavals
	if u.RestartRequests < 0.1 || u.RestartRequests > 3.5 || u.RestartActs <= 0 {
		t.Errorf("a restart cost %.2f requests for each cluster", u.RestartRequests)
	}
	for what, requests := range map[string]float64{"that a zone went": u.OutageRequests, "that it came back": u.ReturnRequests} {
		if requests < 1 || requests > 12 {
			t.Errorf("%s cost %.2f requests for each cluster", what, requests)
		}
	}
	if u.Together != measured.clusters || u.TogetherWorst <= 0 {
		t.Errorf("%d clusters changed together: %+v", u.Together, u)
	}
}

func TestBrokenBounds(t *testing.T) {
	good := measurement{
		clusters: 2, children: 14, created: time.Second, made: 3 * time.Second, idleFor: time.Minute,
		requests: make([]request, 24), after: usage{peak: maxPeak},
	}
	withAgents := func(change func(*measurement)) func(*measurement) {
		return func(m *measurement) {
			m.after = usage{resident: maxRestingMemory, peak: 2 * maxRestingMemory, cpu: 18 * time.Second}
			m.agents = &agentFigures{changes: []time.Duration{time.Millisecond, maxReaction}}
			m.requests = make([]request, 40)
			change(m)
		}
	}
	cases := map[string]struct {
		change func(*measurement)
		// says is what the one broken bound must name; none is broken when it is empty.
		says string
	}{
		"all kept to the limit":        {func(*measurement) {}, ""},
		"one request too many":         {func(m *measurement) { m.requests = make([]request, 25) }, "12.50 requests per cluster, at most 12.00"},
		"fewer children":               {func(m *measurement) { m.children = 12 }, "12.00 requests per cluster, at most 11.00"},
		"not idle":                     {func(m *measurement) { m.idle = make([]request, 1) }, "1 requests while there was nothing to do"},
		"too much memory":              {func(m *measurement) { m.after.peak += 1 << 20 }, "81.0 MiB of memory, at most 80"},
		"agents, to the limit":         {withAgents(func(*measurement) {}), ""},
		"agents, one request too many": {withAgents(func(m *measurement) { m.requests = make([]request, 41) }), "20.50 requests per cluster, at most 20.00"},
		"agents, too much memory":      {withAgents(func(m *measurement) { m.after.resident += 1 << 20 }), "151.0 MiB of memory at rest, at most 150"},
		"agents, too busy":             {withAgents(func(m *measurement) { m.after.cpu += time.Second }), "0.32 cores at rest, at most 0.3"},
		"agents, too slow":             {withAgents(func(m *measurement) { m.agents.changes[0] = 2 * time.Second }), "after 2s, at most 1s"},
		"too late":                     {func(m *measurement) { m.made += time.Millisecond }, "at most 2s after the 1.00 s"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			measured := good
			test.change(&measured)
			broken := strings.Join(append(measured.brokenBounds(), measured.brokenPace()...), "; ")
			if (broken == "") != (test.says == "") || !strings.Contains(broken, test.says) {
				t.Errorf("broken bounds are %q, want %q", broken, test.says)
			}
		})
	}
}

const auditLines = `{"stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/a/statefulsets/x?force=true","verb":"patch","user":{"username":"me"},"objectRef":{"resource":"statefulsets"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z"}
{"stage":"ResponseComplete","requestURI":"/x","verb":"patch","user":{"username":"livestashclusters"},"objectRef":{"resource":"pods","name":"me"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseStarted","requestURI":"/x","verb":"watch","user":{"username":"me"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","requestURI":"/x","verb":"watch","user":{"username":"me"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z"}
{"stage":"ResponseComplete","requestURI":"/x","verb":"update","user":{"username":"me"},"objectRef":{"resource":"leases"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z"}
{"stage":"ResponseComplete","requestURI":"/x","verb":"patch","user":{"username":"me"},"objectRef":{"resource":"livestashclusters","subresource":"status"},"responseStatus":{"code":409},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z"}
{"stage":"ResponseComplete","requestURI":"/api?timeout=32s","verb":"get","user":{"username":"me"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:04.000000Z"}
`

// TestAuditLogIsReadWhileItGrows cuts the log at every byte, as a reader that comes too early sees it.
func TestAuditLogIsReadWhileItGrows(t *testing.T) {
	second := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	want := []request{
		{second(1), "patch", "statefulsets", 201},
		{second(3), "patch", "livestashclusters/status", 409},
		{second(4), "get", "/api", 200},
	}
	for cut := range len(auditLines) {
		log := &auditLog{path: filepath.Join(t.TempDir(), "audit.log"), account: "me"}
		for _, content := range []string{auditLines[:cut], auditLines} {
			if err := os.WriteFile(log.path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := log.read(); err != nil {
				t.Fatalf("cut at byte %d: %v", cut, err)
			}
		}
		got := log.between(second(0), second(9))
		if len(got) != len(want) {
			t.Fatalf("cut at byte %d: %d requests, want %d: %+v", cut, len(got), len(want), got)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("cut at byte %d: request %d is %+v, want %+v", cut, i, got[i], want[i])
			}
		}
		if last := log.last(); last != second(4) {
			t.Fatalf("the last request was at %s: the lease's is later but does not count", last)
		}
		if window := log.between(second(3), second(4)); len(window) != 1 || window[0] != want[1] {
			t.Fatalf("in the fourth second came %+v", window)
		}
	}
}

func TestParseUsage(t *testing.T) {
	stat := "42 (a ) b) S 1 42 42 0 -1 4194560 7000 0 10 0 150 25 0 0 20 0 9 0 1000 2000000 9000 0"
	status := "Name:\tmanager\nVmPeak:\t 1000 kB\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nRssAnon:\t    512 kB\nRssFile:\t    500 kB\nRssShmem:\t     12 kB\n"
	got, err := parseUsage(stat, status)
	if err != nil {
		t.Fatal(err)
	}
	want := usage{cpu: 1750 * time.Millisecond, peak: 2 << 20, resident: 1 << 20, anonymous: 512 << 10, files: 512 << 10}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parseUsage(stat, "Name:\tmanager\nVmRSS:\t1 kB\n"); err == nil {
		t.Error("a status without VmHWM was accepted")
	}
}
