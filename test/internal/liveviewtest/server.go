// Package liveviewtest is a LiveView server that keeps stashes as LiveStash does, and misbehaves when a test asks it to.
package liveviewtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// Server is one application. All its addresses share the stashes, as the pods of a fleet do.
type Server struct {
	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	counts  map[string]int
	sockets map[*websocket.Conn]bool
	visits  int
	joins   int

	hang        bool
	muteStashes bool
	dropStashes bool
	forget      bool
	refuse      string
	rewind      int
}

// New is a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{t: t, counts: map[string]int{}, sockets: map[*websocket.Conn]bool{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.Hang(false)
		s.CloseAll(websocket.StatusGoingAway)
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// Address is where the server listens, host:port.
func (s *Server) Address() string { return strings.TrimPrefix(s.server.URL, "http://") }

// Hang makes the server take connections, and from open sockets messages, without ever answering.
func (s *Server) Hang(on bool) { s.set(func() { s.hang = on }) }

// MuteStashes makes the server store stashes without acknowledging them.
func (s *Server) MuteStashes(on bool) { s.set(func() { s.muteStashes = on }) }

// DropStashes makes the server acknowledge stashes without storing them.
func (s *Server) DropStashes(on bool) { s.set(func() { s.dropStashes = on }) }

// Forget makes the server find no stash.
func (s *Server) Forget(on bool) { s.set(func() { s.forget = on }) }

// Rewind makes the server find each counter n too low, as an old copy would be.
func (s *Server) Rewind(n int) { s.set(func() { s.rewind = n }) }

// RefuseJoins makes the server refuse joins with this reason; not when it is empty.
func (s *Server) RefuseJoins(reason string) { s.set(func() { s.refuse = reason }) }

// CloseAll closes the open sockets with this code; below 0 it drops the connections without a close frame.
func (s *Server) CloseAll(code websocket.StatusCode) {
	s.mu.Lock()
	open := make([]*websocket.Conn, 0, len(s.sockets))
	for conn := range s.sockets {
		open = append(open, conn)
	}
	s.mu.Unlock()
	for _, conn := range open {
		if code < 0 {
			_ = conn.CloseNow()
			continue
		}
		go func() { _ = conn.Close(code, "") }()
	}
}

// Seen is how often pages were loaded and views joined.
func (s *Server) Seen() (visits, joins int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visits, s.joins
}

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *Server) hangs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hang
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.hangs() {
		<-r.Context().Done()
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/stash/") {
		s.serveSocket(w, r)
		return
	}
	s.set(func() { s.visits++ })
	http.SetCookie(w, &http.Cookie{Name: "session", Value: "c1"})
	_, _ = fmt.Fprint(w, `<!DOCTYPE html><html><head><meta name="csrf-token" content="a&amp;b"></head><body>
		<div id="phx-1" data-phx-main data-phx-session="se" data-phx-static="st">`+"<p>0</p></div></body></html>")
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("_csrf_token") != "a&b" || r.URL.Query().Get("vsn") != "2.0.0" || r.Header.Get("Cookie") != "session=c1" {
		http.Error(w, "csrf token, vsn or cookie is wrong", http.StatusForbidden)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	s.set(func() { s.sockets[conn] = true })
	defer s.set(func() { delete(s.sockets, conn) })
	defer func() { _ = conn.CloseNow() }()
	v := &view{server: s, conn: conn}
	for {
		_, text, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		if s.hangs() {
			continue
		}
		if err := v.handle(text); err != nil {
			s.t.Log("the test's server:", err)
			return
		}
	}
}

// statics are what is around the page's status and counter.
var statics = []string{
	`<p>Status <output id="status">`, `</output></p><p>Count <output id="count">`, `</output></p><button phx-click="stash">Stash</button>`,
}

// view is the process behind one socket.
type view struct {
	server *Server
	conn   *websocket.Conn
	id     string
	count  int
}

type message struct {
	joinRef, ref *string
	topic, event string
	payload      struct {
		URL    string `json:"url"`
		Params struct {
			Mounts    int `json:"_mounts"`
			LiveStash struct {
				StashID      string `json:"stashId"`
				StashedState *int   `json:"stashedState"`
			} `json:"liveStash"`
		} `json:"params"`
		Event string `json:"event"`
	}
}

func (v *view) handle(text []byte) error {
	var m message
	var parts [5]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	for i, to := range []any{&m.joinRef, &m.ref, &m.topic, &m.event, &m.payload} {
		if err := json.Unmarshal(parts[i], to); err != nil {
			return err
		}
	}
	switch m.event {
	case "heartbeat":
		return v.reply(m, "ok", map[string]any{})
	case "phx_join":
		return v.join(m)
	case "event":
		return v.stash(m)
	}
	return fmt.Errorf("unknown event %q", m.event)
}

func (v *view) join(m message) error {
	s := v.server
	s.mu.Lock()
	s.joins++
	refuse := s.refuse
	status, events := v.mount(m)
	s.mu.Unlock()
	if refuse != "" {
		return v.reply(m, "error", map[string]any{"reason": refuse})
	}
	rendered := map[string]any{"0": status, "1": fmt.Sprint(v.count), "s": 0, "p": map[string]any{"0": statics}, "r": 1, "e": events}
	return v.reply(m, "ok", map[string]any{"liveview_version": "1.2.10", "rendered": rendered})
}

// mount finds the stash of a client that was here before. The server's lock is held.
func (v *view) mount(m message) (status string, events []any) {
	s, params := v.server, m.payload.Params
	v.count, v.id = 0, params.LiveStash.StashID
	if v.id == "" || params.Mounts == 0 {
		v.id = fmt.Sprintf("id-%d", s.joins)
	}
	browser := strings.HasSuffix(m.payload.URL, "/browser_memory")
	if browser {
		v.id = ""
		if params.Mounts == 0 {
			events = append(events, []any{"live-stash:init-browser-memory", map[string]any{}})
		}
	} else {
		events = append(events, []any{"live-stash:init-ets", map[string]any{"stashId": v.id, "node": "N"}})
	}
	if params.Mounts == 0 {
		return "new", events
	}
	count, found := s.counts[v.id]
	if browser && params.LiveStash.StashedState != nil {
		count, found = *params.LiveStash.StashedState, true
	}
	if s.forget || !found {
		return "not_found", events
	}
	v.count = count - s.rewind
	return "recovered", events
}

func (v *view) stash(m message) error {
	s := v.server
	v.count++
	s.mu.Lock()
	if !s.dropStashes {
		s.counts[v.id] = v.count
	}
	mute := s.muteStashes
	s.mu.Unlock()
	if mute {
		return nil
	}
	diff := map[string]any{"1": fmt.Sprint(v.count)}
	if v.id == "" {
		diff["e"] = []any{[]any{"live-stash:stash-state", map[string]any{"assigns": v.count}}}
	}
	return v.reply(m, "ok", map[string]any{"diff": diff})
}

func (v *view) reply(m message, status string, response any) error {
	text, err := json.Marshal([]any{m.joinRef, m.ref, m.topic, "phx_reply", map[string]any{"status": status, "response": response}})
	if err != nil {
		return err
	}
	return v.conn.Write(context.Background(), websocket.MessageText, text)
}
