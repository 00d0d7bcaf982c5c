package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/livestash-dev/livestash/test/internal/browser"
)

// Server is the HTTP API by which the driver leads the users:
//
//	POST /soak/open       a Plan: opens its users; those of an earlier plan are stopped
//	POST /soak/store      {"away": true}: the store is about to be away; false: it is back
//	POST /soak/check      every user comes back once more
//	POST /soak/stop       all users end
//	GET  /soak/report     a Report, at any time
//	GET  /soak/progress   the same without findings
//
// What cannot be done is answered with 409 and a sentence.
type Server struct {
	pace  browser.Pace
	mu    sync.Mutex
	users *Users
}

// NewServer has no users yet.
func NewServer(pace browser.Pace) *Server { return &Server{pace: pace} }

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /soak/open", order(s.open))
	mux.HandleFunc("POST /soak/store", order(s.store))
	mux.HandleFunc("POST /soak/check", order(func(*http.Request) error { return s.with((*Users).Check) }))
	mux.HandleFunc("POST /soak/stop", order(func(*http.Request) error { s.Stop(); return nil }))
	mux.HandleFunc("GET /soak/report", s.tell(func(*Report) {}))
	mux.HandleFunc("GET /soak/progress", s.tell(func(r *Report) { r.Findings = nil }))
	return mux
}

// Stop ends all users.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users != nil {
		s.users.Stop()
		s.users = nil
	}
}

func (s *Server) open(r *http.Request) error {
	var plan Plan
	if err := json.NewDecoder(r.Body).Decode(&plan); err != nil {
		return fmt.Errorf("the plan cannot be read: %w", err)
	}
	s.Stop()
	all, err := Open(plan, s.pace)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = all
	return nil
}

func (s *Server) store(r *http.Request) error {
	var order struct {
		Away bool `json:"away"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		return fmt.Errorf("away cannot be read: %w", err)
	}
	return s.with(func(all *Users) { all.Store(order.Away) })
}

func (s *Server) with(do func(*Users)) error {
	s.mu.Lock()
	all := s.users
	s.mu.Unlock()
	if all == nil {
		return errors.New("there are no users: open some first")
	}
	do(all)
	return nil
}

func order(do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(r); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}

func (s *Server) tell(shorten func(*Report)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		err := s.with(func(all *Users) {
			report := all.Report()
			shorten(&report)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(report)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}
