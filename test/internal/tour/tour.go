// Package tour is the page that `make demo` ends with: two fleets of the same application, one with the agent and one
// without, side by side, and a button that deploys to both.
//
// The page and the two applications are served under names of their own, because both applications set a cookie of the
// same name: tour.localhost, with.tour.localhost and without.tour.localhost. Browsers take such names for this machine,
// and all three for one site, so that the applications keep their cookies inside of frames.
//
// The way to the pods is `kubectl livestash open`. The API server's own proxy would drop the query of a WebSocket's
// address, which says who the user is.
package tour

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/livestash-dev/livestash/test/internal/liveview"
)

const (
	// host is the page's name. That of a side's application has the side before it.
	host = "tour.localhost"
	// pagePath is the application's page.
	pagePath = "/stash/ets"
	// answerWithin bounds what the API server is asked for.
	answerWithin = 10 * time.Second
)

//go:embed page
var files embed.FS

// Side is one of the two fleets.
type Side struct {
	// Name is in the application's host name, and in the page.
	Name string
	// Cluster is the name of the LiveStashCluster, whose spec.http.host is Host().
	Cluster string
}

// Sides are the tour's.
func Sides() []Side {
	return []Side{{Name: "with", Cluster: "with-agent"}, {Name: "without", Cluster: "without-agent"}}
}

// Host is the name under which a browser sees its application.
func (s Side) Host() string { return s.Name + "." + host }

// Options are what a tour is made of.
type Options struct {
	// Config is how the API server is reached, with the rights to read and patch the fleets.
	Config *rest.Config
	// Addresses are where this machine leads to the fleets' ready pods, by side: see Open.
	Addresses map[string]string
	// Namespace of both fleets.
	Namespace string
	// Users is how many others each side has.
	Users int
	// StashEvery is the mean time between two stashes of one of them.
	StashEvery time.Duration
}

// Tour is a running one.
type Tour struct {
	options Options
	fleets  fleets
	users   map[string]*users
	page    http.Handler
	proxies map[string]http.Handler

	// deploying is held while the button is answered.
	deploying sync.Mutex
}

// New is a tour that nobody sees yet.
func New(o Options) (*Tour, error) {
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	pages, err := fs.Sub(files, "page")
	if err != nil {
		return nil, err
	}
	t := &Tour{
		options: o, fleets: fleets{client.CoreV1().RESTClient(), o.Namespace},
		users: map[string]*users{}, proxies: map[string]http.Handler{},
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(pages))
	mux.HandleFunc("GET /state", t.state)
	mux.HandleFunc("POST /deploy", t.deploy)
	// Other pages in the same browser cannot press the button, nor lay themselves over it.
	t.page = http.NewCrossOriginProtection().Handler(own(mux))
	for _, side := range Sides() {
		t.proxies[side.Host()] = t.proxy(side)
	}
	return t, nil
}

// own allows the page what it needs, and nothing else.
func own(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-src http://*."+host+":*; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// Serve serves the tour until the context ends.
func (t *Tour) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	var living sync.WaitGroup
	for _, side := range Sides() {
		client := liveview.NewClient(net.JoinHostPort(side.Host(), port), pagePath)
		u := newUsers(client, address, t.options.StashEvery, t.options.Users)
		t.users[side.Name] = u
		living.Go(func() { u.run(ctx) })
	}
	server := &http.Server{Handler: t, ReadHeaderTimeout: answerWithin}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	err = server.Serve(listener)
	cancel()
	living.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Address is the page's, for who listens there.
func Address(listener net.Listener) (string, error) {
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return "", err
	}
	return "http://" + net.JoinHostPort(host, port) + "/", nil
}

// ServeHTTP answers under the tour's names only, so that no page of another name can speak to it.
func (t *Tour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		name, port = r.Host, "80"
	}
	switch proxy := t.proxies[name]; {
	case proxy != nil:
		proxy.ServeHTTP(w, r)
	case name == host:
		t.page.ServeHTTP(w, r)
	case name == "localhost" || name == "127.0.0.1":
		http.Redirect(w, r, "http://"+net.JoinHostPort(host, port)+"/", http.StatusFound)
	default:
		http.Error(w, "The tour is at http://"+net.JoinHostPort(host, port)+"/", http.StatusMisdirectedRequest)
	}
}

// proxy leads to a side's pods. Each request has a connection of its own, so that none goes to a pod that is on its way out.
func (t *Tour) proxy(side Side) http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: t.options.Addresses[side.Name]})
			r.Out.Host = r.In.Host
		},
		// A page that is loaded while no pod serves is loaded again.
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode >= http.StatusInternalServerError {
				response.Header.Set("Refresh", "1")
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Refresh", "1")
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
}

// shown is what the page shows.
type shown struct {
	// Release is the newest that was asked for.
	Release int `json:"release"`
	// Settled is whether both sides have it everywhere, so that the button may be pressed.
	Settled bool            `json:"settled"`
	Sides   map[string]side `json:"sides"`
}

type side struct {
	fleet
	tally
}

func (t *Tour) look(ctx context.Context) (shown, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	now := shown{Settled: true, Sides: map[string]side{}}
	for _, s := range Sides() {
		seen, err := t.fleets.look(ctx, s.Cluster)
		if err != nil {
			return shown{}, err
		}
		now.Sides[s.Name] = side{seen, t.users[s.Name].tally()}
		now.Settled = now.Settled && seen.Settled
		now.Release = max(now.Release, seen.release)
	}
	return now, nil
}

func (t *Tour) state(w http.ResponseWriter, r *http.Request) {
	now, err := t.look(r.Context())
	answer(w, now, err)
}

// deploy asks for the next release on both sides.
func (t *Tour) deploy(w http.ResponseWriter, r *http.Request) {
	t.deploying.Lock()
	defer t.deploying.Unlock()
	now, err := t.look(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	if !now.Settled {
		http.Error(w, "A deploy is on its way. Wait until both sides are done.", http.StatusConflict)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	for _, s := range Sides() {
		t.users[s.Name].begin()
	}
	for _, s := range Sides() {
		err = errors.Join(err, t.fleets.deploy(ctx, s.Cluster, now.Release+1))
	}
	answer(w, map[string]int{"release": now.Release + 1}, err)
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
