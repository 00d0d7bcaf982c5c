package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// ends are the pods of a Service as the API server would have them, and servers that stand for them.
type ends struct {
	mutex sync.Mutex
	ready []kube.Endpoint
	looks int
	dials int
	// refuses is a pod that takes no connection though it is ready.
	refuses string
}

func (e *ends) set(pods ...string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.ready = nil
	for _, pod := range pods {
		e.ready = append(e.ready, kube.Endpoint{Pod: pod})
	}
}

func (e *ends) to(context.Context) ([]kube.Endpoint, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.looks++
	return e.ready, nil
}

// served is a connection to a pod that says its name, then whatever it is told.
type served struct {
	net.Conn
	ended error
}

// Close is for what is sent to the pod alone.
func (s served) Close() error { return s.Conn.(*net.TCPConn).CloseWrite() }

func (s served) End() error {
	_ = s.Conn.Close()
	return s.ended
}

// dial connects to a pod that says its name, gives back all that it is sent, and then goodbye.
func (e *ends) dial(to kube.Endpoint) (stream, error) {
	e.mutex.Lock()
	e.dials++
	refused := to.Pod == e.refuses
	e.mutex.Unlock()
	if refused {
		return nil, errors.New("the pod is gone")
	}
	pod, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with its only connection
	if err != nil {
		return nil, err
	}
	go func() {
		conn, err := pod.Accept()
		_ = pod.Close()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, "%s: ", to.Pod)
		_, _ = io.Copy(conn, conn)
		_, _ = io.WriteString(conn, " goodbye")
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", pod.Addr().String()) //nolint:noctx // it is on this machine
	if err != nil {
		return nil, err
	}
	return served{Conn: conn}, nil
}

// opened serves a way until the test ends, and returns its address.
func opened(t *testing.T, w way) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	suite.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		suite.Must(t, <-ended)
	})
	return listener.Addr().String()
}

// says sends a word, and returns all that comes back.
func says(t *testing.T, address, word string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address) //nolint:noctx // it is on this machine
	suite.Must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, word)
	suite.Must(t, err)
	suite.Must(t, conn.(*net.TCPConn).CloseWrite())
	suite.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	out, err := io.ReadAll(conn)
	suite.Must(t, err)
	return string(out)
}

func TestOpenLeadsToWhoIsReady(t *testing.T) {
	pods := &ends{}
	pods.set("shop-0")
	address := opened(t, way{to: pods.to, dial: pods.dial, said: io.Discard, within: time.Minute})

	// What was sent last still arrives, and so does what the pod says to it.
	if got := says(t, address, "hello"); got != "shop-0: hello goodbye" {
		t.Errorf("the pod that is ready says %q", got)
	}
	open, err := net.Dial("tcp", address) //nolint:noctx // it is on this machine
	suite.Must(t, err)
	defer func() { _ = open.Close() }()
	name := make([]byte, len("shop-0: "))
	_, err = io.ReadFull(open, name)
	suite.Must(t, err)

	pods.set("shop-1")
	time.Sleep(lookForPod)
	if got := says(t, address, "again"); got != "shop-1: again goodbye" {
		t.Errorf("after another pod became ready %q", got)
	}
	// A connection stays with its pod.
	_, err = io.WriteString(open, "still")
	suite.Must(t, err)
	suite.Must(t, open.(*net.TCPConn).CloseWrite())
	if rest, err := io.ReadAll(open); string(rest) != "still goodbye" {
		t.Errorf("the one from before says %q, %v", rest, err)
	}
}

func TestOpenWaitsForAPod(t *testing.T) {
	pods := &ends{refuses: "shop-0"}
	address := opened(t, way{to: pods.to, dial: pods.dial, said: io.Discard, within: time.Minute})
	heard := make(chan string, 1)
	go func() { heard <- says(t, address, "hello") }()
	time.Sleep(100 * time.Millisecond)
	pods.set("shop-0") // ready, and gone when it is dialled
	for deadline := time.Now().Add(30 * time.Second); ; {
		pods.mutex.Lock()
		tried := pods.dials
		pods.mutex.Unlock()
		if tried > 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	pods.set("shop-1")
	if got := <-heard; got != "shop-1: hello goodbye" || pods.dials < 2 {
		t.Errorf("%q after %d tries", got, pods.dials)
	}
}

// A page with many users must not exhaust what its client may ask of the API server.
func TestOpenLooksForAllAtOnce(t *testing.T) {
	pods := &ends{}
	pods.set("shop-0")
	address := opened(t, way{to: pods.to, dial: pods.dial, said: io.Discard, within: time.Minute})
	begun := time.Now()
	var told sync.WaitGroup
	for range 50 {
		told.Go(func() {
			if got := says(t, address, "hello"); got != "shop-0: hello goodbye" {
				t.Errorf("the pod says %q", got)
			}
		})
	}
	told.Wait()
	if most := 1 + int(time.Since(begun)/lookForPod); pods.looks > most {
		t.Errorf("%d looks for 50 connections, not at most %d", pods.looks, most)
	}
}

// Ctrl-C ends it, also while a connection is being made that gets no answer.
func TestOpenEnds(t *testing.T) {
	pods := &ends{}
	pods.set("shop-0")
	dialled, silent := make(chan struct{}), make(chan struct{})
	defer close(silent)
	w := way{to: pods.to, said: io.Discard, within: time.Minute, dial: func(kube.Endpoint) (stream, error) {
		close(dialled)
		<-silent
		return nil, errors.New("too late")
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	suite.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.serve(ctx, listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String()) //nolint:noctx // it is on this machine
	suite.Must(t, err)
	defer func() { _ = conn.Close() }()
	<-dialled
	cancel()
	select {
	case err := <-ended:
		suite.Must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for a pod that does not answer")
	}
}

// words is a buffer that one writes and another reads.
type words struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.Buffer.Write(p)
}

func (w *words) String() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.Buffer.String()
}

func TestOpenSaysThatThereIsNoPod(t *testing.T) {
	pods, said := &ends{refuses: "shop-0"}, &words{}
	pods.set("shop-0")
	address := opened(t, way{to: pods.to, dial: pods.dial, said: said, within: 600 * time.Millisecond})
	if got := says(t, address, ""); got != "" {
		t.Errorf("somebody says %q", got)
	}
	for deadline := time.Now().Add(30 * time.Second); !strings.HasSuffix(said.String(), "\n") && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	wants(t, said.String(), "no pod took it within 600ms", "the pod is gone")
}

// Where the Service leads to is what its EndpointSlices say, not which pods look ready: in a rollout it leads to some of them.
func TestEndpoints(t *testing.T) {
	namespace := suite.Namespace(t, api)
	access, err := kube.To(connection, namespace)
	suite.Must(t, err)
	end := func(address, pod string, ready *bool) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
		if pod != "" {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod, Namespace: namespace}
		}
		return e
	}
	slice := func(name, service string, family discoveryv1.AddressType, ends ...discoveryv1.Endpoint) {
		suite.Must(t, api.Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: family, Endpoints: ends,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](4000)}, {Name: ptr.To("agent"), Port: ptr.To[int32](9568)}},
		}))
	}
	slice("shop-4", "shop", discoveryv1.AddressTypeIPv4, end("10.0.0.1", "shop-1", ptr.To(true)), end("10.0.0.2", "shop-2", ptr.To(false)), end("10.0.0.3", "shop-3", nil), end("10.0.0.4", "", nil))
	slice("shop-6", "shop", discoveryv1.AddressTypeIPv6, end("fd00::1", "shop-1", ptr.To(true)))
	slice("blog-4", "blog", discoveryv1.AddressTypeIPv4, end("10.0.0.5", "blog-0", ptr.To(true)))
	found, err := access.Endpoints(t.Context(), "shop", "http")
	suite.Must(t, err)
	want := []kube.Endpoint{{Namespace: namespace, Pod: "shop-1", Port: 4000}, {Namespace: namespace, Pod: "shop-3", Port: 4000}}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("it leads to %v, want %v", found, want)
	}
}

func TestOpenedAs(t *testing.T) {
	for name, want := range map[string][2]string{
		"":                     {"localhost", ""},
		"shop.example.com":     {"localhost", "shop.example.com"},
		"with.tour.localhost":  {"with.tour.localhost", ""},
		"localhost":            {"localhost", ""},
		"notlocalhost.example": {"localhost", "notlocalhost.example"},
	} {
		c := &v1alpha1.LiveStashCluster{}
		c.Spec.HTTP.Host = name
		if host, foreign := openedAs(c); host != want[0] || foreign != want[1] {
			t.Errorf("%q is opened as %q, and takes itself for %q", name, host, foreign)
		}
	}
}

func TestOpenNeedsAPort(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	suite.Must(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	suite.Must(t, err)
	_, err = run(t, c.Namespace, "open", "--port", port)
	refused(t, err, "choose another one with --port")
}
