// Package faultserver answers as a LiveView with LiveStash does on the wire, and goes wrong in one chosen way. It shows that the
// k6 scenarios see what they should see, and is what k6's own cost is measured against. It is no workload: no figure of it says
// anything about a server.
package faultserver

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is a way to go wrong.
type Fault string

// The faults.
const (
	None Fault = "none"
	// Forget loses every stash.
	Forget Fault = "forget"
	// StaleCount recovers the counter as it was one stash ago.
	StaleCount Fault = "stale-count"
	// SilentSocket completes the WebSocket handshake and never sends anything again, no close frame either, as a frozen VM does.
	SilentSocket Fault = "silent-socket"
	// SilentUpgrade serves the page and never answers a handshake.
	SilentUpgrade Fault = "silent-upgrade"
	// SilentPage accepts connections and never answers.
	SilentPage Fault = "silent-page"
	// SilentAfterStash freezes after it has answered a stash.
	SilentAfterStash Fault = "silent-after-stash"
	// Stale refuses every second and later join with the reason "stale".
	Stale Fault = "stale"
	// Restart closes each socket with 1012 right after a stash was answered.
	Restart Fault = "restart"
	// DropIdle ends every second socket a moment after its stash was answered, while nobody waits for anything.
	DropIdle Fault = "drop-idle"
	// Crash answers each stash with phx_error.
	Crash Fault = "crash"
	// BigStash has the browser keep a state of 12 kB, which does not fit into the next handshake.
	BigStash Fault = "big-stash"
	// Garbage answers joins with text that is not JSON.
	Garbage Fault = "garbage"
	// CloseMidway ends the connection without a close frame when it is asked to stash.
	CloseMidway Fault = "close-midway"
	// ForbiddenSocket answers handshakes with 403, as Phoenix does when it does not like the origin.
	ForbiddenSocket Fault = "forbidden-socket"
	// NoLiveView serves a page without a LiveView.
	NoLiveView Fault = "no-liveview"
	// NotFound answers the page with 404.
	NotFound Fault = "not-found"
	// Forbidden answers the page with 403.
	Forbidden Fault = "forbidden"
	// Unavailable answers the page with 503.
	Unavailable Fault = "unavailable"
)

var statuses = map[Fault]int{
	NotFound:    http.StatusNotFound,
	Forbidden:   http.StatusForbidden,
	Unavailable: http.StatusServiceUnavailable,
}

// longestURI is what Bandit takes, less the method and the protocol.
const longestURI = 10_000 - len("GET  HTTP/1.1")

const page = `<!DOCTYPE html>
<html><head><meta charset="utf-8"/><meta name="csrf-token" content=%q/><title>a &lt;b> c</title>
<script>if (1 < 2) document.write("<div data-phx-main>")</script></head>
<body><!-- <div data-phx-main> --><div id="phx-test" data-phx-main data-phx-session=%q data-phx-static="static"></div></body></html>`

// Server is one fleet of any number of addresses with one store behind them.
type Server struct {
	fault Fault
	http  http.Server
	stop  chan struct{}

	// Spare is the number of users who see no fault, those who connect first. It is set before the first one comes.
	Spare int
	// TTL is how long stashes live; 0 for ever. It is set before the first user comes.
	TTL time.Duration

	// begun is closed when the first user comes: how long a client takes to start is nobody's fault.
	begun chan struct{}
	begin sync.Once

	// awake is held to answer, and by Freeze so that nobody can.
	awake sync.RWMutex

	mu     sync.Mutex
	store  map[string]stashed
	spared map[string]int

	// Open counts the WebSockets that are open now.
	Open atomic.Int64
	// Refused counts joins whose cookie, CSRF token, session and stash do not belong together: a client that mixes up its users.
	Refused atomic.Int64
	// Disturbed counts reconnects of spared users that found nothing.
	Disturbed atomic.Int64
	// dropped counts the sockets of DropIdle, of which it spares every second one.
	dropped atomic.Int64
	// Stayed counts recoveries at the address where the stash was made: a client that does not go round.
	Stayed atomic.Int64
}

type stashed struct {
	count int
	at    string // address that was asked to stash
	ends  time.Time
}

// New returns a server with a fault. It listens nowhere yet.
func New(fault Fault) *Server {
	s := &Server{fault: fault, stop: make(chan struct{}), begun: make(chan struct{}), store: map[string]stashed{}, spared: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stash/{adapter}", s.page)
	mux.HandleFunc("GET /live/websocket", s.socket)
	s.http.Handler = ForceSSL(mux)
	return s
}

// ForceSSL is an application with `force_ssl` that believes its proxy, as `mix phx.new` makes them: it redirects what the proxy does not
// say came to it encrypted.
func ForceSSL(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" {
			http.Redirect(w, r, "https://"+r.Host+r.URL.RequestURI(), http.StatusMovedPermanently)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Listen starts a listener on a free port of host and returns its base URL.
func (s *Server) Listen(host string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("listening on %s: %w", host, err)
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // a test without its server proves nothing
		}
	}()
	return "http://" + l.Addr().String(), nil
}

// Close ends all listeners and connections, also those that are silent.
func (s *Server) Close() error {
	close(s.stop)
	return s.http.Close()
}

// AfterBegun calls f some time after the first user came, if anybody comes before the server is closed.
func (s *Server) AfterBegun(d time.Duration, f func()) {
	go func() {
		select {
		case <-s.begun:
			time.AfterFunc(d, f)
		case <-s.stop:
		}
	}()
}

// Freeze answers nothing for a while, as a node without CPU time, and then everything that was asked meanwhile.
func (s *Server) Freeze(d time.Duration) {
	s.awake.Lock()
	defer s.awake.Unlock()
	time.Sleep(d)
}

// whenAwake waits until the server is not frozen.
func (s *Server) whenAwake() {
	s.awake.RLock()
	defer s.awake.RUnlock()
}

// Spared returns how often each of the spared users has stashed.
func (s *Server) Spared() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.spared))
}

// Users returns how many users have stashed.
func (s *Server) Users() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.store)
}

// faultFor returns what goes wrong for a user.
func (s *Server) faultFor(user string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.spared[user]; found {
		return None
	}
	if len(s.spared) < s.Spare {
		s.spared[user] = 0
		return None
	}
	return s.fault
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	s.begin.Do(func() { close(s.begun) })
	s.whenAwake()
	if status, found := statuses[s.fault]; found {
		http.Error(w, "no", status)
		return
	}
	switch s.fault {
	case SilentPage:
		<-s.stop
		return
	case NoLiveView:
		_, _ = fmt.Fprint(w, "<html><body>hello</body></html>")
		return
	default:
	}
	// As Phoenix does: who comes with a session keeps it and gets no new cookie.
	if user := cookie(r); user != "" {
		_, _ = fmt.Fprintf(w, page, user, user)
		return
	}
	user := rand.Text()
	http.SetCookie(w, &http.Cookie{Name: "_test_key", Value: user, Path: "/", HttpOnly: true})
	_, _ = fmt.Fprintf(w, page, user, user)
}

func (s *Server) socket(w http.ResponseWriter, r *http.Request) {
	s.whenAwake()
	if len(r.RequestURI) > longestURI {
		http.Error(w, "URI too long", http.StatusRequestURITooLong)
		return
	}
	fault := s.faultFor(cookie(r))
	switch fault {
	case SilentUpgrade:
		<-s.stop
		return
	case ForbiddenSocket:
		http.Error(w, "no", http.StatusForbidden)
		return
	default:
	}
	c, err := upgrade(w, r)
	if err != nil {
		return
	}
	s.Open.Add(1)
	defer s.Open.Add(-1)
	defer func() { _ = c.Close() }()
	if fault == SilentSocket {
		<-s.stop
		return
	}
	query := r.URL.Query()
	v := &view{Server: s, conn: c, fault: fault, user: cookie(r), csrf: query.Get("_csrf_token"), stashInURL: query.Get("liveStash[stashId]"),
		at: c.LocalAddr().String()}
	for {
		text, err := c.readText()
		if err != nil {
			return
		}
		s.whenAwake()
		if err := v.handle(text); err != nil {
			return
		}
	}
}

func cookie(r *http.Request) string {
	all := r.CookiesNamed("_test_key")
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// view is one LiveView process.
type view struct {
	*Server
	*conn
	fault                          Fault
	user, csrf, stashInURL, id, at string
	count                          int
}

type join struct {
	Session string `json:"session"`
	Params  struct {
		Mounts    json.RawMessage `json:"_mounts"`
		LiveStash struct {
			StashID string `json:"stashId"`
		} `json:"liveStash"`
	} `json:"params"`
}

var errEnd = errors.New("the fault ends this socket")

func (v *view) handle(text []byte) error {
	var frame [5]json.RawMessage
	if err := json.Unmarshal(text, &frame); err != nil {
		return fmt.Errorf("frame %s: %w", text, err)
	}
	var event string
	if err := json.Unmarshal(frame[3], &event); err != nil {
		return fmt.Errorf("event of %s: %w", text, err)
	}
	switch event {
	case "heartbeat":
		return v.reply(frame, "ok", map[string]any{})
	case "phx_join":
		return v.join(frame)
	case "event":
		return v.stash(frame)
	}
	return fmt.Errorf("unknown event %s", event)
}

func (v *view) join(frame [5]json.RawMessage) error {
	var j join
	if err := json.Unmarshal(frame[4], &j); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	again := string(j.Params.Mounts) != "0"
	// A browser has LiveStash's object in both places.
	if v.user == "" || v.user != v.csrf || v.user != j.Session || v.stashInURL != j.Params.LiveStash.StashID {
		v.Refused.Add(1)
		return v.reply(frame, "error", map[string]any{"reason": "stale"})
	}
	switch {
	case v.fault == Garbage:
		return v.writeFrame(opText, []byte("hello"))
	case v.fault == Stale && again:
		return v.reply(frame, "error", map[string]any{"reason": "stale"})
	}
	status := v.mount(j.Params.LiveStash.StashID, again)
	return v.reply(frame, "ok", map[string]any{"liveview_version": "1.2.10", "rendered": map[string]any{
		"0": status, "1": fmt.Sprint(v.count), "s": []string{"<p>", "</p><p>", "</p>"}, "r": 1,
		"e": []any{[]any{"live-stash:init-ets", map[string]string{"node": "n", "stashId": v.id}}},
	}})
}

func (v *view) mount(id string, again bool) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.id = rand.Text()
	if !again {
		return "new"
	}
	kept, found := v.store[id]
	if !found || v.fault == Forget || v.TTL > 0 && time.Now().After(kept.ends) {
		if v.fault == None {
			v.Disturbed.Add(1)
		}
		return "not_found"
	}
	if kept.at == v.at {
		v.Stayed.Add(1)
	}
	v.id, v.count = id, kept.count
	if v.fault == StaleCount {
		v.count--
	}
	return "recovered"
}

func (v *view) stash(frame [5]json.RawMessage) error {
	switch v.fault {
	case Crash:
		return v.send([5]any{frame[0], frame[1], frame[2], "phx_error", map[string]any{}})
	case CloseMidway:
		return errEnd
	default:
	}
	v.count++
	v.mu.Lock()
	v.store[v.id] = stashed{v.count, v.at, time.Now().Add(v.TTL)}
	if _, found := v.spared[v.user]; found {
		v.spared[v.user]++
	}
	v.mu.Unlock()
	diff := map[string]any{"1": fmt.Sprint(v.count)}
	if v.fault == BigStash {
		diff["e"] = []any{[]any{"live-stash:stash-state", map[string]string{"assigns": strings.Repeat("x", 12_000)}}}
	}
	if err := v.reply(frame, "ok", map[string]any{"diff": diff}); err != nil {
		return err
	}
	switch v.fault {
	case DropIdle:
		if v.dropped.Add(1)%2 == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // the answer is there before
		return errEnd
	case Restart:
		if err := v.closeWith(1012, "service restart"); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // lets the frame out before the connection ends
		return errEnd
	case SilentAfterStash:
		<-v.stop
		return errEnd
	default:
		return nil
	}
}

func (v *view) reply(frame [5]json.RawMessage, status string, response any) error {
	return v.send([5]any{frame[0], frame[1], frame[2], "phx_reply", map[string]any{"status": status, "response": response}})
}

func (v *view) send(frame [5]any) error {
	text, err := json.Marshal(frame)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	return v.writeFrame(opText, text)
}
