package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/livestash-dev/livestash/test/internal/chromium"
	"github.com/livestash-dev/livestash/test/internal/tour"
)

// The page that `make demo` ends with answers, and a visitor sees on it what it is there for.
func TestTour(t *testing.T) {
	t.Parallel()
	if _, err := chromium.Program(); err != nil {
		if os.Getenv("BROWSER_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := newSpace(t, "tour")
	manifest, err := os.ReadFile(filepath.Join(repository(), "hack", "demo", "tour.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.must(strings.NewReplacer("@REGISTRY@", registry, "@VERSION@", version).Replace(string(manifest)), "apply", "-f", "-")
	for _, side := range tour.Sides() {
		s.must("", "wait", "lsc/"+side.Cluster, "--for=condition=Ready", "--timeout=4m")
	}

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	addresses, closed, err := tour.Open(context.Background(), plugin(), s.name)
	if err != nil {
		t.Fatal(err)
	}
	defer closed()
	page, err := tour.New(tour.Options{Config: config, Addresses: addresses, Namespace: s.name, Users: 8, StashEvery: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	address, err := tour.Address(listener)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- page.Serve(ctx, listener) }()
	seen, err := tour.Visit(ctx, address, "")
	stop()
	t.Log(seen)
	if err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
