package tour

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"k8s.io/client-go/rest"

	"github.com/livestash-dev/livestash/test/internal/chromium"
	"github.com/livestash-dev/livestash/test/internal/liveviewtest"
)

// namespace of the fleets that are not there.
const namespace = "livestash-demo"

// deployTakes is how long a deploy takes there.
const deployTakes = 2 * time.Second

// apiServer is what the tour sees of a Kubernetes: two fleets. The one without the agent forgets its stashes in a
// deploy.
type apiServer struct {
	t    *testing.T
	apps map[string]*liveviewtest.Server
	// addresses are where this machine leads to them.
	addresses map[string]string

	mu       sync.Mutex
	releases map[string]int
	deployed time.Time
}

func newAPIServer(t *testing.T) (*apiServer, *rest.Config) {
	a := &apiServer{t: t, apps: map[string]*liveviewtest.Server{}, addresses: map[string]string{}, releases: map[string]int{}}
	mux := http.NewServeMux()
	for _, side := range Sides() {
		a.apps[side.Name] = liveviewtest.New(t)
		cluster := "/apis/livestash.dev/v1alpha1/namespaces/" + namespace + "/livestashclusters/" + side.Cluster
		mux.HandleFunc("GET "+cluster, func(w http.ResponseWriter, _ *http.Request) { a.cluster(w, side) })
		mux.HandleFunc("PATCH "+cluster, func(w http.ResponseWriter, r *http.Request) { a.patch(w, r, side) })
		pods := httptest.NewServer(a.pod(side))
		t.Cleanup(pods.Close)
		a.addresses[side.Name] = strings.TrimPrefix(pods.URL, "http://")
	}
	mux.HandleFunc("GET /api/v1/namespaces/"+namespace+"/pods", a.pods)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return a, &rest.Config{Host: server.URL}
}

func (a *apiServer) settled() bool { return time.Since(a.deployed) > deployTakes }

func (a *apiServer) cluster(w http.ResponseWriter, side Side) {
	a.mu.Lock()
	defer a.mu.Unlock()
	progressing := "False"
	if !a.settled() {
		progressing = "True"
	}
	_, _ = fmt.Fprintf(w, `{"metadata":{"generation":1},"spec":{"env":[{"name":"TOUR_RELEASE","value":"%d"}]},
		"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"},
			{"type":"Progressing","status":%q,"message":"Waiting for a pod."}]}}`,
		max(a.releases[side.Name], 1), progressing)
}

func (a *apiServer) pods(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	leaving := ""
	if !a.settled() {
		leaving = `"deletionTimestamp":"2026-01-02T15:04:05Z",`
	}
	_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{%s"name":"pod-0"},
		"spec":{"containers":[{"name":"app","env":[{"name":"TOUR_RELEASE","value":"7"}]}]},
		"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`, leaving)
}

func (a *apiServer) patch(w http.ResponseWriter, r *http.Request, side Side) {
	var patch livestashcluster
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		a.t.Error(err)
	}
	a.mu.Lock()
	a.deployed, a.releases[side.Name] = time.Now(), releaseOf(patch.Spec.Env)
	a.mu.Unlock()
	a.apps[side.Name].Forget(side.Name == "without")
	a.apps[side.Name].CloseAll(websocket.StatusServiceRestart)
	_, _ = io.WriteString(w, "{}")
}

// pod is a pod of a side. Each application knows its own cookie only.
func (a *apiServer) pod(side Side) http.Handler {
	cookie := "session=" + side.Name
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: a.apps[side.Name].Address()})
			if r.In.Header.Get("Cookie") == cookie {
				r.Out.Header.Set("Cookie", "session=c1")
			}
		},
		ModifyResponse: func(response *http.Response) error {
			if response.Header.Get("Set-Cookie") == "" {
				return nil
			}
			response.Header.Set("Set-Cookie", cookie+"; path=/; HttpOnly; SameSite=Lax")
			page, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			added := `<script defer src="/assets/live.js"></script><p id="connection"></p>`
			response.Body, response.ContentLength = io.NopCloser(strings.NewReader(string(page)+added)), -1
			response.Header.Del("Content-Length")
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/assets/live.js" {
			http.ServeFile(w, r, filepath.Join("..", "..", "..", "loadtests", "workloads", "otp", "priv", "live.js"))
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// start serves a tour until the test ends, and returns the page's address.
func start(t *testing.T, config *rest.Config, addresses map[string]string) string {
	t.Helper()
	running, err := New(Options{Config: config, Addresses: addresses, Namespace: namespace, Users: 8, StashEvery: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	address, err := Address(listener)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- running.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}

// The tour is seen as its visitors see it, in a real browser: two frames with cookies of their own, and a deploy.
func TestAVisit(t *testing.T) {
	if _, err := chromium.Program(); err != nil {
		if os.Getenv("BROWSER_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	a, config := newAPIServer(t)
	address := start(t, config, a.addresses)
	pictures := t.TempDir()
	seen, err := Visit(t.Context(), address, pictures)
	if err != nil {
		t.Fatal(err)
	}
	// Programs are back within milliseconds, all of them.
	want := Seen{With: SeenSide{Count: visitStashes, Kept: 8}, Without: SeenSide{Lost: 8}}
	if seen != want {
		t.Errorf("the visitor has seen\n%s\nwant\n%s", seen, want)
	}
	for _, side := range Sides() {
		if a.releases[side.Name] != 2 {
			t.Errorf("%s the agent runs release %d", side.Name, a.releases[side.Name])
		}
	}
	for _, name := range []string{"tour-before.png", "tour-deploy.png", "tour-after.png"} {
		if png, err := os.ReadFile(filepath.Join(pictures, name)); err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
			t.Errorf("%s is no picture: %v", name, err)
		}
	}
}

// Only the page itself may press the button, and only when no deploy is on its way.
func TestWhoMayDeploy(t *testing.T) {
	a, config := newAPIServer(t)
	address := start(t, config, a.addresses)
	at := strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, host, path, origin string) (status int, location string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode, response.Header.Get("Location")
	}
	for _, refused := range []struct {
		why, host, origin string
		status            int
	}{
		{"another page", at, "http://shop.example", http.StatusForbidden},
		{"an application in a frame", at, "http://with." + at, http.StatusForbidden},
		{"another name", "evil.example:" + port, "http://evil.example:" + port, http.StatusMisdirectedRequest},
	} {
		if got, _ := ask(http.MethodPost, refused.host, "/deploy", refused.origin); got != refused.status {
			t.Errorf("%s: the answer is %d, not %d", refused.why, got, refused.status)
		}
	}
	if len(a.releases) != 0 {
		t.Fatalf("something was deployed: %v", a.releases)
	}
	if got, _ := ask(http.MethodPost, at, "/deploy", "http://"+at); got != http.StatusOK {
		t.Errorf("the page itself: %d", got)
	}
	if got, _ := ask(http.MethodPost, at, "/deploy", "http://"+at); got != http.StatusConflict {
		t.Errorf("again at once: %d", got)
	}
	status, to := ask(http.MethodGet, "localhost:9000", "/", "")
	if status != http.StatusFound || to != "http://tour.localhost:9000/" {
		t.Errorf("localhost leads to %d %s", status, to)
	}
}

// A page that is loaded while no pod serves is loaded again.
func TestAPageOfNoPod(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no pod is ready": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		},
		"the connection ends": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := httptest.NewServer(answer)
			defer pods.Close()
			addresses := map[string]string{"with": strings.TrimPrefix(pods.URL, "http://")}
			tour, err := New(Options{Config: &rest.Config{}, Addresses: addresses, Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			got := httptest.NewRecorder()
			page := "http://with.tour.localhost:8321" + pagePath
			tour.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, page, nil))
			if got.Code < http.StatusInternalServerError || got.Header().Get("Refresh") != "1" {
				t.Errorf("the answer is %d, Refresh is %q", got.Code, got.Header().Get("Refresh"))
			}
		})
	}
}

// The way to a WebSocket has the query, by which the page says who it is, and the host, which the application compares
// with the page's origin.
func TestTheWayToThePods(t *testing.T) {
	var asked http.Request
	pods := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = *r }))
	defer pods.Close()
	tour, err := New(Options{Config: &rest.Config{}, Addresses: map[string]string{"with": strings.TrimPrefix(pods.URL, "http://")}, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	socket := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://with.tour.localhost:8321/live/websocket?vsn=2.0.0&_csrf_token=x", nil)
	tour.ServeHTTP(httptest.NewRecorder(), socket)
	if asked.RequestURI != "/live/websocket?vsn=2.0.0&_csrf_token=x" || asked.Host != "with.tour.localhost:8321" {
		t.Errorf("the pod is asked for %s of %s", asked.RequestURI, asked.Host)
	}
}

// Where the plugin listens is in the first line that it writes.
func TestOpened(t *testing.T) {
	for line, want := range map[string]string{
		"http://with.tour.localhost:41234 leads to the ready pods of with-agent. Ctrl-C ends it.\n": "127.0.0.1:41234",
		"http://with.tour.localhost leads\n": "",
		"Error: no such thing\n":             "",
		"":                                   "",
	} {
		if got, err := opened(line); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
}

// What the operator says of a fleet.
func TestSettled(t *testing.T) {
	for name, c := range map[string]struct {
		cluster string
		settled bool
		status  string
	}{
		"not seen yet": {`{"metadata":{"generation":2},"status":{"observedGeneration":1}}`,
			false, "The operator has not seen the change yet."},
		"new": {`{"metadata":{"generation":1},"status":{"observedGeneration":1}}`,
			false, "The operator has not seen the fleet yet."},
		"not ready": {`{"status":{"conditions":[{"type":"Progressing","status":"False"},
			{"type":"Ready","status":"False","message":"Pod x-0 starts."}]}}`,
			false, "Pod x-0 starts."},
		"done": {`{"status":{"conditions":[{"type":"Progressing","status":"False"},
			{"type":"Ready","status":"True"}]}}`, true, "All pods run the newest release."},
	} {
		t.Run(name, func(t *testing.T) {
			var cluster livestashcluster
			if err := json.Unmarshal([]byte(c.cluster), &cluster); err != nil {
				t.Fatal(err)
			}
			if settled, status := cluster.settled(); settled != c.settled || status != c.status {
				t.Errorf("settled is %v, %q", settled, status)
			}
		})
	}
}

// A visit that shows nothing is no success.
func TestVerdict(t *testing.T) {
	good := Seen{With: SeenSide{Count: visitStashes, Kept: 20}, Without: SeenSide{Lost: 1, Kept: 19}}
	if err := good.verdict(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Seen){
		"the visitor lost the state":      func(s *Seen) { s.With.Count = 0 },
		"another user lost it":            func(s *Seen) { s.With.Lost = 1 },
		"nobody had to come back":         func(s *Seen) { s.With.Kept = 0 },
		"nobody lost it without an agent": func(s *Seen) { s.Without.Lost = 0 },
	} {
		bad := good
		change(&bad)
		if bad.verdict() == nil {
			t.Errorf("%s, and nothing is said", name)
		}
	}
}
