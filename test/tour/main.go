// Command tour serves the page that `make demo` ends with, or visits it.
//
//	go run ./tour -namespace livestash-demo
//	go run ./tour -visit http://tour.localhost:8321/ -pictures ../docs/images
//
// Serving needs KUBECONFIG, the fleets of hack/demo/tour.yaml and the plugin kubectl-livestash; it listens on 127.0.0.1
// only. A visit needs Chromium: it stashes on both sides, deploys, and fails unless every user with the agent kept the
// state and some without it lost theirs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/livestash-dev/livestash/test/internal/tour"
)

func main() {
	port := flag.Int("port", 8321, "The port on 127.0.0.1.")
	namespace := flag.String("namespace", "livestash-demo", "Where the fleets are.")
	plugin := flag.String("plugin", "kubectl-livestash", "The plugin, which leads to the fleets' pods.")
	users := flag.Int("users", 8, "How many other users each side has.")
	visited := flag.String("visit", "", "The address of a page to visit, instead of serving one.")
	pictures := flag.String("pictures", "", "A folder for pictures of the visit. Empty: none.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("no other words are expected after the flags")
	switch {
	case flag.NArg() > 0:
	case *visited != "":
		err = visit(ctx, *visited, *pictures)
	default:
		err = serve(ctx, *port, *namespace, *plugin, *users)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the process ends, and with it what stop would undo
	}
}

func serve(ctx context.Context, port int, namespace, plugin string, users int) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("KUBECONFIG: %w", err)
	}
	addresses, stop, err := tour.Open(ctx, plugin, namespace)
	if err != nil {
		return err
	}
	defer stop()
	t, err := tour.New(tour.Options{Config: config, Addresses: addresses, Namespace: namespace, Users: users, StashEvery: 5 * time.Second})
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("choose another port with TOUR_PORT: %w", err)
	}
	address, err := tour.Address(listener)
	if err != nil {
		return err
	}
	fmt.Println(address)
	return t.Serve(ctx, listener)
}

func visit(ctx context.Context, address, pictures string) error {
	seen, err := tour.Visit(ctx, address, pictures)
	if err != nil {
		return err
	}
	fmt.Println(seen)
	return nil
}
