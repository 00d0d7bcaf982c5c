package crowd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
)

// Server is the HTTP API by which the driver leads a crowd:
//
//	POST /open      a Plan: opens its sessions; those of an earlier plan are stopped
//	POST /begin     an event starts
//	POST /effect    the event takes effect
//	POST /verify    {"withinMs": 60000}: every session is checked
//	POST /stop      all sessions end
//	GET  /report    a Report, at any time
//
// What cannot be done is answered with 409 and a sentence.
type Server struct {
	pace  browser.Pace
	mu    sync.Mutex
	crowd *Crowd
}

// NewServer has no sessions yet.
func NewServer(pace browser.Pace) *Server { return &Server{pace: pace} }

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /open", s.answer(s.open))
	mux.HandleFunc("POST /begin", s.answer(s.with(func(c *Crowd, _ *http.Request) error { return c.Begin() })))
	mux.HandleFunc("POST /effect", s.answer(s.with(func(c *Crowd, _ *http.Request) error { c.Effect(); return nil })))
	mux.HandleFunc("POST /restash", s.answer(s.with(func(c *Crowd, _ *http.Request) error { c.Restash(); return nil })))
	mux.HandleFunc("POST /verify", s.answer(s.with(verify)))
	mux.HandleFunc("POST /stop", s.answer(func(*http.Request) error { s.Stop(); return nil }))
	mux.HandleFunc("GET /report", s.answer(s.with(func(*Crowd, *http.Request) error { return nil })))
	return mux
}

// Stop ends all sessions.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crowd != nil {
		s.crowd.Stop()
		s.crowd = nil
	}
}

func (s *Server) open(r *http.Request) error {
	var plan Plan
	if err := json.NewDecoder(r.Body).Decode(&plan); err != nil {
		return fmt.Errorf("the plan cannot be read: %w", err)
	}
	s.Stop()
	crowd, err := Open(plan, s.pace)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.crowd = crowd
	s.mu.Unlock()
	return nil
}

func verify(c *Crowd, r *http.Request) error {
	var order struct {
		WithinMS int `json:"withinMs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		return fmt.Errorf("withinMs cannot be read: %w", err)
	}
	return c.Verify(time.Duration(order.WithinMS) * time.Millisecond)
}

// current is the crowd, or nil.
func (s *Server) current() *Crowd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crowd
}

func (s *Server) with(do func(*Crowd, *http.Request) error) func(*http.Request) error {
	return func(r *http.Request) error {
		crowd := s.current()
		if crowd == nil {
			return errors.New("there are no sessions: open some first")
		}
		return do(crowd, r)
	}
}

// answer is the report after something was done, or why it could not be.
func (s *Server) answer(do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(r); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		var report Report
		if crowd := s.current(); crowd != nil {
			report = crowd.Report()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report)
	}
}
