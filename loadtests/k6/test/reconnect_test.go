// Package test runs the k6 scenarios against servers that behave, and servers that do not.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

const (
	duration = 5 * time.Second
	// what DURATION may be exceeded by, whatever the server does
	slack = 15 * time.Second
	// exit code of k6 for failed thresholds
	thresholdsFailed = 99
	// exit code of k6 for SIGTERM
	stopped = 105
	// not an option of the scenario: after how long start sends SIGTERM to k6
	stopAfter = "TEST_STOP_AFTER"
)

type outcome struct {
	Passed    bool     `json:"passed"`
	Failed    []string `json:"failed_thresholds"`
	Cycles    int      `json:"cycles"`
	Recovered struct {
		Yes   int      `json:"yes"`
		No    int      `json:"no"`
		Share *float64 `json:"share"`
	} `json:"recovered"`
	NotFound    int            `json:"not_found"`
	WrongCount  int            `json:"wrong_count"`
	Error       int            `json:"error"`
	Errors      map[string]int `json:"errors"`
	Unfinished  int            `json:"unfinished"`
	Connections map[string]int `json:"connections"`
	FirstRender struct {
		Count     int                `json:"count"`
		Quantiles map[string]float64 `json:"quantiles"`
	} `json:"first_render"`

	exit   int
	took   time.Duration
	stdout string
	stderr string
}

// k6 returns the path of the k6 to test: $K6, else bin/k6 of the repository.
func k6(t *testing.T) string {
	t.Helper()
	path := os.Getenv("K6")
	if path == "" {
		path = filepath.Join("..", "..", "..", "bin", "k6")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no k6: set K6 to a k6 1.8 or newer, or build bin/k6: %v", err)
	}
	return path
}

// run runs the scenario and fails the test when it does not end in time or prints no result.
func run(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	out := start(t, env, args...)
	_, line, found := strings.Cut(out.stdout, "LIVESTASH_RESULT ")
	if !found {
		t.Fatalf("no result line; exit code %d\n%s\n%s", out.exit, out.stdout, out.stderr)
	}
	if err := json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &out); err != nil {
		t.Fatalf("result line: %v\n%s", err, line)
	}
	if out.took > duration+slack {
		t.Errorf("the run took %s, more than %s", out.took, duration+slack)
	}
	if out.Passed != (out.exit == 0) {
		t.Errorf("passed is %v and the exit code %d", out.Passed, out.exit)
	}
	return out
}

func start(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration+2*slack)
	defer cancel()
	argv := append([]string{"run", "--quiet", "--no-usage-report", "--address", ""}, args...)
	cmd := exec.CommandContext(ctx, k6(t), append(argv, "../scenarios/reconnect.js")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USERS=20", "USERS_PER_VU=10",
		"DURATION=" + duration.String(), "RAMP=500ms", "PAUSE=100ms", "TIMEOUT=1s"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting k6: %v", err)
	}
	if after, err := time.ParseDuration(env[stopAfter]); err == nil {
		time.AfterFunc(after, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	}
	err := cmd.Wait()
	out := outcome{took: time.Since(began), stdout: stdout.String(), stderr: stderr.String()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		out.exit = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("running k6: %v", err)
	}
	if ctx.Err() != nil {
		t.Fatalf("k6 did not end within %s\n%s\n%s", duration+2*slack, out.stdout, out.stderr)
	}
	return out
}

// serve starts a server with a fault on two hosts, so that a cookie of one is not sent to the other by a cookie jar.
func serve(t *testing.T, fault faultserver.Fault) (*faultserver.Server, []string) {
	t.Helper()
	s := faultserver.New(fault)
	t.Cleanup(func() { _ = s.Close() })
	var bases []string
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		base, err := s.Listen(host)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base)
	}
	return s, bases
}

func TestHealthyServer(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	file := filepath.Join(t.TempDir(), "result.json")
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "SUMMARY": file})
	if !out.Passed || out.Error != 0 || out.WrongCount != 0 || out.NotFound != 0 || out.Unfinished != 0 {
		t.Errorf("a healthy server did not pass: %+v\n%s", out, out.stderr)
	}
	if out.FirstRender.Count != 20 || out.Recovered.Yes < 100 || out.Recovered.No != 0 {
		t.Errorf("first renders %d, want 20; recovered %+v, want over 100", out.FirstRender.Count, out.Recovered)
	}
	if n := s.Refused.Load(); n != 0 {
		t.Errorf("%d joins with the wrong cookie or token: users are mixed up", n)
	}
	if n := s.Stayed.Load(); n != 0 {
		t.Errorf("%d reconnects went to the server that the user came from", n)
	}
	if n := s.Open.Load(); n != 0 {
		t.Errorf("%d WebSockets left open", n)
	}
	a, b := out.Connections[bases[0]], out.Connections[bases[1]]
	if a+b != 20+out.Recovered.Yes || a-b > 20 || b-a > 20 {
		t.Errorf("connections %v are not round robin over %d", out.Connections, 20+out.Recovered.Yes)
	}
	if out.took > duration+3*time.Second {
		t.Errorf("took %s: with a healthy server the run ends at once after %s", out.took, duration)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(out.stdout, "LIVESTASH_RESULT "+strings.TrimSpace(string(text))) {
		t.Errorf("SUMMARY file (%v) differs from the result line: %s", err, text)
	}
	for _, want := range []string{"p50", "p95", "p99", "first render", "recovered     100.00 %", "PASSED"} {
		if !strings.Contains(out.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, out.stdout)
		}
	}
}

// TestSegments runs one test as two runners do, each with its half of the VUs: all users, each once.
func TestSegments(t *testing.T) {
	t.Parallel()
	_, bases := serve(t, faultserver.None)
	env := map[string]string{"BASE_URLS": strings.Join(bases, ","), "USERS": "25"}
	users := 0
	for _, segment := range []string{"0:1/2", "1/2:1"} {
		out := run(t, env, "--execution-segment="+segment, "--execution-segment-sequence=0,1/2,1")
		users += out.FirstRender.Count
	}
	if users != 25 {
		t.Errorf("two runners had %d users together, want 25", users)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault faultserver.Fault
		env   map[string]string
		exit  int
		check func(outcome) error
	}{
		"every stash lost": {faultserver.Forget, nil, thresholdsFailed, func(o outcome) error {
			if o.Recovered.Yes != 0 || o.Recovered.No == 0 || o.NotFound != o.Recovered.No || o.Error != 0 {
				return errors.New("want not_found for each reconnect, no error and nothing recovered")
			}
			return wantFailed(o, "recovered")
		}},
		"every stash lost, and allowed": {faultserver.Forget, map[string]string{"MIN_RECOVERED": "0"}, 0, nil},
		"stale counters": {faultserver.StaleCount, nil, thresholdsFailed, func(o outcome) error {
			if o.WrongCount == 0 || o.WrongCount != o.Recovered.Yes {
				return errors.New("want each recovery to have a wrong count")
			}
			return wantFailed(o, "wrong_count")
		}},
		"nothing stashed where none is wanted": {faultserver.Forget, map[string]string{"ADAPTER": "none"}, 0, nil},
		"something stashed where none is wanted": {faultserver.None, map[string]string{"ADAPTER": "none"}, thresholdsFailed,
			func(o outcome) error { return wantFailed(o, "recovered") }},
		"socket accepted and silent": {faultserver.SilentSocket, nil, thresholdsFailed, wantErrors("timeout", "cycles")},
		"upgrade never answered":     {faultserver.SilentUpgrade, nil, thresholdsFailed, wantErrors("timeout", "cycles")},
		"page never answered":        {faultserver.SilentPage, nil, thresholdsFailed, wantErrors("timeout", "cycles")},
		"long waits are cut": {faultserver.SilentPage, map[string]string{"TIMEOUT": "5m"}, thresholdsFailed, func(o outcome) error {
			if o.Unfinished != 20 {
				return errors.New("want 20 unfinished waits")
			}
			return wantFailed(o, "cycles")
		}},
		"frozen after a stash": {faultserver.SilentAfterStash, nil, 0, nil},
		"every reconnect stale": {faultserver.Stale, nil, thresholdsFailed, func(o outcome) error {
			if o.Recovered.Yes != 0 || o.Recovered.No == 0 || o.FirstRender.Count <= 20 {
				return errors.New("want users who lost their state and loaded the page anew")
			}
			return wantErrors("stale", "recovered")(o)
		}},
		"sockets closed by the server": {faultserver.Restart, nil, 0, func(o outcome) error {
			if o.Errors["closed"] == 0 || o.Recovered.Yes == 0 || o.Recovered.No != 0 {
				return errors.New("want closed sockets, and users who come back to their state")
			}
			return nil
		}},
		"process crashes":  {faultserver.Crash, nil, thresholdsFailed, wantErrors("crashed", "failed")},
		"no JSON":          {faultserver.Garbage, nil, thresholdsFailed, wantErrors("bad_message", "failed")},
		"no LiveView":      {faultserver.NoLiveView, nil, thresholdsFailed, wantErrors("bad_page", "failed")},
		"page unavailable": {faultserver.Unavailable, nil, thresholdsFailed, wantErrors("http", "failed")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, bases := serve(t, test.fault)
			env := map[string]string{"BASE_URLS": strings.Join(bases, ",")}
			for k, v := range test.env {
				env[k] = v
			}
			out := run(t, env)
			if out.exit != test.exit {
				t.Errorf("exit code %d, want %d", out.exit, test.exit)
			}
			if test.check != nil {
				if err := test.check(out); err != nil {
					t.Error(err)
				}
			}
			if n := s.Refused.Load(); n != 0 {
				t.Errorf("%d joins with the wrong cookie or token", n)
			}
			if t.Failed() {
				t.Logf("%s\n%s", out.stdout, out.stderr)
			}
		})
	}
}

func TestServerDown(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // a port that refuses
	out := run(t, map[string]string{"BASE_URL": "http://" + l.Addr().String()})
	if err := wantErrors("http", "cycles")(out); err != nil || out.exit != thresholdsFailed {
		t.Errorf("%v; exit code %d\n%s\n%s", err, out.exit, out.stdout, out.stderr)
	}
}

// TestServerGoesDown ends the server in the middle: users who never come back are not recovered.
func TestServerGoesDown(t *testing.T) {
	t.Parallel()
	s := faultserver.New(faultserver.None)
	base, err := s.Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(duration/2, func() { _ = s.Close() })
	out := run(t, map[string]string{"BASE_URL": base})
	if out.Recovered.No != 20 || out.Recovered.Yes == 0 || out.exit != thresholdsFailed {
		t.Errorf("recovered %+v, exit code %d; want 20 users not recovered and %d\n%s\n%s", out.Recovered, out.exit, thresholdsFailed, out.stdout, out.stderr)
	}
}

// TestStopped ends k6 in the middle: what was measured is shown, and the run has not passed.
func TestStopped(t *testing.T) {
	t.Parallel()
	_, bases := serve(t, faultserver.None)
	out := run(t, map[string]string{"BASE_URL": bases[0], "DURATION": "60s", stopAfter: "3s"})
	if out.exit != stopped || out.Passed || out.Recovered.Yes == 0 {
		t.Errorf("exit code %d, passed %v, recovered %+v; want %d, false and some", out.exit, out.Passed, out.Recovered, stopped)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	base := map[string]string{"BASE_URL": "http://127.0.0.1:1"}
	tests := map[string]struct {
		env  map[string]string
		want string
	}{
		"no server":        {map[string]string{"BASE_URL": ""}, "BASE_URLS is missing"},
		"both":             {map[string]string{"BASE_URLS": "http://127.0.0.1:2"}, "both set"},
		"path in the base": {map[string]string{"BASE_URL": "http://127.0.0.1:1/stash"}, "no path"},
		"adapter":          {map[string]string{"ADAPTER": "ETS2"}, "ADAPTER=ETS2: must be one of none, ets"},
		"users":            {map[string]string{"USERS": "0"}, "USERS=0: must be a whole number, at least 1"},
		"duration":         {map[string]string{"DURATION": "soon"}, "DURATION=soon: must be a duration"},
		"ramp":             {map[string]string{"RAMP": "60s"}, "RAMP must be shorter than DURATION"},
		"share":            {map[string]string{"MIN_RECOVERED": "99"}, "MIN_RECOVERED=99: must be a share"},
		"stash path":       {map[string]string{"STASH_PATH": "stash"}, "STASH_PATH=stash: must be a path"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{}
			for _, m := range []map[string]string{base, test.env} {
				for k, v := range m {
					env[k] = v
				}
			}
			out := start(t, env)
			if out.exit == 0 || !strings.Contains(out.stderr, test.want) {
				t.Errorf("exit code %d; want a sentence with %q in\n%s", out.exit, test.want, out.stderr)
			}
		})
	}
}

func wantErrors(reason, threshold string) func(outcome) error {
	return func(o outcome) error {
		if o.Errors[reason] == 0 {
			return fmt.Errorf("want errors with reason %s, got %v", reason, o.Errors)
		}
		return wantFailed(o, threshold)
	}
}

func wantFailed(o outcome, metric string) error {
	for _, failed := range o.Failed {
		if strings.HasPrefix(failed, metric+" ") {
			return nil
		}
	}
	return fmt.Errorf("want threshold of %s to fail, got %v", metric, o.Failed)
}
