// Command client holds the sessions of `make survival`, or the users of `make soak`, in a pod of the fleet's namespace. The driver
// leads it over HTTP.
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
	"github.com/livestash-dev/livestash/test/soak/users"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

func main() {
	sessions := crowd.NewServer(browser.Usual())
	soaking := users.NewServer(browser.Usual())
	mux := http.NewServeMux()
	mux.Handle("/", sessions.Handler())
	mux.Handle("/soak/", soaking.Handler())
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
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
	soaking.Stop()
}
