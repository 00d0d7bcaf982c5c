package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/observe"
)

// The operator runs against a real API server. There are no other controllers: nothing makes pods, nothing deletes what
// has lost its owner. That is the end-to-end tests' business.
var (
	// api is a client of the tests' own, without a cache, and connection is how it reaches the API server: with all rights.
	api        client.Client
	connection *rest.Config
	// newNamed is what watches named objects for a reconciler of a test's own.
	newNamed func() (*named.Watcher, error)
	// underTest is the reconciler that the manager runs.
	underTest *Reconciler
	// operatorTime is what the operator takes for the time.
	operatorTime suite.Clock
	// requests counts what the operator asks of the API server, watches and the events' recorder apart.
	requests atomic.Int64
	// written is what the operator has written, in its order: "PATCH /apis/apps/v1/namespaces/web/statefulsets/shop".
	written lockedList
	// secretsAsked are the queries with which the operator has listed and watched Secrets.
	secretsAsked lockedList
	// agents is what the agents say, to an observer like the operator's.
	agents = &saidByAgents{}
	// redisServers are the Redis servers that the operator talks to.
	redisServers = &toldToRedis{}
	// logs is everything that the operator has logged.
	logs lockedBuffer
)

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need an API server, see `make test-operator`:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	var own *rest.Config
	connection, own, err = suite.AsOperator(environment, "cluster")
	if err != nil {
		return 0, err
	}

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return 0, err
	}
	api, err = client.New(connection, client.Options{Scheme: scheme})
	if err != nil {
		return 0, err
	}

	ctrl.SetLogger(zap.New(zap.WriteTo(&logs), zap.UseDevMode(true)))
	counted := rest.CopyConfig(own)
	counted.Wrap(countRequests)
	mgr, err := ctrl.NewManager(counted, manager.Options{
		Scheme:  scheme,
		Cache:   CacheOptions(),
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return 0, err
	}
	told := NewNews()
	observer := &observe.Observer{Agents: agents, Changed: told.Tell}
	if err := mgr.Add(observer); err != nil {
		return 0, err
	}
	newNamed = func() (*named.Watcher, error) { return NewNamed(mgr) }
	watcher, err := newNamed()
	if err != nil {
		return 0, err
	}
	underTest = &Reconciler{
		Named:              watcher,
		Client:             leaves{mgr.GetClient()},
		Live:               mgr.GetAPIReader(),
		Recorder:           mgr.GetEventRecorder("livestash-operator"),
		ClusterDomain:      "cluster.local",
		Agents:             observer,
		News:               told.Told,
		Redis:              redisServers,
		RedisImage:         "valkey",
		RedisExporterImage: "redis_exporter",
		AgentImage:         "ghcr.io/livestash-dev/livestash-operator:0.1.0",
		Clock:              &operatorTime,
		SeesNodes:          true,
	}
	if err := underTest.SetupWithManager(mgr, 4); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()
	code = m.Run()
	stop()
	return code, <-stopped
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func countRequests(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		isEvent := bytes.Contains([]byte(r.URL.Path), []byte("/events"))
		if r.URL.Query().Get("watch") == "" && !isEvent {
			requests.Add(1)
		}
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") {
			secretsAsked.add(r.URL.Path + "?" + r.URL.RawQuery)
		}
		if r.Method != http.MethodGet && !isEvent {
			written.add(r.Method + " " + r.URL.Path)
		}
		return next.RoundTrip(r)
	})
}

// requestsAtRest waits until the passes that earlier writes brought about have ended, which is when nothing has been asked in
// fifty looks, for a second at least, and returns how much had been asked by then. A process that stood still for a second has not looked.
func requestsAtRest(t *testing.T) int64 {
	t.Helper()
	asked := requests.Load()
	for quiet, end := 0, time.Now().Add(time.Minute); quiet < 50; time.Sleep(20 * time.Millisecond) {
		quiet++
		if now := requests.Load(); now != asked {
			asked, quiet = now, 0
		}
		if time.Now().After(end) {
			t.Fatalf("the operator has been asking for a minute: %d requests by now", asked)
		}
	}
	return asked
}

// costsNothing checks that what is done costs the operator no request, three times on end. Before that it may have something left to write:
// some of it waits for a quarter of a minute.
func costsNothing(t *testing.T, what string, do func()) {
	t.Helper()
	for clean, late := 0, 0; clean < 3; {
		before := requestsAtRest(t)
		do()
		switch asked := requests.Load() - before; {
		case asked == 0:
			clean++
		case late == 2:
			t.Fatalf("%s: %d requests", what, asked)
		default:
			clean, late = 0, late+1
		}
	}
}

type lockedList struct {
	mutex sync.Mutex
	list  []string
}

func (l *lockedList) add(line string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.list = append(l.list, line)
}

// of are those with the text in them.
func (l *lockedList) of(text string) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(l.list), func(line string) bool { return !strings.Contains(line, text) })
}

type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

// newCluster applies the smallest LiveStashCluster, changed by change.
func newCluster(t *testing.T, namespace string, change func(*v1alpha1.LiveStashClusterSpec)) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := &v1alpha1.LiveStashCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"},
		Spec:       v1alpha1.LiveStashClusterSpec{Image: "ghcr.io/acme/shop:1", Adapter: v1alpha1.AdapterETS},
	}
	if change != nil {
		change(&cluster.Spec)
	}
	if cluster.Spec.Rollout.Surge == "" {
		cluster.Spec.Rollout.Surge = v1alpha1.SurgeAuto // pods keep their names
	}
	suite.Must(t, api.Create(t.Context(), cluster))
	// Passes over what no test looks at any more would be in the way of those that count requests.
	t.Cleanup(func() { _ = api.Delete(context.Background(), cluster) })
	return cluster
}

// changeSpec changes a LiveStashCluster's spec as `kubectl edit` would.
func changeSpec(t *testing.T, cluster *v1alpha1.LiveStashCluster, change func(*v1alpha1.LiveStashClusterSpec)) {
	t.Helper()
	before := cluster.DeepCopy()
	change(&cluster.Spec)
	suite.Must(t, api.Patch(t.Context(), cluster, client.MergeFrom(before)))
}
