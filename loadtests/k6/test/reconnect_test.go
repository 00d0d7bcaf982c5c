// Package test runs the k6 scenarios against servers that behave, and servers that do not.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

const (
	length = 5 * time.Second
	// what DURATION may be exceeded by, whatever the server does: 15 s, twice that on a busy machine
	slack = 30 * time.Second
	// TIMEOUT of tests that want none: a busy machine may be slow
	patience = "10s"
	// exit code of k6 for failed thresholds
	thresholdsFailed = 99
	// exit code of k6 when the script ends the test
	aborted = 108
	// exit code of k6 for a script that cannot be loaded
	scriptFailed = 107
	// exit code of k6 for SIGTERM
	stopped = 105
)

type outcome struct {
	Runner    int      `json:"runner"`
	Runners   int      `json:"runners"`
	Planned   int      `json:"planned"`
	Connected int      `json:"connected"`
	Passed    bool     `json:"passed"`
	Failed    []string `json:"failed_thresholds"`
	Problem   string   `json:"problem"`
	Cycles    int      `json:"cycles"`
	Recovered struct {
		Yes int `json:"yes"`
		No  int `json:"no"`
	} `json:"recovered"`
	Late struct {
		Yes int `json:"yes"`
		No  int `json:"no"`
	} `json:"late"`
	Expired struct {
		Yes int `json:"yes"`
		No  int `json:"no"`
	} `json:"expired"`
	Dropped     int       `json:"dropped"`
	Cut         int       `json:"cut"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	ClientDelay struct {
		Count int     `json:"count"`
		P99   float64 `json:"p99"`
	} `json:"client_delay"`
	NotFound      int                 `json:"not_found"`
	WrongCount    int                 `json:"wrong_count"`
	ConnectFailed int                 `json:"connect_failed"`
	Error         int                 `json:"error"`
	Errors        map[string]int      `json:"errors"`
	Unfinished    int                 `json:"unfinished"`
	Connections   map[string]int      `json:"connections"`
	Durations     map[string]duration `json:"durations"`

	exit   int
	took   time.Duration
	stdout string
	stderr string
}

// duration is an exponential histogram of a report.
type duration struct {
	Count  int     `json:"count"`
	Sum    float64 `json:"sum"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	Scale  int     `json:"scale"`
	Offset int     `json:"offset"`
	Counts []int   `json:"counts"`
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

// openFiles is not an option of the scenarios but how many files k6 may open; by default as many as this test.
const openFiles = "TEST_OPEN_FILES"

// scenario is not an option of the scenarios but which of them to run; reconnect by default.
const scenario = "TEST_SCENARIO"

// run runs a scenario and fails the test when it does not end in time or prints no result.
func run(t *testing.T, env map[string]string, args ...string) outcome {
	t.Helper()
	return runAnd(t, nil, env, args...)
}

// runAnd calls disturb, if there is one, with the k6 that has been started.
func runAnd(t *testing.T, disturb func(*os.Process), env map[string]string, args ...string) outcome {
	t.Helper()
	out := start(t, disturb, env, args...)
	_, line, found := strings.Cut(out.stdout, "LIVESTASH_RESULT ")
	if !found {
		t.Fatalf("no result line; exit code %d\n%s\n%s", out.exit, out.stdout, out.stderr)
	}
	if err := json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), &out); err != nil {
		t.Fatalf("result line: %v\n%s", err, line)
	}
	if out.took > length+slack {
		t.Errorf("the run took %s, more than %s", out.took, length+slack)
	}
	if out.Passed != (out.exit == 0) {
		t.Errorf("passed is %v and the exit code %d", out.Passed, out.exit)
	}
	return out
}

func start(t *testing.T, disturb func(*os.Process), env map[string]string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length+2*slack)
	defer cancel()
	argv := append([]string{"run", "--quiet", "--no-usage-report", "--address", ""}, args...)
	script := "reconnect"
	if env[scenario] != "" {
		script = env[scenario]
	}
	argv = append(argv, "../scenarios/"+script+".js")
	cmd := exec.CommandContext(ctx, k6(t), argv...)
	if limit := env[openFiles]; limit != "" {
		cmd = exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -n "$0" && exec "$@"`, limit, k6(t)}, argv...)...)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USERS=20", "USERS_PER_VU=10",
		// the machine that runs these tests may be busy, and k6 late
		"DURATION=" + length.String(), "RAMP=500ms", "PAUSE=100ms", "TIMEOUT=1s", "MAX_CLIENT_DELAY=1m"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting k6: %v", err)
	}
	if disturb != nil {
		disturb(cmd.Process)
	}
	err := cmd.Wait()
	out := outcome{took: time.Since(began), stdout: stdout.String(), stderr: stderr.String()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		out.exit = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("running k6: %v", err)
	}
	if ctx.Err() != nil {
		t.Fatalf("k6 did not end within %s\n%s\n%s", length+2*slack, out.stdout, out.stderr)
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
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "SUMMARY": file, "TIMEOUT": patience})
	if !out.Passed || out.Error != 0 || out.WrongCount != 0 || out.NotFound != 0 || out.Unfinished != 0 {
		t.Errorf("a healthy server did not pass: %+v\n%s", out, out.stderr)
	}
	if out.Dropped != 0 || out.ClientDelay.Count < out.Cycles || out.EndedAt.Sub(out.StartedAt) < length {
		t.Errorf("%d sockets dropped, %d delays of the client, from %s to %s", out.Dropped, out.ClientDelay.Count, out.StartedAt, out.EndedAt)
	}
	if out.Planned != 20 || out.Connected != 20 || out.ConnectFailed != 0 {
		t.Errorf("planned %d, connected %d, failed to connect %d; want 20, 20, 0", out.Planned, out.Connected, out.ConnectFailed)
	}
	checkDurations(t, out, map[string]int{
		"first_render": 20, "join": 20, "stash": out.Cycles, "reconnect": out.Recovered.Yes, "rejoin": out.Recovered.Yes, "late_rejoin": 0,
	})
	if out.Recovered.Yes < 100 || out.Recovered.No != 0 {
		t.Errorf("recovered %+v, want over 100", out.Recovered)
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
	// Users who do not end are cut 12 s after it.
	if out.took > length+9*time.Second {
		t.Errorf("took %s: with a healthy server the run ends at once after %s", out.took, length)
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

// above returns how many values are over x ms, as exactly as the buckets are narrow.
func (d duration) above(x float64) int {
	sum, bucket := 0, d.Offset
	for _, n := range d.Counts {
		if n < 0 {
			bucket -= n
			continue
		}
		if math.Exp2(float64(bucket)/math.Exp2(float64(d.Scale))) >= x {
			sum += n
		}
		bucket++
	}
	return sum
}

// checkDurations looks whether each histogram holds as many values as were counted otherwise, between its ends.
func checkDurations(t *testing.T, out outcome, want map[string]int) {
	t.Helper()
	for name, count := range want {
		d, found := out.Durations[name]
		sum := 0
		for _, n := range d.Counts {
			sum += max(n, 0)
		}
		if !found || d.Count != count || sum != count {
			t.Errorf("%s: count %d, counted in buckets %d; want %d", name, d.Count, sum, count)
		}
		if count > 0 && (d.Min <= 0 || d.P50 < d.Min || d.Max < d.P50 || d.Sum < d.Max) {
			t.Errorf("%s: min %v, p50 %v, max %v, sum %v", name, d.Min, d.P50, d.Max, d.Sum)
		}
	}
}

// TestSegments runs one test on several runners, as k6-operator starts them and as the pods of an indexed Job do: all users, each
// once, and no runner with two more than another.
func TestSegments(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		users, perVU string
		runners      int
		indexed      bool
	}{
		"two segments":                    {"25", "10", 2, false},
		"three segments of a few VUs":     {"10", "1", 3, false},
		"four segments, one VU each":      {"7", "100", 4, false},
		"an indexed Job of two":           {"25", "10", 2, true},
		"an indexed Job of three":         {"11", "2", 3, true},
		"an indexed Job, one user each":   {"2", "100", 2, true},
		"five segments, as many as users": {"5", "1", 5, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, bases := serve(t, faultserver.None)
			var planned []int
			for i := range test.runners {
				env := map[string]string{"BASE_URLS": strings.Join(bases, ","), "USERS": test.users, "USERS_PER_VU": test.perVU,
					"RUNNERS": strconv.Itoa(test.runners), "DURATION": "1500ms"}
				var args []string
				if test.indexed {
					env["JOB_COMPLETION_INDEX"] = strconv.Itoa(i)
				} else {
					args = segment(i, test.runners)
				}
				out := run(t, env, args...)
				if out.Runner != i || out.Runners != test.runners || out.Connected != out.Planned {
					t.Errorf("says that it is %d of %d, with %d of %d users; want %d of %d", out.Runner, out.Runners, out.Connected, out.Planned, i, test.runners)
				}
				planned = append(planned, out.Planned)
			}
			sum := 0
			for _, n := range planned {
				sum += n
			}
			if strconv.Itoa(sum) != test.users || slices.Max(planned)-slices.Min(planned) > 1 {
				t.Errorf("the runners had %v users, want %s together and as many each", planned, test.users)
			}
			if n := s.Users(); strconv.Itoa(n) != test.users {
				t.Errorf("the server saw %d users, want %s", n, test.users)
			}
		})
	}
}

// segment returns the arguments that k6-operator gives to one of several runners.
func segment(i, of int) []string {
	bounds := make([]string, of+1)
	for k := range bounds {
		bounds[k] = big.NewRat(int64(k), int64(of)).RatString()
	}
	return []string{"--execution-segment=" + bounds[i] + ":" + bounds[i+1], "--execution-segment-sequence=" + strings.Join(bounds, ",")}
}

// TestInspect asks for the number of VUs as k6-operator's initializer does, with the environment of the image.
func TestInspect(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"reconnect", "visits"} {
		cmd := exec.CommandContext(t.Context(), k6(t), "inspect", "--execution-requirements", "../scenarios/"+name+".js")
		cmd.Env = []string{"K6_INCLUDE_SYSTEM_ENV_VARS=true", "BASE_URL=http://a", "USERS=25000", "RUNNERS=4", "USERS_PER_VU=1000"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var needs struct {
			MaxVUs int `json:"maxVUs"`
		}
		if err := json.Unmarshal(out, &needs); err != nil || needs.MaxVUs != 28 {
			t.Errorf("%s needs %d VUs (%v), want 28: 25, rounded up for 4 runners", name, needs.MaxVUs, err)
		}
	}
}

// TestRunnersWrong starts one of two runners that was told to be alone, and one alone that was told to be one of two: neither must run
// half of the test and call it the whole.
func TestRunnersWrong(t *testing.T) {
	t.Parallel()
	_, bases := serve(t, faultserver.None)
	env := map[string]string{"BASE_URLS": strings.Join(bases, ",")}
	alone := run(t, env, segment(1, 2)...)
	env["RUNNERS"] = "2"
	lost := run(t, env)
	for want, out := range map[string]outcome{"k6 runs one of 2 parts of this test, and RUNNERS=1: set RUNNERS to 2": alone,
		"RUNNERS=2, and nothing says which of them this is": lost} {
		if out.exit != aborted || !strings.Contains(out.Problem, want) || out.Planned != 0 {
			t.Errorf("exit code %d, %d users, problem %q; want %d, 0, %q", out.exit, out.Planned, out.Problem, aborted, want)
		}
	}
}

// TestVisits runs visitors who come back in time or late, to a server that forgets late ones.
func TestVisits(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	s.TTL = 4 * time.Second
	out := run(t, map[string]string{scenario: "visits", "BASE_URLS": strings.Join(bases, ","), "TTL": "4s", "USERS": "40", "USERS_PER_VU": "20",
		"PAUSE": "50ms", "DURATION": "14s", "TIMEOUT": patience, "IN_TIME": "0.5"})
	if !out.Passed || out.Error != 0 || out.WrongCount != 0 || out.NotFound != 0 {
		t.Errorf("visits did not pass: %+v\n%s", out, out.stderr)
	}
	if out.Recovered.Yes == 0 || out.Recovered.No != 0 || out.Late.Yes != 0 || out.Late.No == 0 {
		t.Errorf("in time %+v, late %+v: want all of those in time recovered and none of the late ones", out.Recovered, out.Late)
	}
	if out.Connected != 40 || s.Users() <= 40 {
		t.Errorf("%d of 40 users, %d visitors: want new visitors to take the places of others", out.Connected, s.Users())
	}
	checkDurations(t, out, map[string]int{"stash": out.Cycles, "rejoin": out.Recovered.Yes, "late_rejoin": out.Late.No})
	if n := s.Open.Load(); n != 0 {
		t.Errorf("%d WebSockets left open", n)
	}
}

// TestRampDown has users who leave over the second half of a test, those who came last first.
func TestRampDown(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	type moment struct {
		at   time.Time
		open int64
	}
	var seen []moment
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			seen = append(seen, moment{time.Now(), s.Open.Load()})
			time.Sleep(50 * time.Millisecond)
		}
	})
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "USERS": "40", "PAUSE": "1s", "DURATION": "8s", "RAMP_DOWN": "4s", "TIMEOUT": patience})
	stop()
	watching.Wait()
	if !out.Passed || out.Connected != 40 || out.EndedAt.Sub(out.StartedAt) < 8*time.Second {
		t.Errorf("%d users, from %s to %s\n%s", out.Connected, out.StartedAt, out.EndedAt, out.stdout)
	}
	var most, late int64
	for _, m := range seen {
		most = max(most, m.open)
		if left := out.EndedAt.Sub(m.at); left > 0 && left < time.Second {
			late = max(late, m.open)
		}
	}
	// A second before the end a quarter of them is left.
	if most < 36 || late == 0 || late > 15 {
		t.Errorf("at most %d users at once, and %d in the last second; want 40 and 10", most, late)
	}
}

// TestDroppedSockets has a server that ends half of the sockets while their users look at the page: that is no matter of course, and
// a visitor comes back as a browser does, to the stash.
func TestDroppedSockets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"visits", "reconnect"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, bases := serve(t, faultserver.DropIdle)
			out := run(t, map[string]string{scenario: name, "BASE_URLS": strings.Join(bases, ","), "TTL": "2s", "DURATION": "7s", "TIMEOUT": patience})
			if err := wantErrors("closed", "failed")(out); err != nil || out.exit != thresholdsFailed {
				t.Errorf("%v; exit code %d", err, out.exit)
			}
			// A socket that goes while a step waits for its answer is that step's failure, and the last users may run out of time.
			few := 2 + out.Dropped/50
			if inSteps := out.Errors["closed"] - out.Dropped; out.Dropped == 0 || inSteps < 0 || inSteps > few || out.Recovered.Yes < out.Dropped/2 || out.Recovered.No > few {
				t.Errorf("%d dropped, errors %v, recovered %+v; want each dropped socket counted, and its user back at the stash", out.Dropped, out.Errors, out.Recovered)
			}
			if t.Failed() {
				t.Logf("%s\n%s", out.stdout, out.stderr)
			}
		})
	}
}

// TestEvents has the same server, which does so during an event: nobody has failed, and the times of those who came back then are apart
// from the others.
func TestEvents(t *testing.T) {
	t.Parallel()
	_, bases := serve(t, faultserver.DropIdle)
	env := map[string]string{scenario: "reconnect", "BASE_URLS": strings.Join(bases, ","), "TTL": "2s", "DURATION": "7s", "TIMEOUT": patience, "EVENTS": "0s+1h"}
	out := run(t, env)
	during, outside := out.Durations["reconnect_during"].Count, out.Durations["reconnect_outside"].Count
	if out.exit != 0 || out.Cut == 0 || out.Dropped != 0 || during == 0 || during != out.Durations["reconnect"].Count || outside != 0 {
		t.Errorf("exit code %d, %d cut, %d dropped, %d returns during the event and %d outside of it\n%s\n%s", out.exit, out.Cut, out.Dropped, during, outside, out.stdout, out.stderr)
	}
	// The event is over when the first socket is dropped.
	env["EVENTS"] = "0s+1ms"
	out = run(t, env)
	during, outside = out.Durations["reconnect_during"].Count, out.Durations["reconnect_outside"].Count
	if err := wantErrors("closed", "failed")(out); err != nil || out.Cut != 0 || out.Dropped == 0 || during != 0 || outside == 0 {
		t.Errorf("%v, %d cut, %d dropped, %d returns during the event and %d outside of it\n%s\n%s", err, out.Cut, out.Dropped, during, outside, out.stdout, out.stderr)
	}
}

// TestFrozenServer has a server that answers nothing for two of five seconds: everybody who wanted something meanwhile has waited, not
// only those whose turn it was when it froze.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	s.AfterBegun(1500*time.Millisecond, func() { s.Freeze(2 * time.Second) })
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "TIMEOUT": patience})
	due, asked := out.Durations["stash"], out.Durations["stash_service"]
	// Each user can have one message under way, and wants to send five in the first of the two seconds.
	if slow, most := due.above(1000), asked.above(1000); due.P95 < 1000 || asked.Count != due.Count || slow < 40 || most > slow/2 {
		t.Errorf("stash: p95 %.0f ms, %d of %d over a second; from the message %d of %d", due.P95, slow, due.Count, most, asked.Count)
	}
	if waited := max(asked.Max, out.Durations["reconnect_service"].Max); waited < 1500 {
		t.Errorf("nobody waited for longer than %.0f ms", waited)
	}
	// Who was held up catches up, as far as the client and the server have the time: up to ten messages in a second.
	if out.Cycles < 20*5*1000/200*2/3 && out.ClientDelay.P99 < 100 && asked.P50 < 10 {
		t.Errorf("%d cycles, half of the answers within %.0f ms: the schedule was not kept up with", out.Cycles, asked.P50)
	}
	// It is the server that was late.
	if out.ClientDelay.Count == 0 || out.ClientDelay.P99 > due.P95 {
		t.Errorf("the client says that it was late by %.0f ms, %d times", out.ClientDelay.P99, out.ClientDelay.Count)
	}
}

// TestStarvedClient stops k6 itself for two of five seconds: what it measured then is its own affair.
func TestStarvedClient(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	freeze := func(k6 *os.Process) {
		s.AfterBegun(1500*time.Millisecond, func() {
			_ = k6.Signal(syscall.SIGSTOP)
			time.Sleep(2 * time.Second)
			_ = k6.Signal(syscall.SIGCONT)
		})
	}
	// Most users are to wait for their turn then, not for an answer, however slow the machine is.
	out := runAnd(t, freeze, map[string]string{"BASE_URLS": strings.Join(bases, ","), "TIMEOUT": patience, "PAUSE": "500ms", "MAX_CLIENT_DELAY": "1s"})
	if err := wantFailed(out, "client_delay"); err != nil || out.exit != thresholdsFailed || out.ClientDelay.P99 < 1000 {
		t.Errorf("%v; exit code %d, late by %.0f ms (p99)\n%s", err, out.exit, out.ClientDelay.P99, out.stdout)
	}
	if ran := out.EndedAt.Sub(out.StartedAt); ran < length || ran > length+slack || time.Since(out.EndedAt) > time.Minute {
		t.Errorf("from %s to %s", out.StartedAt, out.EndedAt)
	}
}

// TestNeverExpires has a server that keeps stashes for ever.
func TestNeverExpires(t *testing.T) {
	t.Parallel()
	for _, adapter := range []string{"ets", "redis"} {
		t.Run(adapter, func(t *testing.T) {
			t.Parallel()
			_, bases := serve(t, faultserver.None)
			out := run(t, map[string]string{scenario: "visits", "BASE_URLS": strings.Join(bases, ","), "TTL": "2s", "CLEANER": "1s", "PAUSE": "50ms",
				"DURATION": "9s", "TIMEOUT": patience, "ADAPTER": adapter, "IN_TIME": "0.5"})
			if err := wantFailed(out, "expired_recovered"); err != nil || out.exit != thresholdsFailed || out.Expired.Yes == 0 || out.Expired.No != 0 {
				t.Errorf("%v; exit code %d, found when nothing should be there %+v, late %+v\n%s", err, out.exit, out.Expired, out.Late, out.stdout)
			}
		})
	}
}

// TestDelayedPastTheTTL has a server that is frozen for longer than stashes live. Who wanted to be back in time and could not be comes
// back late, and has lost nothing that was to be there.
func TestDelayedPastTheTTL(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	s.TTL = 2 * time.Second
	s.AfterBegun(1500*time.Millisecond, func() { s.Freeze(4 * time.Second) })
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "TTL": "2s", "TIMEOUT": patience, "DURATION": "8s"})
	if out.exit != 0 || out.Recovered.No != 0 || out.NotFound != 0 || out.Late.No == 0 || out.Recovered.Yes == 0 {
		t.Errorf("exit code %d, in time %+v, not found %d, late %+v; want nobody lost, and some late\n%s", out.exit, out.Recovered, out.NotFound, out.Late, out.stdout)
	}
	// How long they waited is measured, or the slowest returns would be missing.
	if back := out.Durations["reconnect"]; back.Count <= out.Recovered.Yes || back.Max < 2000 {
		t.Errorf("%d returns of %d in time and %d late were timed, the slowest took %.0f ms", back.Count, out.Recovered.Yes, out.Late.No, back.Max)
	}
}

// TestInTimeByTheSchedule has visitors whose pauses take most of the TTL: those who are to be back in time can be.
func TestInTimeByTheSchedule(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	s.TTL = 4 * time.Second
	out := run(t, map[string]string{scenario: "visits", "BASE_URLS": strings.Join(bases, ","), "TTL": "4s", "PAUSE": "2s", "IN_TIME": "1", "USERS": "300",
		"USERS_PER_VU": "100", "RAMP": "3s", "DURATION": "16s", "TIMEOUT": patience})
	if out.exit != 0 || out.Recovered.No != 0 || out.Recovered.Yes < 200 {
		t.Errorf("exit code %d, in time %+v\n%s", out.exit, out.Recovered, out.stdout)
	}
	// A client that is late itself brings its users back late.
	if late := out.Late.Yes + out.Late.No; late > out.Recovered.Yes/20 && out.ClientDelay.P99 < 100 {
		t.Errorf("%d were late, %d in time\n%s", late, out.Recovered.Yes, out.stdout)
	}
}

// TestNothingToTest points the scenario at what is no LiveView: it says so in one sentence, and runs nothing.
func TestNothingToTest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault faultserver.Fault
		want  string
	}{
		"not found":      {faultserver.NotFound, "/stash/ets: status 404"},
		"forbidden":      {faultserver.Forbidden, "/stash/ets: status 403"},
		"unavailable":    {faultserver.Unavailable, "/stash/ets: status 503"},
		"never answered": {faultserver.SilentPage, "/stash/ets: no answer after 1000 ms"},
		"no LiveView":    {faultserver.NoLiveView, "0 elements with data-phx-main"},
		"refused":        {refusing, "connection refused"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := run(t, map[string]string{"BASE_URLS": strings.Join(basesOf(t, test.fault), ",")})
			if out.exit != aborted || out.Planned != 0 || out.Passed {
				t.Errorf("exit code %d, %d users, passed %v; want %d, 0, false", out.exit, out.Planned, out.Passed, aborted)
			}
			if !strings.Contains(out.Problem, "There is nothing to test: ") || !strings.Contains(out.Problem, test.want) || strings.Contains(out.Problem, "\n") {
				t.Errorf("problem %q, want one sentence with %q", out.Problem, test.want)
			}
			if !strings.Contains(out.stdout, "NOT RUN: "+out.Problem) {
				t.Errorf("the table does not say it:\n%s", out.stdout)
			}
		})
	}
}

// refusing stands for no server at all.
const refusing faultserver.Fault = "refusing"

func basesOf(t *testing.T, fault faultserver.Fault) []string {
	t.Helper()
	if fault == refusing {
		return []string{"http://127.0.0.1:1"} // a port that nobody is given
	}
	_, bases := serve(t, fault)
	return bases
}

// TestOneServerFails gives the users a good server and one that fails: each failure has a reason of its own, and everybody gets on
// with the good one.
func TestOneServerFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  faultserver.Fault
		reason string
	}{
		"refused":            {refusing, "connect"},
		"page 404":           {faultserver.NotFound, "http_404"},
		"page 403":           {faultserver.Forbidden, "http_403"},
		"page 503":           {faultserver.Unavailable, "http_503"},
		"page no LiveView":   {faultserver.NoLiveView, "bad_page"},
		"page never":         {faultserver.SilentPage, "timeout"},
		"handshake 403":      {faultserver.ForbiddenSocket, "handshake"},
		"handshake never":    {faultserver.SilentUpgrade, "timeout"},
		"join never":         {faultserver.SilentSocket, "timeout"},
		"join answered junk": {faultserver.Garbage, "bad_message"},
		"crash":              {faultserver.Crash, "crashed"},
		"closed mid-way":     {faultserver.CloseMidway, "closed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, good := serve(t, faultserver.None)
			env := map[string]string{"BASE_URLS": good[0] + "," + basesOf(t, test.fault)[0]}
			if test.reason != "timeout" {
				env["TIMEOUT"] = patience
			}
			out := run(t, env)
			if out.Errors[test.reason] == 0 || out.Errors[test.reason] != out.Error {
				t.Errorf("errors %v, want %s and nothing else", out.Errors, test.reason)
			}
			if out.exit != thresholdsFailed || out.Connected != 20 || out.Cycles < 20 {
				t.Errorf("exit code %d, %d users, %d cycles; want %d, 20, and 20 at least", out.exit, out.Connected, out.Cycles, thresholdsFailed)
			}
			if t.Failed() {
				t.Logf("%s\n%s", out.stdout, out.stderr)
			}
		})
	}
}

// TestUsersAreApart has ten users in one VU, five of whom see a fault: the others must not notice.
func TestUsersAreApart(t *testing.T) {
	t.Parallel()
	const spare = 5
	for _, fault := range []faultserver.Fault{faultserver.Forget, faultserver.StaleCount, faultserver.SilentSocket, faultserver.SilentUpgrade,
		faultserver.Stale, faultserver.Restart, faultserver.Crash, faultserver.Garbage,
		faultserver.CloseMidway, faultserver.ForbiddenSocket} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			s, bases := serve(t, fault)
			s.Spare = spare
			out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "USERS": "10", "USERS_PER_VU": "10", "TIMEOUT": "2s"})
			stashes := s.Spared()
			// A cycle takes them about 200 ms, and a fault of somebody else 2 s.
			if len(stashes) != spare || slices.Min(stashes) < 8 {
				t.Errorf("users without a fault stashed %v times, want %d users with 8 or more each", stashes, spare)
			}
			if n := s.Disturbed.Load(); n != 0 {
				t.Errorf("%d times a user without a fault came back to nothing", n)
			}
			if out.Error+out.NotFound+out.WrongCount == 0 {
				t.Errorf("nobody saw the fault: %+v", out)
			}
			if t.Failed() {
				t.Logf("%s\n%s", out.stdout, out.stderr)
			}
		})
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
		"long waits are cut": {faultserver.SilentUpgrade, map[string]string{"TIMEOUT": "5m"}, thresholdsFailed, func(o outcome) error {
			if o.Unfinished != 20 {
				return errors.New("want 20 unfinished waits")
			}
			return wantFailed(o, "cycles")
		}},
		"frozen after a stash": {faultserver.SilentAfterStash, nil, 0, nil},
		"every reconnect stale": {faultserver.Stale, nil, thresholdsFailed, func(o outcome) error {
			if o.Recovered.Yes != 0 || o.Recovered.No == 0 || o.Durations["first_render"].Count <= 20 {
				return errors.New("want users who lost their state and loaded the page anew")
			}
			return wantErrors("stale", "recovered")(o)
		}},
		"sockets closed by the server": {faultserver.Restart, nil, thresholdsFailed, func(o outcome) error {
			if o.Errors["closed"] == 0 || o.Dropped == 0 || o.Recovered.Yes == 0 || o.Recovered.No != 0 {
				return errors.New("want closed sockets, and users who come back to their state")
			}
			return wantFailed(o, "failed")
		}},
		"sockets closed by the server, and allowed": {faultserver.Restart, map[string]string{"MAX_FAILED": "1"}, 0, nil},
		"process crashes": {faultserver.Crash, nil, thresholdsFailed, wantErrors("crashed", "failed")},
		"a stash too large for the socket's URL": {faultserver.BigStash, map[string]string{"ADAPTER": "browser_memory"}, thresholdsFailed, func(o outcome) error {
			if o.Recovered.Yes != 0 || o.Recovered.No != 20 {
				return errors.New("want nobody back: a browser could not connect either")
			}
			return wantErrors("handshake", "failed")(o)
		}},
		"no JSON":                    {faultserver.Garbage, nil, thresholdsFailed, wantErrors("bad_message", "failed")},
		"closed in the middle":       {faultserver.CloseMidway, nil, thresholdsFailed, wantErrors("closed", "failed")},
		"handshake answered with no": {faultserver.ForbiddenSocket, nil, thresholdsFailed, wantErrors("handshake", "failed")},
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

// TestExhausted gives k6 fewer file descriptors than users: that is told as what it is, and nothing that was measured counts.
func TestExhausted(t *testing.T) {
	t.Parallel()
	_, bases := serve(t, faultserver.None)
	out := run(t, map[string]string{"BASE_URLS": strings.Join(bases, ","), "USERS": "100", "USERS_PER_VU": "50", openFiles: "60", "MAX_FAILED": "1"})
	if err := wantErrors("exhausted", "error{reason:exhausted}")(out); err != nil || out.exit != thresholdsFailed {
		t.Errorf("%v; exit code %d\n%s\n%s", err, out.exit, out.stdout, out.stderr)
	}
}

// TestTags gives k6 tags as k6-operator does: they, the name of the test and the adapter are on what is measured.
func TestTags(t *testing.T) {
	t.Parallel()
	samples := 0
	for _, sample := range sampled(t, map[string]string{"TESTID": "run-7"}, "--tag", "instance_id=1") {
		if sample.Metric != "reconnect" {
			continue
		}
		samples++
		if tags := sample.Data.Tags; tags["testid"] != "run-7" || tags["instance_id"] != "1" || tags["adapter"] != "ets" {
			t.Fatalf("a tag is missing: %v", sample)
		}
	}
	if samples == 0 {
		t.Error("no sample of reconnect")
	}
}

// TestOwnTags runs the second of two processes that no flag tells apart: all that it measures says whose it is, also what k6 measures of itself.
func TestOwnTags(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, sample := range sampled(t, map[string]string{"TESTID": "run-7", "RUNNERS": "2", "RUNNER": "1"}) {
		found[sample.Metric] = true
		if tags := sample.Data.Tags; tags["testid"] != "run-7" || tags["runner"] != "1" || tags["adapter"] != "ets" || tags["scenario"] != "reconnect" {
			t.Fatalf("a tag is missing: %v", sample)
		}
	}
	for _, metric := range []string{"vus", "data_sent", "reconnect"} {
		if !found[metric] {
			t.Errorf("no sample of %s", metric)
		}
	}
}

type sample struct {
	Type, Metric string
	Data         struct{ Tags map[string]string }
}

// sampled are the samples of a short run.
func sampled(t *testing.T, env map[string]string, args ...string) []sample {
	t.Helper()
	_, bases := serve(t, faultserver.None)
	file := filepath.Join(t.TempDir(), "samples.json")
	env["BASE_URLS"], env["DURATION"] = strings.Join(bases, ","), "2s"
	run(t, env, append(args, "--out", "json="+file)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for line := range strings.Lines(string(text)) {
		var one sample
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if one.Type == "Point" {
			all = append(all, one)
		}
	}
	return all
}

// TestServerGoesDown ends the server in the middle: users who never come back are not recovered.
func TestServerGoesDown(t *testing.T) {
	t.Parallel()
	s := faultserver.New(faultserver.None)
	base, err := s.Listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	s.AfterBegun(length/2, func() { _ = s.Close() })
	out := run(t, map[string]string{"BASE_URL": base})
	if out.Recovered.No != 20 || out.Recovered.Yes == 0 || out.exit != thresholdsFailed {
		t.Errorf("recovered %+v, exit code %d; want 20 users not recovered and %d\n%s\n%s", out.Recovered, out.exit, thresholdsFailed, out.stdout, out.stderr)
	}
}

// TestStopped ends k6 in the middle: what was measured is shown, and the run has not passed.
func TestStopped(t *testing.T) {
	t.Parallel()
	s, bases := serve(t, faultserver.None)
	stop := func(k6 *os.Process) { s.AfterBegun(3*time.Second, func() { _ = k6.Signal(syscall.SIGTERM) }) }
	out := runAnd(t, stop, map[string]string{"BASE_URL": bases[0], "DURATION": "60s"})
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
		"ttl":              {map[string]string{"TTL": "0"}, "TTL=0: must be at least 1000 ms"},
		"users":            {map[string]string{"USERS": "0"}, "USERS=0: must be a whole number, at least 1"},
		"duration":         {map[string]string{"DURATION": "soon"}, "DURATION=soon: must be a duration"},
		"ramp":             {map[string]string{"RAMP": "60s"}, "RAMP must be shorter than DURATION"},
		"share":            {map[string]string{"MIN_RECOVERED": "99"}, "MIN_RECOVERED=99: must be a share"},
		"runners":          {map[string]string{"RUNNERS": "21"}, "RUNNERS=21 is more than USERS=20"},
		"descriptors":      {map[string]string{"USERS": "60000"}, "use 4 runners"},
		"client delay":     {map[string]string{"MAX_CLIENT_DELAY": "never"}, "MAX_CLIENT_DELAY=never: must be a duration"},
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
			out := start(t, nil, env)
			if out.exit != scriptFailed || !strings.Contains(out.stderr, test.want) {
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
