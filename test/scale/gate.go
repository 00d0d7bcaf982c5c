package main

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// trouble is what an API server behind the gate is like.
type trouble struct {
	// away: connections end, and new ones do as well.
	away bool
	// delay is how much later each request is passed on.
	delay time.Duration
	// refuseEvery is how many requests there are for each that fails. 0: none does.
	refuseEvery int
}

// gate stands between the operators and the API server, counts what they ask for, and makes trouble.
type gate struct {
	server *httptest.Server
	next   http.Handler

	mutex   sync.Mutex
	trouble trouble
	// asked are all requests, watches and leases included, and the connections that came while the API server was away.
	asked []asked
	// passed is how many requests there were since the trouble began, refused how many of them have failed.
	passed, refused int
	open            map[net.Conn]struct{}
}

// asked is a request that has come to the gate.
type asked struct {
	at time.Time
	// by is the replica that it is of. Empty: a connection that came while the API server was away.
	by string
	// changes is whether it is for changing something, but for a Lease.
	changes bool
}

// startGate leads to the API server of the configuration. Who comes through it brings its own credentials.
func startGate(config *rest.Config) (*gate, error) {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	g := &gate{next: proxy, open: map[net.Conn]struct{}{}}
	g.server = httptest.NewUnstartedServer(g)
	g.server.Listener = &gateListener{Listener: g.server.Listener, gate: g}
	g.server.EnableHTTP2 = true
	g.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	g.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	g.server.StartTLS()
	return g, nil
}

// stop ends all connections.
func (g *gate) stop() {
	g.set(trouble{away: true})
	g.server.Close()
}

// cluster is what the kubeconfig of a replica says of the gate, which knows it by the path.
func (g *gate) cluster(replica string) *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{
		Server:                   g.server.URL + "/" + replica,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw}),
	}
}

// set ends the trouble of before and makes another.
func (g *gate) set(t trouble) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.trouble, g.passed, g.refused = t, 0, 0
	if t.away {
		for c := range g.open {
			_ = c.Close() // it is to end, however it does
		}
	}
}

// between is what was asked for from the one time until before the other.
func (g *gate) between(from, until time.Time) []asked {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(g.asked), func(one asked) bool { return one.at.Before(from) || !one.at.Before(until) })
}

// changesOf is how much a replica was about to change since that time.
func (g *gate) changesOf(replica string, since time.Time) int {
	return len(slices.DeleteFunc(g.between(since, time.Now()), func(one asked) bool { return one.by != replica || !one.changes }))
}

// failure is how a request fails.
type failure int

const (
	fine failure = iota
	tooMany
	unavailable
	cutOff
	// unheard: the request is carried out, and its answer is lost.
	unheard
)

// take counts a request, and says what becomes of it.
func (g *gate) take(one asked, watch bool) (failure, time.Duration) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.asked = append(g.asked, one)
	g.passed++
	every := g.trouble.refuseEvery
	if every == 0 || g.passed%every != 0 {
		return fine, g.trouble.delay
	}
	kinds := []failure{tooMany, unavailable, unheard, cutOff}
	if watch {
		kinds = []failure{tooMany, unavailable, cutOff}
	}
	kind := kinds[g.refused%len(kinds)]
	g.refused++
	return kind, g.trouble.delay
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	replica, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	r.URL.Path, r.URL.RawPath = "/"+path, ""
	one := asked{at: time.Now(), by: replica, changes: r.Method != http.MethodGet && !strings.HasPrefix(path, "apis/coordination.k8s.io/")}
	fails, delay := g.take(one, r.URL.Query().Get("watch") != "")
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	switch fails {
	case fine:
		g.next.ServeHTTP(w, r)
	case tooMany:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "TooManyRequests")
	case unavailable:
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case unheard:
		g.next.ServeHTTP(&unheardOf{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case cutOff:
		panic(http.ErrAbortHandler)
	}
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused by the measurement","reason":%q,"code":%d}`, reason, code)
}

// unheardOf takes an answer that nobody hears.
type unheardOf struct {
	header http.Header
	bytes.Buffer
}

func (u *unheardOf) Header() http.Header { return u.header }
func (u *unheardOf) WriteHeader(int)     {}

// gateListener ends connections at once while the API server is away.
type gateListener struct {
	net.Listener
	gate *gate
}

func (l *gateListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.gate.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close() // it is to end, however it does
	}
}

// admit is nil while the API server is away.
func (g *gate) admit(c net.Conn) net.Conn {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.trouble.away {
		g.asked = append(g.asked, asked{at: time.Now()})
		return nil
	}
	admitted := &gateConn{Conn: c, gate: g}
	g.open[admitted] = struct{}{}
	return admitted
}

type gateConn struct {
	net.Conn
	gate *gate
	once sync.Once
}

func (c *gateConn) Close() error {
	c.once.Do(func() {
		// Not at once: who closes all connections holds the lock.
		go func() {
			c.gate.mutex.Lock()
			defer c.gate.mutex.Unlock()
			delete(c.gate.open, c)
		}()
	})
	return c.Conn.Close()
}
