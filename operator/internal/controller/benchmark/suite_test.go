package benchmark

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/cluster"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

// The operator runs against a real API server. There are no other controllers: the tests are the kubelet, the controller of
// Jobs, k6-operator and the operator's other half, which makes fleets.
var (
	// api is a client of the tests' own, without a cache.
	api client.Client
	// connection is how the operator reaches the API server.
	connection *rest.Config
	// operator is the one that runs.
	operator *running
	// operatorTime is what the operator takes for the time.
	operatorTime suite.Clock
	// logsOfPods are the ends of the pods' logs.
	logsOfPods sync.Map
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
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{testRuns()},
		ErrorIfCRDPathMissing: true,
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	admin, own, err := suite.AsOperator(environment, "benchmark")
	if err != nil {
		return 0, err
	}
	connection = own
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	api, err = client.New(admin, client.Options{Scheme: scheme()})
	if err != nil {
		return 0, err
	}
	operator, err = startOperator()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go collectGarbage(ctx)
	code = m.Run()
	return code, operator.stop()
}

// collectGarbage removes the pods of tests that are gone, as the garbage collector would.
func collectGarbage(ctx context.Context) {
	for ctx.Err() == nil {
		pods := &corev1.PodList{}
		if err := api.List(ctx, pods, client.HasLabels{runner.TestLabel}); err != nil {
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			key := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[runner.TestLabel]}
			if apierrors.IsNotFound(api.Get(ctx, key, &batchv1.Job{})) && apierrors.IsNotFound(api.Get(ctx, key, testRun(metav1.ObjectMeta{}))) {
				_ = api.Delete(ctx, pod, client.GracePeriodSeconds(0)) // gone already, or next time
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// testRuns is a stand-in for k6-operator's kind.
func testRuns() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "testruns.k6.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: runner.TestRunKind.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: runner.TestRunKind.Kind, Plural: "testruns", Singular: "testrun"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: runner.TestRunKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
}

func scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// running is an operator that runs.
type running struct {
	cancel  context.CancelFunc
	stopped chan error
	// tests is its cache of TestRuns and of what they make.
	tests client.Reader
	// known is its cache of everything else.
	known client.Reader
}

func (r *running) stop() error {
	r.cancel()
	return <-r.stopped
}

// startOperator starts an operator that knows nothing but what the API server has.
func startOperator() (*running, error) {
	mgr, err := ctrl.NewManager(connection, manager.Options{
		Scheme:     scheme(),
		Cache:      cluster.CacheOptions(),
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // there is more than one in a test's life
	})
	if err != nil {
		return nil, err
	}
	tests, err := NewTestsCache(mgr, nil)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	reconciler := &Reconciler{
		Client:        mgr.GetClient(),
		Live:          mgr.GetAPIReader(),
		Tests:         tests,
		Clients:       clients,
		Recorder:      mgr.GetEventRecorder("livestash-operator"),
		Agents:        idleAgents{},
		Logs:          keptLogs{},
		Job:           &runner.Job{Reader: tests, HTTP: &http.Client{Transport: pausedK6{}}},
		ClusterDomain: "cluster.local",
		RunnerImage:   "livestash-k6",
		StarterImage:  "starter",
		UsageImage:    "operator",
		RedisImage:    "redis",
		Namespace:     "livestash-system",
		Version:       "test",
		Clock:         &operatorTime,
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, stopped: make(chan error), tests: tests, known: mgr.GetClient()}
	go func() { r.stopped <- mgr.Start(ctx) }()
	return r, nil
}

// hasSeen waits until the operator's cache has an object as the test has it, or as it is since then.
func hasSeen[T client.Object](t *testing.T, from client.Reader, object T) {
	t.Helper()
	suite.Eventually(t, func() error {
		cached, ok := object.DeepCopyObject().(T)
		if !ok {
			return errors.New("a copy is of another kind")
		}
		err := from.Get(t.Context(), client.ObjectKeyFromObject(object), cached)
		if err != nil {
			return err
		}
		order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), object.GetResourceVersion())
		if err == nil && order < 0 {
			err = fmt.Errorf("the operator sees %s %s, not %s", object.GetName(), cached.GetResourceVersion(), object.GetResourceVersion())
		}
		return err
	})
}

// idleAgents belong to fleets that do nothing.
type idleAgents struct{}

func (idleAgents) Metrics(context.Context, string, int32) (agentclient.Metrics, error) {
	return agentclient.Metrics{Processes: 100}, nil
}

func (idleAgents) Usage(context.Context, string, int32) (agentclient.Metrics, error) {
	return agentclient.Metrics{PodOnly: true, PodMemory: ptr.To(1e6), PodCPUSeconds: ptr.To(1.0)}, nil
}

// keptLogs are what the tests have put into logsOfPods.
type keptLogs struct{}

func (keptLogs) Tail(_ context.Context, _, pod, _ string) (string, error) {
	text, _ := logsOfPods.Load(pod)
	tail, _ := text.(string)
	return tail, nil
}

// pausedK6 is k6's API on every address.
type pausedK6 struct{}

func (pausedK6) RoundTrip(request *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	_, err := fmt.Fprintf(answer, `{"data": {"attributes": {"paused": %v}}}`, request.Method == http.MethodGet)
	return answer.Result(), err
}
