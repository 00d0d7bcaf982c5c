package podagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/testsocket"
)

// server answers every connection with what handle writes, and is gone when the test is over.
func server(t *testing.T, handle func(net.Conn)) int {
	t.Helper()
	listener := listen(t)
	go serveAll(listener, handle)
	return port(listener)
}

func serveAll(listener net.Listener, handle func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			handle(conn)
		}()
	}
}

func port(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

// agentSocket is a server on the agent's own socket, whose port nobody listens on, and what ends it.
func agentSocket(t *testing.T, handle func(net.Conn)) (agentPort int, end func()) {
	t.Helper()
	agentPort = shut(t)
	listener, err := net.Listen("unix", fmt.Sprintf("@livestash-agent-%d", agentPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go serveAll(listener, handle)
	return agentPort, func() { _ = listener.Close() }
}

// says answers with these bytes once the request is there.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		readHead(conn)
		_, _ = io.WriteString(conn, text)
	}
}

func readHead(conn net.Conn) (requestLine string) {
	reader := bufio.NewReader(conn)
	requestLine, _ = reader.ReadString('\n')
	for line := requestLine; line != "\r\n" && line != ""; {
		line, _ = reader.ReadString('\n')
	}
	return strings.TrimSpace(requestLine)
}

// hangs answers nothing until the client has gone.
func hangs(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// shut is a port where nobody listens, nor can as long as the test runs.
func shut(t *testing.T) int {
	t.Helper()
	_, port := testsocket.Bound(t)
	return port
}

// free is a port on which a test may listen.
func free(t *testing.T) int {
	t.Helper()
	listener := listen(t)
	defer func() { _ = listener.Close() }()
	return port(listener)
}

func agentSays(status, text string) func(net.Conn) {
	return says("HTTP/1.1 " + status + "\r\nlivestash-agent: 0.1.0\r\nContent-Length: 8\r\n\r\n" + text)
}

// patient decides about an agent that has had its time to start, and waits longer for each answer than a busy machine takes.
func patient(settings Settings) *readiness {
	r := newReadiness(settings, quiet)
	r.startTime, r.patience = 0, 20*time.Second
	return r
}

func TestReadiness(t *testing.T) {
	const (
		agentReady = iota
		agentWaits
		nobody
	)
	agents := map[string]struct {
		handle  func(net.Conn)
		verdict int
	}{
		"ready":                        {agentSays("200 OK", "ready ok"), agentReady},
		"ready, connection left open":  {func(c net.Conn) { agentSays("200 OK", "ready ok")(c); hangs(c) }, agentReady},
		"ready, body missing":          {agentSays("200 OK", ""), agentReady},
		"header in capitals":           {says("HTTP/1.1 200 OK\r\nLIVESTASH-AGENT: 9\r\n\r\n"), agentReady},
		"not ready":                    {agentSays("503 Service Unavailable", "draining"), agentWaits},
		"without the route":            {agentSays("404 Not Found", "what?   "), nobody},
		"foreign server":               {says("HTTP/1.1 200 OK\r\nServer: cowboy\r\n\r\nready"), nobody},
		"foreign server that says 503": {says("HTTP/1.1 503 No\r\n\r\n"), nobody},
		"other protocol":               {says("SSH-2.0-OpenSSH_9.2\r\n"), nobody},
		"status of nonsense":           {says("HTTP/1.1 2e2 OK\r\nlivestash-agent: 1\r\n\r\n"), nobody},
		"status out of range":          {says("HTTP/1.1 99999999999999999999 OK\r\nlivestash-agent: 1\r\n\r\n"), nobody},
		"header cut short":             {says("HTTP/1.1 503 No\r\nlivestash-agent: 1\r\n"), nobody},
		"header of 1 MB":               {says("HTTP/1.1 503 No\r\nlivestash-agent: " + strings.Repeat("1", 1<<20) + "\r\n\r\n"), nobody},
		"status line of 1 MB":          {says("HTTP/1.1 503 " + strings.Repeat("x", 1<<20)), nobody},
		"binary":                       {says("\x00\xff\x16\x03\x01" + strings.Repeat("\x80", 300)), nobody},
		"binary header":                {says("HTTP/1.1 503 No\r\n\x00\xff: \x16\r\nlivestash-agent: 1\r\n\r\n"), nobody},
		"closes at once":               {func(net.Conn) {}, nobody},
		"hangs":                        {hangs, nobody},
		"refused":                      {nil, nobody},
	}
	for name, agent := range agents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agentPort := shut(t)
			if agent.handle != nil {
				agentPort = server(t, agent.handle)
			}
			for appOpen, appPort := range map[bool]int{true: server(t, hangs), false: shut(t)} {
				r := patient(Settings{AgentPort: agentPort, AppPort: appPort})
				if name == "hangs" {
					r.patience = askTime
				}
				want := statusUnavailable
				if agent.verdict == agentReady || agent.verdict == nobody && appOpen {
					want = statusOK
				}
				if got := r.ask(); got.status != want {
					t.Errorf("application's port open %v: got %v, want %s", appOpen, got, want)
				}
			}
		})
	}
}

// TestSilentAgent: on its own socket somebody listens, so there is an agent, and its last word stands for a while.
func TestSilentAgent(t *testing.T) {
	ready, waits := agentSays("200 OK", "ready ok"), agentSays("503 Service Unavailable", "draining")
	silences := map[string]func(net.Conn){
		"hangs":          hangs,
		"closes at once": func(net.Conn) {},
		"cut short":      says("HTTP/1.1 200 OK\r\nlivestash-agent: 1\r\n"),
	}
	cases := map[string]struct {
		// before is what the agent has said, nil for nothing, and since how long before it fell silent.
		before func(net.Conn)
		since  time.Duration
		want   answer
	}{
		"frozen before its first word":    {nil, 0, answer{statusUnavailable, "the agent is there"}},
		"was ready":                       {ready, 0, answer{statusOK, "ready ok"}},
		"was not ready":                   {waits, 0, answer{statusUnavailable, "draining"}},
		"was ready, too long ago":         {ready, wordAge, answer{statusUnavailable, "the agent is there"}},
		"was not ready, and for too long": {waits, wordAge, answer{statusUnavailable, "the agent is there"}},
	}
	for silence, silent := range silences {
		for name, c := range cases {
			t.Run(silence+", "+name, func(t *testing.T) {
				t.Parallel()
				var now atomic.Pointer[func(net.Conn)]
				agentPort, _ := agentSocket(t, func(conn net.Conn) { (*now.Load())(conn) })
				r := patient(Settings{AgentPort: agentPort, AppPort: server(t, hangs)})
				if c.before != nil {
					now.Store(&c.before)
					r.decide()
					r.heard = r.heard.Add(-c.since)
				}
				now.Store(&silent)
				if silence == "hangs" {
					r.patience = askTime
				}
				if got := r.decide(); got.status != c.want.status || !strings.HasPrefix(got.text, c.want.text) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			})
		}
	}
}

// TestAgentIsGone: an agent that has ended leaves no socket, whatever it has said before.
func TestAgentIsGone(t *testing.T) {
	for name, said := range map[string]string{"was ready": "200 OK", "was not ready": "503 Service Unavailable"} {
		t.Run(name, func(t *testing.T) {
			for appOpen, appPort := range map[bool]int{true: server(t, hangs), false: shut(t)} {
				agentPort, end := agentSocket(t, agentSays(said, "my words"))
				r := patient(Settings{AgentPort: agentPort, AppPort: appPort})
				if got := r.decide(); got.text != "my words" {
					t.Fatalf("got %v, want the agent's words", got)
				}
				end()
				if got := r.decide(); (got.status == statusOK) != appOpen {
					t.Errorf("application's port open %v: got %v", appOpen, got)
				}
			}
		})
	}
}

// TestSocketOfSomebodyElse: who answers there without being the agent does not decide.
func TestSocketOfSomebodyElse(t *testing.T) {
	agentPort, _ := agentSocket(t, says("HTTP/1.1 503 No\r\n\r\n"))
	r := patient(Settings{AgentPort: agentPort, AppPort: server(t, hangs)})
	if got := r.decide(); got.status != statusOK {
		t.Errorf("got %v, want ready by the application's port", got)
	}
}

// TestCrowdOnTheAgentsPort: all of its connections are taken, and the agent's own socket answers.
func TestCrowdOnTheAgentsPort(t *testing.T) {
	agentPort := server(t, hangs)
	listener, err := net.Listen("unix", fmt.Sprintf("@livestash-agent-%d", agentPort))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go serveAll(listener, agentSays("503 Service Unavailable", "draining"))
	r := patient(Settings{AgentPort: agentPort, AppPort: server(t, hangs)})
	if got := r.decide(); got != (answer{statusUnavailable, "draining"}) {
		t.Errorf("got %v, want the agent's word", got)
	}
}

func TestReasonIsPassedOn(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"a sentence": {"Waiting for shop@shop-1.\n", "Waiting for shop@shop-1."},
		"too long":   {strings.Repeat("x", 5000), strings.Repeat("x", maxReason)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			agent := server(t, says("HTTP/1.1 503 No\r\nlivestash-agent: 1\r\n\r\n"+c.body))
			r := patient(Settings{AgentPort: agent, AppPort: shut(t)})
			if got := r.ask().text; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestReadinessPath(t *testing.T) {
	cases := map[string]struct {
		app  func(net.Conn)
		want string
	}{
		"200":       {says("HTTP/1.1 200 OK\r\n\r\n"), statusOK},
		"204":       {says("HTTP/1.0 204 No Content\r\n\r\n"), statusOK},
		"redirect":  {says("HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/\r\n\r\n"), statusOK},
		"not found": {says("HTTP/1.1 404 Not Found\r\n\r\n"), statusUnavailable},
		"failure":   {says("HTTP/1.1 500 Oh\r\n\r\n"), statusUnavailable},
		"hangs":     {hangs, statusUnavailable},
		"this path": {func(c net.Conn) {
			if readHead(c) == "GET /up?deep=1 HTTP/1.1" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			}
		}, statusOK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			appPort := server(t, c.app)
			for who, agentPort := range map[string]int{"with an agent": server(t, agentSays("200 OK", "ready ok")), "without": shut(t)} {
				r := patient(Settings{AgentPort: agentPort, AppPort: appPort, ReadinessPath: "/up?deep=1"})
				if name == "hangs" {
					r.patience = askTime
				}
				if got := r.ask(); got.status != c.want {
					t.Errorf("%s: got %v, want %s", who, got, c.want)
				}
			}
		})
	}
	t.Run("agent not ready", func(t *testing.T) {
		var asked atomic.Bool
		app := server(t, func(net.Conn) { asked.Store(true) })
		r := patient(Settings{AgentPort: server(t, agentSays("503 No", "draining")), AppPort: app, ReadinessPath: "/"})
		if got := r.ask(); got != (answer{statusUnavailable, "draining"}) || asked.Load() {
			t.Errorf("got %v (application asked: %v), want the agent's word alone", got, asked.Load())
		}
	})
}

// TestAgentMayStartLast: the application's port opens a moment before the agent's.
func TestAgentMayStartLast(t *testing.T) {
	var appUp, agentUp atomic.Bool
	appUp.Store(true)
	ready := agentSays("200 OK", "ready ok")
	r := newReadiness(Settings{
		AgentPort: server(t, func(c net.Conn) {
			if agentUp.Load() {
				ready(c)
			}
		}),
		AppPort: server(t, func(c net.Conn) {
			if appUp.Load() {
				says("HTTP/1.1 200 OK\r\n\r\n")(c)
			}
		}),
		ReadinessPath: "/",
	}, quiet)
	r.startTime, r.patience = time.Hour, 20*time.Second
	step := func(what, want string) {
		t.Helper()
		if got := r.decide(); got.status != want {
			t.Errorf("%s: got %v, want %s", what, got, want)
		}
	}
	step("application alone", statusUnavailable)
	agentUp.Store(true)
	step("agent", statusOK)

	r.servingSince = time.Now().Add(-2 * time.Hour)
	agentUp.Store(false)
	step("agent gone, long after", statusOK)

	appUp.Store(false)
	step("application gone", statusUnavailable)
	appUp.Store(true)
	step("application back, its agent not yet", statusUnavailable)
}

func TestOneQuestionForACrowd(t *testing.T) {
	var asked atomic.Int32
	r := patient(Settings{AppPort: shut(t), AgentPort: server(t, func(c net.Conn) {
		asked.Add(1)
		agentSays("200 OK", "ready ok")(c)
	})})
	var crowd sync.WaitGroup
	const many = 1000
	started := time.Now()
	for range many {
		crowd.Go(func() {
			if got := r.ask(); got.status != statusOK {
				t.Error(got)
			}
		})
	}
	crowd.Wait()
	if most := int32(time.Since(started)/answerAge) + 1; asked.Load() > most {
		t.Errorf("the agent was asked %d times, want at most %d", asked.Load(), most)
	}
}

func TestHeaderIsTheClients(t *testing.T) {
	if !strings.EqualFold(agentHeader, agentclient.Header) {
		t.Errorf("%s here, %s in the client", agentHeader, agentclient.Header)
	}
}

func TestProbeServer(t *testing.T) {
	listener := listen(t)
	var verdict atomic.Pointer[answer]
	go serveConns(listener, probePages(func() answer { return *verdict.Load() }), "")
	cases := []struct {
		method, path string
		verdict      answer
		status       int
		body         string
	}{
		{"GET", "/readyz", answer{statusOK, "ready"}, 200, "ready\n"},
		{"GET", "/readyz?verbose", answer{statusUnavailable, "draining"}, 503, "draining\n"},
		{"GET", "/healthz", answer{statusUnavailable, "draining"}, 200, "ok\n"},
		{"GET", "/", answer{}, 404, "ask /readyz or /healthz\n"},
		{"POST", "/readyz", answer{}, 405, "only GET is answered\n"},
	}
	for _, c := range cases {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			verdict.Store(&c.verdict)
			request, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+listener.Addr().String()+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.status || string(body) != c.body {
				t.Errorf("got %d %q (%v), want %d %q", response.StatusCode, body, err, c.status, c.body)
			}
		})
	}
}

func TestProbeServerOutlivesBadRequests(t *testing.T) {
	listener := listen(t)
	go serveConns(listener, probePages(func() answer { return answer{statusOK, "ready"} }), "")
	bad := map[string]string{
		"nothing":           "",
		"half a request":    "GET /ready",
		"head without end":  "GET /readyz HTTP/1.1\r\nHost: a\r\n",
		"binary":            "\x16\x03\x01\x00\xff\xfe\r\n\r\n",
		"header of 1 MB":    "GET /readyz HTTP/1.1\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"path of 1 MB":      "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n\r\n",
		"bad header":        "GET /readyz HTTP/1.1\r\nno colon\r\n\r\n",
		"HTTP/2's preface":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/0.9":          "GET /readyz\r\n\r\n",
		"blanks in between": "GET  /readyz  HTTP/1.1\r\n\r\n",
	}
	for name, request := range bad {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, request)
			// A server that does not read all of it may answer, or reset the connection.
			reply, _ := io.ReadAll(conn)
			if text := string(reply); text != "" && !strings.HasPrefix(text, "HTTP/1.1 400 Bad Request\r\n") {
				t.Errorf("got %q", text)
			}

			response, err := http.Get("http://" + listener.Addr().String() + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("got %s afterwards", response.Status)
			}
		})
	}
}

func TestIdleConnectionsDoNotKeepTheProbeOut(t *testing.T) {
	listener := listen(t)
	go serveConns(listener, probePages(func() answer { return answer{statusOK, "ready"} }), "")
	const idle = 10 * maxConns
	for range idle {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	started := time.Now()
	response, err := http.Get("http://" + listener.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
	if took, patient := time.Since(started), idle/maxConns*requestTime; took > patient/2 {
		t.Errorf("took %v, where patience with everybody would have taken %v", took, patient)
	}
}

func TestServe(t *testing.T) {
	settings := Settings{ProbePort: free(t), AgentPort: shut(t), AppPort: shut(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, t.TempDir(), settings, quiet) }()

	url := fmt.Sprintf("http://127.0.0.1:%d", settings.ProbePort)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		response, err := http.Get(url + path)
		for errors.Is(err, syscall.ECONNREFUSED) {
			time.Sleep(10 * time.Millisecond)
			response, err = http.Get(url + path)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: got %s, want %d", path, response.Status, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServeWherePortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	err = Serve(t.Context(), t.TempDir(), Settings{ProbePort: port(taken)}, quiet)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want that the port is taken", err)
	}
}
