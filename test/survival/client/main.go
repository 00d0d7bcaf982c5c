// Command client holds the sessions of `make survival` in a pod of the fleet's namespace. The driver leads it over HTTP.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

func main() {
	sessions := crowd.NewServer(browser.Usual())
	server := &http.Server{Addr: ":8080", Handler: sessions.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "survival client:", err)
		os.Exit(1)
	}
	sessions.Stop()
}
