// Package benchmark runs LiveStashBenchmarks: one run after another, each as a load test of its own against a target that is
// ready. Reconcile is a list of named steps, one file each.
//
// All that is known of a run is in the benchmark's status, in its report and in the objects that the run has made, so that
// another operator can take over at any moment.
package benchmark

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// Reconciler runs LiveStashBenchmarks.
type Reconciler struct {
	// Client reads benchmarks, fleets and their pods from the cache.
	client.Client

	// Live reads from the API server: reports, and what the user refers to.
	Live client.Reader

	// Tests is a cache of its own for what the load tests are made of: see NewTestsCache.
	Tests cache.Cache

	// Clients reads the ends of logs, and the version of Kubernetes.
	Clients kubernetes.Interface

	// Recorder tells users what happened.
	Recorder recorder.EventRecorder

	// Agents asks the agents in the fleets' pods, only so many at once.
	Agents Agents

	// Logs reads the ends of failed runners' logs.
	Logs runner.Logs

	// Job runs tests where there is no k6-operator.
	Job runner.Runner

	// ClusterDomain is the DNS domain of the Kubernetes cluster.
	ClusterDomain string

	// RunnerImage and StarterImage are the images of k6 and of k6-operator's starter.
	RunnerImage, StarterImage string

	// UsageImage and RedisImage are those of what is in the pods of a server besides it: the operator's own, and a Redis.
	UsageImage, RedisImage string

	// Namespace is the operator's own. Empty when it runs outside of the cluster.
	Namespace string

	// Version is the operator's own, for reports.
	Version string

	// Clock tells the time.
	Clock clock.PassiveClock

	// controller is told to watch TestRuns as soon as there are any.
	controller      controller.Controller
	testRunsWatched sync.Mutex
	watchesTestRuns bool

	// turns is held while a benchmark looks whether its turn has come.
	turns sync.Mutex
	// recordings are the samples of the runs that are under way.
	recordings recordings
	// cooling is since when the fleets of runs are gone, troubled since when a runner of a test has ended too early, starting since when a
	// server is awaited.
	cooling, troubled, starting sync.Map
	// mistakes are those of users, for the log.
	mistakes reconcile.Mistakes
}

// Agents asks the agent of a pod for its figures, or where there is none the helper for what the pod uses.
type Agents interface {
	Metrics(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error)
	Usage(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error)
}

// pass is one run of the steps for one LiveStashBenchmark.
type pass struct {
	reconcile.Pass

	benchmark *v1alpha1.LiveStashBenchmark
	// runs are the planned ones, in the order of the status' rows.
	runs []loadtest.Run
	// row and run are the first one that is not over. Nil when all are.
	row *v1alpha1.BenchmarkRunStatus
	run *loadtest.Run
	// cluster is the fleet under test. Nil for a URL, and while there is none.
	cluster *v1alpha1.LiveStashCluster
	// server is the server under test that is no fleet. Nil for others, and while there is none.
	server *appsv1.StatefulSet
	// bases are the servers that the users connect to.
	bases []string
	// runner runs the test, and seen is what is seen of it.
	runner runner.Runner
	test   runner.Test
	seen   runner.Observation
	// doing is what the benchmark is doing, or waits for, in a sentence.
	doing string
}

// errWait ends a pass that can do no more until something changes.
var errWait = errors.New("waiting")

// wait ends the pass and says why.
func (p *pass) wait(format string, args ...any) error {
	p.doing = fmt.Sprintf(format, args...)
	return errWait
}

// steps is the whole of a reconcile, in order. A step that fails or waits ends it. The status is written in any case.
func (r *Reconciler) steps() []reconcile.Step[*pass] {
	return []reconcile.Step[*pass]{
		{Name: "plan", Run: r.plan},
		{Name: "check suspended", Run: r.checkSuspended},
		{Name: "clean up", Run: r.cleanUp},
		{Name: "finish", Run: r.finish},
		{Name: "take turn", Run: r.takeTurn},
		{Name: "check runs", Run: r.checkRuns},
		{Name: "try template", Run: r.tryTemplate},
		{Name: "check names", Run: r.checkNames},
		{Name: "check comparison", Run: r.checkComparison},
		{Name: "begin", Run: r.begin},
		{Name: "observe", Run: r.observe},
		{Name: "explain refusals", Run: r.explainRefusals},
		{Name: "check deadline", Run: r.checkDeadline},
		{Name: "find target", Run: r.findTarget},
		{Name: "launch", Run: r.launch},
		{Name: "stage events", Run: r.stageEvents},
		{Name: "sample", Run: r.sample},
		{Name: "judge", Run: r.judge},
	}
}

// +kubebuilder:rbac:groups=livestash.dev,resources=livestashbenchmarks,verbs=list;watch;delete
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashbenchmarks/finalizers,verbs=update
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashbenchmarks/status,verbs=patch
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters,verbs=create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=k6.io,resources=testruns,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=list

// Reconcile runs the steps for one LiveStashBenchmark and writes its status. Deletion needs no step: the garbage collector
// removes what the benchmark owns.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.LiveStashBenchmark{}
	if err := r.Get(ctx, req.NamespacedName, b); err != nil {
		r.recordings.forget(req.NamespacedName)
		r.mistakes.Forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}

	before := b.DeepCopy()
	p := &pass{benchmark: b}
	err := reconcile.Run(ctx, p, r.steps())
	if errors.Is(err, errWait) {
		err = nil
	}
	r.mistakes.Note(ctx, req.NamespacedName, err, r.Clock.Now())
	return p.End(err, func(outcome error) error { return r.updateStatus(ctx, before, p, outcome) })
}
