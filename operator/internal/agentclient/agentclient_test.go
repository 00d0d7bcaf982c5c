package agentclient

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/testsocket"
)

const answer = `{"version":"0.1.0","node":"shop@shop-0","otp":"29","adapter":"ets","ready":false,"reason":"shop@shop-1 is missing.","draining":true,
 "peers":{"expected":2,"connected":1,"missing":1,"missingNodes":["shop@shop-1"]},
 "store":{"ready":true,"reason":""},
 "stashes":123,"stashBytes":45678,"largestStashBytes":9,"sockets":7,
 "handoffs":{"sent":1,"received":2,"failed":3},
 "returns":{"recovered":4,"notRecovered":5},"versions":[{"view":"Elixir.ShopWeb.CartLive","version":"\"2\""}],"uptimeSeconds":12}`

var wanted = Status{
	Version: "0.1.0", Node: "shop@shop-0", OTP: "29", Adapter: "ets", Reason: "shop@shop-1 is missing.", Draining: true,
	Peers:   Peers{Expected: 2, Connected: 1, Missing: 1, MissingNodes: []string{"shop@shop-1"}},
	Store:   Store{Ready: true},
	Stashes: 123, StashBytes: 45678, LargestStashBytes: 9, Sockets: new(int64(7)),
	Handoffs:      Handoffs{Sent: 1, Received: 2, Failed: 3},
	Returns:       Returns{Recovered: 4, NotRecovered: 5},
	Versions:      []PageVersion{{View: "Elixir.ShopWeb.CartLive", Version: `"2"`}},
	UptimeSeconds: 12,
}

// agent answers with this status and body.
func agent(t *testing.T, code int, body string) (string, int32) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/status" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		w.Header().Set(Header, "0.1.0")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	})
}

func serve(t *testing.T, handle http.HandlerFunc) (string, int32) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return address(server.Listener)
}

// speaks answers every connection's first bytes with text, and closes.
func speaks(t *testing.T, text string) (string, int32) {
	t.Helper()
	return serveTCP(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, text)
	})
}

func serveTCP(t *testing.T, handle func(net.Conn)) (string, int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
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
	}()
	return address(listener)
}

func address(listener net.Listener) (string, int32) {
	at := listener.Addr().(*net.TCPAddr)
	return at.IP.String(), int32(at.Port)
}

// refused is a port on which nobody listens, nor will: it is taken.
func refused(t *testing.T) (string, int32) {
	t.Helper()
	_, port := testsocket.Bound(t)
	return "127.0.0.1", int32(port)
}

func ask(t *testing.T, ip string, port int32) (Status, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return New().Status(ctx, ip, port)
}

func TestStatus(t *testing.T) {
	endless := strings.Repeat("x", 9999)
	cases := map[string]struct {
		body string
		want Status
	}{
		"whole":                         {answer, wanted},
		"an agent of a version to come": {strings.Replace(answer, "{", `{"colour":{"is":["blue"]},`, 1), wanted},
		"an agent of an older version":  {`{"version":"0.0.9","node":"shop@shop-0"}`, Status{Version: "0.0.9", Node: "shop@shop-0"}},
		"a list without end": {
			`{"node":"a@b","peers":{"missing":500,"missingNodes":[` + strings.Repeat(`"a@c",`, 499) + `"a@c"]}}`,
			Status{Node: "a@b", Peers: Peers{Missing: 500, MissingNodes: slices.Repeat([]string{"a@c"}, maxNodes)}},
		},
		"views without end": {
			`{"node":"a@b","versions":[` + strings.Repeat(`{"view":"a","version":"1"},`, 499) + `{"view":"b"}]}`,
			Status{Node: "a@b", Versions: slices.Repeat([]PageVersion{{"a", "1"}}, maxViews)},
		},
		"endless views": {
			`{"node":"a@b","versions":[{"view":"` + endless + `","version":"` + endless + `"}]}`,
			Status{Node: "a@b", Versions: []PageVersion{{endless[:maxName], endless[:maxText]}}},
		},
		"endless names": {
			`{"node":"` + endless + `","version":"` + endless + `","otp":"` + endless + `","adapter":"` + endless + `","peers":{"missingNodes":["` + endless + `"]}}`,
			Status{
				Node: endless[:maxName], Version: endless[:maxWord], OTP: endless[:maxWord], Adapter: endless[:maxWord],
				Peers: Peers{MissingNodes: []string{endless[:maxName]}},
			},
		},
		"endless reasons": {
			`{"node":"a@b","reason":"` + strings.Repeat("ü", 9999) + `","store":{"reason":"` + strings.Repeat("x", 9999) + `"}}`,
			Status{Node: "a@b", Reason: strings.Repeat("ü", maxText), Store: Store{Reason: strings.Repeat("x", maxText)}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ip, port := agent(t, http.StatusOK, c.body)
			got, err := ask(t, ip, port)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStatusFails(t *testing.T) {
	const (
		unreachable = "unreachable"
		foreign     = "foreign server"
		bad         = "bad answer"
	)
	type place struct {
		ip   string
		port int32
	}
	at := func(ip string, port int32) place { return place{ip, port} }
	head := "HTTP/1.1 200 OK\r\nlivestash-agent: 0.1.0\r\n"
	cases := map[string]struct {
		place place
		want  string
	}{
		"nobody listens":                     {at(refused(t)), unreachable},
		"no IP":                              {at("", 0), unreachable},
		"nonsense for an IP":                 {at("a b", 1), unreachable},
		"closes at once":                     {at(speaks(t, "")), unreachable},
		"foreign server":                     {at(serve(t, http.NotFound)), foreign},
		"foreign server that redirects":      {at(speaks(t, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n")), foreign},
		"foreign server, its own JSON":       {at(speaks(t, "HTTP/1.1 200 OK\r\n\r\n"+answer)), foreign},
		"another protocol":                   {at(speaks(t, "SSH-2.0-OpenSSH_9.2\r\n")), foreign},
		"binary":                             {at(speaks(t, "\x15\x03\x01\x00\x02\x02\x46\r\n\x00\r\n\r\n")), foreign},
		"header of 1 MB":                     {at(speaks(t, head+"A: "+strings.Repeat("a", 1<<20)+"\r\n\r\n")), foreign},
		"agent without the route":            {at(agent(t, http.StatusNotFound, "")), bad},
		"agent that redirects":               {at(agent(t, http.StatusFound, "")), bad},
		"agent that fails":                   {at(agent(t, http.StatusInternalServerError, answer)), bad},
		"no JSON":                            {at(agent(t, http.StatusOK, "ok")), bad},
		"nothing":                            {at(agent(t, http.StatusOK, "")), bad},
		"JSON of something else":             {at(agent(t, http.StatusOK, "[1,2]")), bad},
		"null":                               {at(agent(t, http.StatusOK, "null")), bad},
		"no node":                            {at(agent(t, http.StatusOK, "{}")), bad},
		"a number that is none":              {at(agent(t, http.StatusOK, `{"node":"a@b","stashes":"many"}`)), bad},
		"peers of an agent before 0.1":       {at(agent(t, http.StatusOK, `{"node":"a@b","peers":{"missing":["a@c"]}}`)), bad},
		"a number too large":                 {at(agent(t, http.StatusOK, `{"node":"a@b","stashes":1e99}`)), bad},
		"more after the end":                 {at(agent(t, http.StatusOK, answer+answer)), bad},
		"more than 64 KiB":                   {at(agent(t, http.StatusOK, answer+strings.Repeat(" ", 64<<10))), bad},
		"body of 2 MB":                       {at(agent(t, http.StatusOK, answer+strings.Repeat(" ", 2<<20))), bad},
		"body cut short":                     {at(speaks(t, head+"Content-Length: 4000\r\n\r\n"+answer)), bad},
		"a length that is none":              {at(speaks(t, head+"Content-Length: x\r\n\r\n"+answer)), foreign},
		"compressed, which nobody asked for": {at(speaks(t, head+"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08")), bad},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ask(t, c.place.ip, c.place.port)
			var unreachableError *UnreachableError
			var foreignError *ForeignServerError
			var badError *BadAnswerError
			got := ""
			switch {
			case errors.As(err, &unreachableError):
				got = unreachable
			case errors.As(err, &foreignError):
				got = foreign
			case errors.As(err, &badError):
				got = bad
			}
			if got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
			if err != nil && !strings.HasSuffix(err.Error(), ".") {
				t.Errorf("%q is no sentence", err)
			}
		})
	}
}

// TestStatusTakesNoLongerThanItsContext hangs before the head and in the middle of the body.
func TestStatusTakesNoLongerThanItsContext(t *testing.T) {
	for name, beginning := range map[string]string{
		"before the head":         "",
		"in the head":             "HTTP/1.1 200 OK\r\nlivestash-agent: 0.1.0\r\n",
		"in the middle of a body": "HTTP/1.1 200 OK\r\nlivestash-agent: 0.1.0\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			ip, port := serveTCP(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, beginning)
				_, _ = io.Copy(io.Discard, conn)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := New().Status(ctx, ip, port)
			var unreachable *UnreachableError
			if !errors.As(err, &unreachable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want unreachable because of the deadline", err)
			}
		})
	}
}

func TestCancelIsSeen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ip, port := agent(t, http.StatusOK, answer)
	if _, err := New().Status(ctx, ip, port); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was cancelled", err)
	}
}

// good is a whole answer that leaves the connection open.
const good = "HTTP/1.1 200 OK\r\nlivestash-agent: 1\r\nContent-Length: 14\r\n\r\n{\"node\":\"a@b\"}"

// counting serves connections one by one by their number, from 1 on.
func counting(t *testing.T, handle func(number int32, conn net.Conn)) (*atomic.Int32, string, int32) {
	t.Helper()
	var accepted atomic.Int32
	ip, port := serveTCP(t, func(conn net.Conn) { handle(accepted.Add(1), conn) })
	return &accepted, ip, port
}

// answerAll answers whatever comes, until the client closes.
func answerAll(conn net.Conn) {
	for {
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, good)
	}
}

// connections is how many one client needs for three questions. On a busy machine it may be one more: net/http does not keep a connection
// whose request took its goroutine 50 ms to report. So the fewest of some tries count.
func connections(t *testing.T, handle func(number int32, conn net.Conn)) int32 {
	t.Helper()
	fewest := int32(math.MaxInt32)
	for range 10 {
		accepted, ip, port := counting(t, handle)
		client := New()
		for range 3 {
			if _, err := client.Status(t.Context(), ip, port); err != nil {
				t.Error(err)
			}
		}
		fewest = min(fewest, accepted.Load())
	}
	return fewest
}

func TestConnectionIsKept(t *testing.T) {
	if needed := connections(t, func(_ int32, conn net.Conn) { answerAll(conn) }); needed != 1 {
		t.Errorf("%d connections for three questions, want 1", needed)
	}
}

// TestConnectionClosedMeanwhile: an agent may close what it kept open at any moment. Nobody was asked then, so it is no failure.
func TestConnectionClosedMeanwhile(t *testing.T) {
	cases := map[string]func(net.Conn){
		"after its answer":     func(net.Conn) {},
		"at the next question": func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) },
		"with a reset":         func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) },
		"with a reset, late":   func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)); _ = conn.(*net.TCPConn).SetLinger(0) },
	}
	for name, leave := range cases {
		t.Run(name, func(t *testing.T) {
			needed := connections(t, func(number int32, conn net.Conn) {
				if number > 1 {
					answerAll(conn)
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, good)
				leave(conn)
			})
			if needed != 2 {
				t.Errorf("%d connections, want 2", needed)
			}
		})
	}
}

// TestIdleConnectionsAreBounded asks more agents at once than may keep a connection.
func TestIdleConnectionsAreBounded(t *testing.T) {
	var open atomic.Int32
	handle := func(conn net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		answerAll(conn)
	}
	client := New()
	// Else the time for which a connection may be idle would close them, too.
	client.http.Transport.(*http.Transport).IdleConnTimeout = 0
	for range maxIdle + 20 {
		ip, port := serveTCP(t, handle)
		if _, err := client.Status(t.Context(), ip, port); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); open.Load() > maxIdle; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections stay open, want %d", open.Load(), maxIdle)
		}
	}
}

// deaf listens without ever accepting, and its queue is full: the kernel drops whoever comes.
func deaf(t *testing.T) (string, int32) {
	t.Helper()
	socket, port := testsocket.Bound(t)
	if err := syscall.Listen(socket, 0); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), 100*time.Millisecond)
		if err != nil {
			return "127.0.0.1", int32(port)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// TestConnectsEnd: net/http goes on connecting when nobody waits any longer, by itself for as long as the kernel tries. With
// thousands of pods whose node is gone that would be thousands of sockets.
func TestConnectsEnd(t *testing.T) {
	ip, port := deaf(t)
	client := New()
	transport := client.http.Transport.(*http.Transport)
	dial := transport.DialContext
	var connecting atomic.Int32
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connecting.Add(1)
		defer connecting.Add(-1)
		return dial(ctx, network, address)
	}
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := client.Status(ctx, ip, port)
		cancel()
		if KindOf(err) != KindSilent {
			t.Fatalf("got %v, want silence", err)
		}
	}
	for deadline := time.Now().Add(time.Minute); connecting.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connects go on", connecting.Load())
		}
	}
}

func TestKindOf(t *testing.T) {
	cases := map[string]struct {
		err  error
		want Kind
	}{
		"none":      {nil, KindNone},
		"refused":   {&UnreachableError{1, &net.OpError{Err: syscall.ECONNREFUSED}}, KindRefused},
		"silent":    {&UnreachableError{1, context.DeadlineExceeded}, KindSilent},
		"timed out": {&UnreachableError{1, &net.OpError{Err: os.ErrDeadlineExceeded}}, KindSilent},
		"reset":     {&UnreachableError{1, syscall.ECONNRESET}, KindUnreachable},
		"foreign":   {&ForeignServerError{1}, KindForeignServer},
		"bad":       {&BadAnswerError{1, "2", context.DeadlineExceeded}, KindBadAnswer},
		"another":   {io.EOF, KindUnreachable},
	}
	for name, c := range cases {
		if got := KindOf(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestParseReport(t *testing.T) {
	whole := `{"livestash":1,"sessionsBefore":120,"socketsClosed":118,"handedOff":30,"notHandedOff":2,"reason":"No peer took them.","seconds":4.1}`
	want := Report{SessionsBefore: 120, SocketsClosed: 118, HandedOff: 30, NotHandedOff: 2, Reason: "No peer took them.", Seconds: 4.1}
	cases := map[string]struct {
		message string
		want    Report
		ok      bool
	}{
		"whole":                  {whole, want, true},
		"with blanks":            {"\n " + whole + "\n", want, true},
		"with a field to come":   {strings.Replace(whole, "{", `{"colour":"blue",`, 1), want, true},
		"smallest":               {`{"livestash":1}`, Report{}, true},
		"a format to come":       {strings.Replace(whole, ":1,", ":2,", 1), Report{}, false},
		"somebody else's JSON":   {`{"handedOff":30}`, Report{}, false},
		"cut short":              {whole[:90], Report{}, false},
		"after the end of a log": {"shutting down\n" + whole, Report{}, false},
		"twice":                  {whole + whole, Report{}, false},
		"nothing":                {"", Report{}, false},
		"null":                   {"null", Report{}, false},
		"a number below nothing": {`{"livestash":1,"handedOff":-1}`, Report{}, false},
		"a number that is none":  {`{"livestash":1,"handedOff":"all"}`, Report{}, false},
		"longer than can be":     {whole + strings.Repeat(" ", maxReport), Report{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseReport([]byte(c.message))
			if got != c.want || ok != c.ok {
				t.Errorf("got %+v, %v, want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}
