package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

const (
	// openPort is the port on this machine that is listened on by default: Phoenix' own.
	openPort = 4000
	// podWithin is how long a connection waits for a pod that can take it.
	podWithin = 30 * time.Second
	// lookForPod is the time between two looks at where the Service leads, whoever asks: a client of the API server may ask five times a second.
	lookForPod = 250 * time.Millisecond
)

func (t *tool) openCommand() *cobra.Command {
	port := openPort
	command := &cobra.Command{
		Use:   "open [NAME]",
		Short: "A port of this machine that leads to the application, also through a rollout",
		Long: "A port of this machine that leads to the application, also through a rollout: each new connection goes to one of the ready pods " +
			"that the fleet's Service leads to at that moment. (`kubectl port-forward` chooses one pod, and ends with it.) " +
			"It listens on 127.0.0.1 alone, until it is stopped with Ctrl-C.",
		Example:           "  kubectl livestash open shop --port 8080",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.open(command.Context(), one(args), port) },
	}
	command.Flags().IntVarP(&port, "port", "p", openPort, "the port of this machine; 0: any that is free")
	return command
}

func (t *tool) open(ctx context.Context, name string, port int) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: choose another one with --port", err)
	}
	_, chosen, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	host, foreign := openedAs(c)
	t.sayf("http://%s leads to the ready pods of %s. Ctrl-C ends it.", net.JoinHostPort(host, chosen), c.Name)
	if foreign != "" {
		t.sayf("The application takes itself for %s: without //localhost in its check_origin it refuses the socket of a page that is opened here.", foreign)
	}
	w := way{
		to: func(ctx context.Context) ([]kube.Endpoint, error) {
			return access.Endpoints(ctx, c.Name, fleet.HTTPPort)
		},
		dial: func(e kube.Endpoint) (stream, error) { return access.Dial(e) },
		said: t.ErrOut, within: podWithin,
	}
	return w.serve(ctx, listener)
}

// openedAs is the name under which a browser on this machine opens the application, and, if that is another one, the name that it takes itself
// for.
func openedAs(c *v1alpha1.LiveStashCluster) (host, foreign string) {
	name := c.Spec.HTTP.Host
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return name, ""
	}
	return "localhost", name
}

// stream is a connection to a pod, which is closed for what is sent to it alone.
type stream interface {
	io.ReadWriteCloser
	// End ends it for both sides, and says why it did not work.
	End() error
}

// way is the one from a port of this machine to the pods.
type way struct {
	// to are the pods that can take a connection now.
	to   func(context.Context) ([]kube.Endpoint, error)
	dial func(kube.Endpoint) (stream, error)
	// said takes what goes wrong.
	said io.Writer
	// within is how long a connection waits for a pod.
	within time.Duration
}

// serve leads every connection to a pod until the context ends. Then it does not wait for those that are being made: the API server may take its time.
func (w way) serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.to = shared(w.to)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			if err := w.lead(ctx, conn); err != nil && ctx.Err() == nil {
				_, _ = fmt.Fprintf(w.said, "A connection ended: %s\n", text.Safe(err.Error()))
			}
		}()
	}
}

// shared is the same look for all who come within lookForPod.
func shared(look func(context.Context) ([]kube.Endpoint, error)) func(context.Context) ([]kube.Endpoint, error) {
	var mutex sync.Mutex
	var at time.Time
	var pods []kube.Endpoint
	var err error
	return func(ctx context.Context) ([]kube.Endpoint, error) {
		mutex.Lock()
		defer mutex.Unlock()
		if time.Since(at) >= lookForPod {
			pods, err = look(ctx)
			at = time.Now()
		}
		return pods, err
	}
}

// lead is the life of one connection.
func (w way) lead(ctx context.Context, conn net.Conn) error {
	closeConn := func() { _ = conn.Close() }
	defer closeConn()
	stop := context.AfterFunc(ctx, closeConn)
	defer stop()
	pod, err := w.pod(ctx)
	if err != nil {
		return err
	}
	// Either side may have said all, and still listen. It is over when the pod has.
	go func() {
		_, _ = io.Copy(pod, conn)
		_ = pod.Close()
	}()
	_, _ = io.Copy(conn, pod)
	closeConn()
	return pod.End()
}

// pod is a connection to one of the pods, as soon as there is one.
func (w way) pod(ctx context.Context) (stream, error) {
	ctx, cancel := context.WithTimeout(ctx, w.within)
	defer cancel()
	for {
		pods, err := w.to(ctx)
		if len(pods) > 0 {
			var found stream
			if found, err = w.dial(pods[rand.IntN(len(pods))]); err == nil { //nolint:gosec // which pod it is need not be secret
				return found, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("no pod took it within %s", w.within), err)
		case <-time.After(lookForPod):
		}
	}
}
