// Command chat-go is a chat of rooms: what a member of a room sends reaches all its members, the sender too.
//
//	PORT   port to listen on, of every address of the machine; default 4000
package main

import (
	"context"
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

// how long members have to answer the close frame after SIGTERM
const grace = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("PORT"))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done, and then says goodbye to every member.
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
	chat := newHub()
	server := newServer(chat)
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
	chat.close(ctx)
	return nil
}

func newServer(chat *hub) *http.Server {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /rooms/{room}", chat.serve)
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 60 * time.Second}
}
