// Package inputs gives the operator what users get wrong, on a real API server: the tables of test/inputs, and objects that chance
// makes of good ones. There are no other controllers, so there are no pods: cases that need some run in test/e2e.
package inputs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/benchmark"
	"github.com/livestash-dev/livestash/operator/internal/controller/cluster"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
)

// repository is the root of the checkout.
var repository = filepath.Join("..", "..", "..", "..")

var (
	// api is a client of the tests' own, without a cache. raw is one that sends what no type would let through.
	api client.Client
	raw dynamic.Interface
	// known tells the schemas of Kubernetes' own kinds.
	known openapi.Client
	// seen is what the operator has in its cache: to look at it costs the API server nothing.
	seen client.Reader
	// logs is what the operator has logged, as it does in production.
	logs lines
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
		CRDDirectoryPaths:     []string{filepath.Join(repository, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	// Before anything else: whoever logs first is given a logger for good after half a minute.
	ctrl.SetLogger(zap.New(zap.WriteTo(&logs)))
	// Room for the Services of more fleets than 254.
	environment.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16")
	defer func() { err = errors.Join(err, environment.Stop()) }()
	config, err := environment.Start()
	if err != nil {
		return 0, err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	mgr, err := newOperator(config)
	if err != nil {
		return 0, err
	}
	api, err = client.New(config, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return 0, err
	}
	standard := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "example.com/none",
	}
	if err := api.Create(context.Background(), standard); err != nil {
		return 0, err
	}
	raw, err = dynamic.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	described, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, err
	}
	known, seen = described.OpenAPIV3(), mgr.GetClient()
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()
	code = m.Run()
	stop()
	return code, <-stopped
}

// newOperator is the whole operator.
func newOperator(config *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, manager.Options{Scheme: scheme, Cache: cluster.CacheOptions(), Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return nil, err
	}
	agents := agentclient.New()
	news := cluster.NewNews()
	observer := &observe.Observer{Agents: agents, Changed: news.Tell}
	named, err := cluster.NewNamed(mgr)
	if err != nil {
		return nil, err
	}
	tests, err := benchmark.NewTestsCache(mgr, nil)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	fleets := &cluster.Reconciler{
		Named: named, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("livestash-operator"),
		ClusterDomain: "cluster.local", AgentImage: "livestash-operator", RedisImage: "valkey", RedisExporterImage: "redis_exporter",
		Redis: redisadmin.New(), Agents: observer, News: news.Told, Clock: clock.RealClock{},
	}
	benchmarks := &benchmark.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Tests: tests, Clients: clients, Recorder: mgr.GetEventRecorder("livestash-operator"),
		Agents: observe.NewPool(agents, 0), Logs: runner.PodLogs{Clients: clients}, Job: &runner.Job{Reader: tests, HTTP: runner.NewHTTP()},
		ClusterDomain: "cluster.local", RunnerImage: "livestash-k6", StarterImage: "starter", Version: "test", Clock: clock.RealClock{},
	}
	return mgr, errors.Join(mgr.Add(observer), fleets.SetupWithManager(mgr, 16), benchmarks.SetupWithManager(mgr))
}

// lines are the lines of a log.
type lines struct {
	mutex sync.Mutex
	all   []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all = append(l.all, string(bytes.TrimSpace(p)))
	return len(p), nil
}

// failures are the lines that speak of an object and say that something broke: errors, which have a stack trace, and panics.
func (l *lines) failures(object client.Object) []string {
	return l.where(func(line string) bool {
		return speaksOf(line, object) && (strings.Contains(line, `"level":"error"`) || strings.Contains(line, "panic"))
	})
}

// mistakes are the lines at level info that speak of an object and give that reason.
func (l *lines) mistakes(object client.Object, reason string) []string {
	return l.where(func(line string) bool {
		return speaksOf(line, object) && strings.Contains(line, `"level":"info"`) && says(line, "reason", reason)
	})
}

// with are the lines that have a text in them.
func (l *lines) with(text string) []string {
	return l.where(func(line string) bool { return strings.Contains(line, text) })
}

func (l *lines) where(wanted func(line string) bool) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(l.all), func(line string) bool { return !wanted(line) })
}

func speaksOf(line string, object client.Object) bool {
	return says(line, "namespace", object.GetNamespace()) && says(line, "name", object.GetName())
}

func says(line, key, value string) bool {
	return strings.Contains(line, fmt.Sprintf("%q:%q", key, value))
}
