package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

// requestsOutcome is a report of the scenario Requests.
type requestsOutcome struct {
	outcome
	Requests int   `json:"requests"`
	Unsent   int   `json:"unsent"`
	Wrong    int   `json:"wrong"`
	Answered share `json:"failed"`
}

func ask(t *testing.T, bases []string, more map[string]string) requestsOutcome {
	t.Helper()
	env := map[string]string{"BASE_URLS": strings.Join(bases, ","), "CONNECTIONS": "4", "DURATION": "3s"}
	for name, value := range more {
		env[name] = value
	}
	var out requestsOutcome
	o := runScenario(t, "requests", env, &out)
	out.exit, out.took, out.stdout, out.stderr = o.exit, o.took, o.stdout, o.stderr
	if out.Passed != (out.exit == 0) {
		t.Errorf("passed is %v and the exit code %d", out.Passed, out.exit)
	}
	return out
}

// sums answers POST /api/sum after a pause, and counts.
type sums struct {
	pause time.Duration
	// lie is how much is added to every tenth answer
	lie   int
	asked atomic.Int64
	mu    sync.Mutex
	seen  map[string]bool
}

func (s *sums) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ A, B int }
	if r.Method != http.MethodPost || r.URL.Path != "/api/sum" || r.Header.Get("Content-Type") != "application/json" ||
		json.NewDecoder(r.Body).Decode(&body) != nil || min(body.A, body.B) < 1 || max(body.A, body.B) > 100 {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.seen[fmt.Sprintf("%d %d", body.A, body.B)] = true
	s.mu.Unlock()
	result := body.A + body.B
	if s.asked.Add(1)%10 == 0 {
		result += s.lie
	}
	time.Sleep(s.pause)
	_, _ = fmt.Fprintf(w, `{"result":%d}`, result)
}

func serveHTTP(t *testing.T, handler http.Handler) (string, *atomic.Int64) {
	t.Helper()
	s := httptest.NewUnstartedServer(faultserver.ForceSSL(handler))
	opened := &atomic.Int64{}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, opened
}

func TestRequestsClosed(t *testing.T) {
	t.Parallel()
	server := &sums{seen: map[string]bool{}}
	base, opened := serveHTTP(t, server)
	out := ask(t, []string{base}, map[string]string{"TIMEOUT": patience})
	if !out.Passed || out.Error != 0 || out.Wrong != 0 || out.Unsent != 0 || out.Answered != (share{No: out.Requests}) {
		t.Errorf("a server that works did not pass: %s", out.stdout)
	}
	// One question more: the look before the start.
	if out.Requests < 100 || int64(out.Requests+1) != server.asked.Load() || len(server.seen) < 50 {
		t.Errorf("%d requests, and the server was asked %d times, %d different ones", out.Requests, server.asked.Load(),
			len(server.seen))
	}
	// Go's client opens another connection when it asks before it has put the last one back.
	if n := opened.Load(); out.Planned != 4 || out.Connected != 4 || n < 5 || int(n) > 5+out.Requests/20 {
		t.Errorf("%d connections were opened for %d of %d wanted and the look", n, out.Connected, out.Planned)
	}
	checkDurations(t, out.outcome, map[string]int{"request": out.Requests})
	if _, told := out.Durations["request_service"]; told {
		t.Error("closed, the time since the beginning is told twice")
	}
	if out.ClientDelay.Count != out.Requests {
		t.Errorf("%d delays of the client for %d requests", out.ClientDelay.Count, out.Requests)
	}
}

func TestRequestsAtARate(t *testing.T) {
	t.Parallel()
	server := &sums{seen: map[string]bool{}}
	base, _ := serveHTTP(t, server)
	out := ask(t, []string{base}, map[string]string{"RATE": "50", "TIMEOUT": patience})
	if !out.Passed || out.Requests < 140 || out.Requests+out.Unsent < 149 || out.Requests+out.Unsent > 151 {
		t.Errorf("50 a second for 3 s: %d requests and %d unsent, want 150\n%s", out.Requests, out.Unsent, out.stdout)
	}
	checkDurations(t, out.outcome, map[string]int{"request": out.Requests, "request_service": out.Requests})
}

// Half of the connections, and half of the rate.
func TestRequestsOfOneOfTwoRunners(t *testing.T) {
	t.Parallel()
	base, _ := serveHTTP(t, &sums{seen: map[string]bool{}})
	out := ask(t, []string{base}, map[string]string{"RATE": "50", "TIMEOUT": patience, "RUNNERS": "2", "RUNNER": "1"})
	if sent := out.Requests + out.Unsent; !out.Passed || out.Planned != 2 || sent < 74 || sent > 76 {
		t.Errorf("%d connections and %d requests and %d unsent, want 2 and 75\n%s", out.Planned, out.Requests, out.Unsent,
			out.stdout)
	}
}

// A server that takes 20 a second on four connections, asked for 100: what was due and could wait no longer is told,
// and times count from when requests were due.
func TestRequestsBeyondWhatAServerTakes(t *testing.T) {
	t.Parallel()
	base, _ := serveHTTP(t, &sums{pause: 200 * time.Millisecond, seen: map[string]bool{}})
	out := ask(t, []string{base}, map[string]string{"RATE": "100", "TIMEOUT": patience})
	if out.Requests < 40 || out.Requests > 64 || out.Requests+out.Unsent < 299 || out.Requests+out.Unsent > 301 {
		t.Errorf("%d requests and %d unsent, want about 60 and 300 together", out.Requests, out.Unsent)
	}
	due, begun := out.Durations["request"], out.Durations["request_service"]
	if due.Max < 2000 || due.P50 < 1000 || begun.Min < 200 || begun.P50 > 1000 {
		t.Errorf("from when they were due p50 %.0f and max %.0f ms, from when they began p50 %.0f ms", due.P50, due.Max,
			begun.P50)
	}
}

func TestRequestsOfAnotherKind(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	base, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.Method + " " + r.URL.String() + " " + string(body))
		w.WriteHeader(http.StatusAccepted)
	}))
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/users/1?x=y", `{"n":{5..5},"m":{}}`, `PUT /users/1?x=y {"n":5,"m":{}}`},
		{"GET", "/users/1", "", "GET /users/1 "},
		{"POST", "/api/sum", "{}", "POST /api/sum {}"},
	} {
		out := ask(t, []string{base}, map[string]string{"METHOD": c.method, "REQUEST_PATH": c.path, "BODY": c.body,
			"RATE": "20", "TIMEOUT": patience})
		if !out.Passed || got.Load() != c.want {
			t.Errorf("the server got %q, want %q\n%s", got.Load(), c.want, out.stdout)
		}
	}
}

func TestRequestsThatGoWrong(t *testing.T) {
	t.Parallel()
	every := func(nth int64, then http.HandlerFunc) http.Handler {
		var n atomic.Int64
		good := &sums{seen: map[string]bool{}}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%nth == 0 {
				then(w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
	}
	for _, c := range []struct {
		name    string
		handler http.Handler
		reason  string
		wrong   bool
	}{
		{"wrong sums", &sums{lie: 1, seen: map[string]bool{}}, "bad_message", true},
		{"no JSON", every(10, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("7")) }),
			"bad_message", true},
		{"errors", every(10, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}), "http_503", false},
		{"redirects", every(10, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/", http.StatusFound)
		}), "http_302", false},
		{"silence", every(10, func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) }), "timeout", false},
		{"cut connections", every(10, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
			"connect", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			base, _ := serveHTTP(t, c.handler)
			env := map[string]string{}
			if c.reason != "timeout" {
				env["TIMEOUT"] = patience
			}
			out := ask(t, []string{base}, env)
			if out.exit != thresholdsFailed || !slices.Contains(out.Failed, "failed rate<=0.01") ||
				slices.Contains(out.Failed, "wrong count==0") != c.wrong {
				t.Errorf("exit code %d, failed thresholds %v", out.exit, out.Failed)
			}
			if n := out.Errors[c.reason]; n == 0 || n != out.Answered.Yes || out.Answered.No == 0 ||
				(out.Wrong == n) != c.wrong {
				t.Errorf("%d of %d failed, %d wrong, errors %v", out.Answered.Yes, out.Requests, out.Wrong, out.Errors)
			}
			checkDurations(t, out.outcome, map[string]int{"request": out.Answered.No})
		})
	}
}

func TestRequestsNobodyAnswers(t *testing.T) {
	t.Parallel()
	liar, _ := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"result":0}`))
	}))
	nothing, _ := serveHTTP(t, http.NotFoundHandler())
	for base, why := range map[string]string{liar: `was answered with {"result":0}`, nothing: "the status 404",
		"http://127.0.0.1:1": "connection refused"} {
		out := ask(t, []string{base}, nil)
		if out.exit != aborted || !strings.Contains(out.Problem, why) ||
			!strings.Contains(out.Problem, "REQUEST_PATH=/api/sum") {
			t.Errorf("exit code %d, problem %q, want %d and %q", out.exit, out.Problem, aborted, why)
		}
	}
}

func TestBadRequestsOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"CONNECTIONS", "0", "CONNECTIONS=0: must be a whole number, at least 1."},
		{"CONNECTIONS", "30000", "use 2 runners or more"},
		{"RUNNERS", "5", "CONNECTIONS=12 cannot be dealt out evenly to RUNNERS=5: set CONNECTIONS to 10 or 15."},
		{"RATE", "fast", "RATE=fast: must be a number of requests a second"},
		{"METHOD", "post", "METHOD=post: must be one of GET, POST, PUT, PATCH, DELETE."},
		{"BODY", "{9..1}", "must have the smaller number first."},
		{"REQUEST_PATH", "sum", "REQUEST_PATH=sum: must be a path"},
		{"MAX_FAILED", "2", "MAX_FAILED=2: must be a share from 0 to 1."},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Parallel()
			out := start(t, nil, map[string]string{scenario: "requests", "BASE_URLS": "http://127.0.0.1:1", c.name: c.value})
			if out.exit != scriptFailed || !strings.Contains(out.stderr, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", out.exit, scriptFailed, c.want, out.stderr)
			}
		})
	}
}

// The real rival.
func TestRequestsOfJSONGo(t *testing.T) {
	t.Parallel()
	out := ask(t, []string{rival(t, "json-go")}, map[string]string{"TIMEOUT": patience})
	if !out.Passed || out.Requests < 100 {
		t.Error(out.stdout)
	}
}
