package agentclient_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/observe"
)

const (
	hostileAgents = 200
	hostileAnswer = 1 << 20
	// held is what hostile agents may have the operator hold at once, of the 256 MiB that its chart gives it.
	held = 32 << 20
)

// meter counts the bytes that have come in over connections that are open.
type meter struct{ now, most atomic.Int64 }

type metered struct {
	net.Conn
	meter *meter
	read  atomic.Int64
	once  sync.Once
}

func (m *metered) Read(into []byte) (int, error) {
	n, err := m.Conn.Read(into)
	m.read.Add(int64(n))
	for now, most := m.meter.now.Add(int64(n)), m.meter.most.Load(); now > most && !m.meter.most.CompareAndSwap(most, now); {
		most = m.meter.most.Load()
	}
	return n, err
}

func (m *metered) Close() error {
	m.once.Do(func() { m.meter.now.Add(-m.read.Load()) })
	return m.Conn.Close()
}

// Two hundred agents answer a megabyte each, to every question of both who ask; half of them send as much as is read and then go silent, so
// that what was read stays. What the operator holds is bounded by how many it asks at once and by how much of an answer it reads.
func TestHostileAgentsAreHeldInBounds(t *testing.T) {
	var questions sync.Map
	status := `{"node":"a@b","reason":"` + strings.Repeat("x", hostileAnswer) + `"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(agentclient.Header, "0.1.0")
		number, _ := questions.LoadOrStore(r.RemoteAddr, len(r.URL.Path))
		if number.(int)%2 == 0 {
			_, _ = io.WriteString(w, status)
			return
		}
		_, _ = io.WriteString(w, status[:agentclient.MaxBody-1024])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)

	seen := &meter{}
	agents := agentclient.New()
	agents.Wrap(func(c net.Conn) net.Conn { return &metered{Conn: c, meter: seen} })

	ctx, cancel := context.WithCancel(t.Context())
	counted := &counting{asks: agents, left: hostileAgents, done: make(chan struct{})}
	observer := &observe.Observer{Agents: counted}
	pool := observe.NewPool(agents, 0)
	var working sync.WaitGroup
	working.Go(func() { _ = observer.Start(ctx) })
	var targets []observe.Target
	for i := range hostileAgents {
		targets = append(targets, observe.Target{UID: types.UID(fmt.Sprint(i)), IP: at.IP.String(), Port: int32(at.Port)})
		working.Go(func() { _, _ = pool.Metrics(ctx, at.IP.String(), int32(at.Port)) })
	}
	observer.Track(types.NamespacedName{Name: "hostile"}, observe.Resting, targets)
	<-counted.done
	cancel()
	working.Wait()
	if most := seen.most.Load(); most > held || most < 10*agentclient.MaxBody {
		t.Errorf("%d bytes of answers were held at once, want at most %d, and more than a few", most, held)
	}
}

// Of one answer no more is read than its bound, and a buffer.
func TestAnswersAreNotReadToTheirEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(agentclient.Header, "0.1.0")
		_, _ = io.WriteString(w, strings.Repeat("x", 4*hostileAnswer))
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)
	seen := &meter{}
	agents := agentclient.New()
	agents.Wrap(func(c net.Conn) net.Conn { return &metered{Conn: c, meter: seen} })
	_, err := agents.Status(t.Context(), at.IP.String(), int32(at.Port))
	if most := seen.most.Load(); err == nil || most > 2*agentclient.MaxBody {
		t.Errorf("%d bytes of an answer were read, of which %d may be: %v", most, agentclient.MaxBody, err)
	}
}

// counting tells when as many questions have come to an end.
type counting struct {
	asks observe.Agents
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (c *counting) Status(ctx context.Context, ip string, port int32) (agentclient.Status, error) {
	status, err := c.asks.Status(ctx, ip, port)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		close(c.done)
	}
	return status, err
}

// An answer of 64 KiB can be read into a hundred times as much. So only a few are read at once, whoever asks.
func TestAnswersAreReadAFewAtATime(t *testing.T) {
	var families strings.Builder
	for i := 0; families.Len() < agentclient.MaxBody-16; i++ {
		_, _ = fmt.Fprintf(&families, "a%x 1\n", i)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(agentclient.Header, "0.1.0")
		_, _ = io.WriteString(w, families.String())
	}))
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)
	agents := agentclient.New()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := agents.Metrics(t.Context(), at.IP.String(), int32(at.Port)); err == nil {
		t.Fatal("it is taken for an agent's metrics")
	}
	runtime.ReadMemStats(&after)
	each := int(after.TotalAlloc - before.TotalAlloc)
	t.Logf("reading one takes %d bytes", each)
	var mutex sync.Mutex
	reading, most := 0, 0
	full := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(full) })
	enter := func(by int) {
		mutex.Lock()
		defer mutex.Unlock()
		reading += by
		if most = max(most, reading); most == agents.ReadAtOnce() {
			isFull()
		}
	}
	var asking sync.WaitGroup
	for range 4 * agents.ReadAtOnce() {
		asking.Go(func() {
			agents.ReadWith(t.Context(), at.IP.String(), int32(at.Port), func() {
				enter(1)
				select {
				case <-full:
				case <-time.After(10 * time.Second):
				}
				time.Sleep(20 * time.Millisecond) // in which one too many would come in
				enter(-1)
			})
		})
	}
	asking.Wait()
	if most != agents.ReadAtOnce() {
		t.Errorf("%d answers were read at once, want %d", most, agents.ReadAtOnce())
	}
	if most := each * agents.ReadAtOnce(); most > held {
		t.Errorf("%d answers are read at once, of %d bytes each: %d bytes, want at most %d", agents.ReadAtOnce(), each, most, held)
	}
}
