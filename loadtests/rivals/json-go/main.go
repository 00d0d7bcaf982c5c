// Command json-go answers POST /api/sum as a Go programmer would write it: net/http, encoding/json, and nothing else.
//
//	PORT   port to listen on, of every address of the machine; default 4000
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	// longest body of a request, in bytes
	maxBody = 1 << 10
	// how long requests that are under way may take after SIGTERM
	grace = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("PORT"))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done, and then until requests that are under way have their answers.
func run(ctx context.Context, port string) error {
	if port == "" {
		port = "4000"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("PORT=%s: set it to a port from 0 to 65535", port)
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	log.Printf("listening on %s", listener.Addr())
	server := newServer()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}

// newServer returns a server with limits for clients that are slow, silent or gone. Go's own default has none.
func newServer() *http.Server {
	routes := http.NewServeMux()
	routes.HandleFunc("POST /api/sum", sum)
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		// as long as Bandit keeps a connection on which nothing happens
		IdleTimeout: 60 * time.Second,
	}
}

type question struct {
	// pointers, because 0 is a number and nothing is not
	A *int64 `json:"a"`
	B *int64 `json:"b"`
}

type answer struct {
	Result int64 `json:"result"`
}

type refusal struct {
	Error string `json:"error"`
}

// sum answers {"a": 1, "b": 2} with {"result": 3}.
func sum(w http.ResponseWriter, r *http.Request) {
	var asked question
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		reply(w, http.StatusRequestEntityTooLarge, refusal{fmt.Sprintf("the body must have at most %d bytes", maxBody)})
		return
	}
	if err != nil || asked.A == nil || asked.B == nil {
		reply(w, http.StatusBadRequest, refusal{"a and b must be integers"})
		return
	}
	reply(w, http.StatusOK, answer{*asked.A + *asked.B})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// What fails here is the client's connection, and then nobody is there to be told.
	_ = json.NewEncoder(w).Encode(body)
}
