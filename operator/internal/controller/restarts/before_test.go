// Package restarts kills the operator again and again, at any request, and looks at what its successors make of what is left.
package restarts

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/cluster"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

var (
	rolloutsFlag = flag.Int("rollouts", 20, "how many rollouts the test plays")
	seedFlag     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
)

// errDead is what a dead operator's requests end with.
var errDead = errors.New("the operator is dead")

// life is one life of the operator: it dies at a request, before or after that has reached the API server.
type life struct {
	mutex     sync.Mutex
	left      int
	unsent    bool
	next      http.RoundTripper
	end       context.CancelFunc
	isDead    bool
	lastWords string
}

func (l *life) RoundTrip(r *http.Request) (*http.Response, error) {
	switch l.request(r) {
	case lives:
		return l.next.RoundTrip(r)
	case diesAfter:
		answer, err := l.next.RoundTrip(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return nil, errors.Join(errDead, err)
	default:
		return nil, errDead
	}
}

type fate int

const (
	lives fate = iota
	diesBefore
	diesAfter
)

// request is what becomes of the operator at that request.
func (l *life) request(r *http.Request) fate {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	isLook := r.URL.Query().Get("watch") != "" || r.URL.Query().Has("limit") || strings.Contains(r.URL.Path, "/events")
	if l.isDead || isLook || !strings.Contains(r.URL.Path, "/namespaces/") {
		return map[bool]fate{true: diesBefore, false: lives}[l.isDead]
	}
	l.left--
	if l.left > 0 {
		return lives
	}
	l.isDead, l.lastWords = true, r.Method+" "+r.URL.Path
	l.end()
	return map[bool]fate{true: diesBefore, false: diesAfter}[l.unsent]
}

// silent are agents that nobody hears.
type silent struct{}

func (silent) Track(types.NamespacedName, observe.Pace, []observe.Target) {}
func (silent) Answers(types.NamespacedName) map[types.UID]observe.Answer  { return nil }
func (silent) Forget(types.NamespacedName)                                {}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// live runs one operator until it dies, or until the test is over.
func live(ctx context.Context, api *rest.Config, scheme *runtime.Scheme, l *life) error {
	ctx, l.end = context.WithCancel(ctx)
	defer l.end()
	api = rest.CopyConfig(api)
	api.QPS = -1
	api.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = next
		return l
	})
	mgr, err := ctrl.NewManager(api, manager.Options{
		Scheme: scheme, Cache: cluster.CacheOptions(), Metrics: server.Options{BindAddress: "0"},
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(time.Minute),
	})
	if err != nil {
		return err
	}
	named, err := cluster.NewNamed(mgr)
	if err != nil {
		return err
	}
	reconciler := &cluster.Reconciler{
		Named: named, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("livestash-operator"),
		ClusterDomain: "cluster.local", Agents: silent{}, AgentImage: "operator", Clock: clock.RealClock{},
	}
	if err := reconciler.SetupWithManager(mgr, 1); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// played is what the controllers of Jobs and StatefulSets and the garbage collector do, and what they see.
type played struct {
	t         *testing.T
	api       client.Client
	namespace string
	rng       *rand.Rand

	mutex sync.Mutex
	// begun are the Jobs that have got their pod, runs and successes how often something began and succeeded, by image.
	begun           map[types.UID]string
	runs, successes map[string]int
	deleted         int
}

func (p *played) play(ctx context.Context) {
	for ctx.Err() == nil {
		if err := errors.Join(p.playJobs(ctx), p.playStatefulSet(ctx)); err != nil && ctx.Err() == nil {
			p.t.Log("played once more: ", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *played) playJobs(ctx context.Context) error {
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	err := errors.Join(p.api.List(ctx, jobs, client.InNamespace(p.namespace)), p.api.List(ctx, pods, client.InNamespace(p.namespace)))
	if err != nil {
		return err
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodRunning })
	if len(running) > 1 {
		p.t.Errorf("%d commands run at the same time", len(running))
	}
	for i := range running {
		if !slices.ContainsFunc(jobs.Items, func(job batchv1.Job) bool { return job.UID == running[i].OwnerReferences[0].UID }) && p.rng.IntN(5) == 0 {
			// Its Job was deleted by somebody, and it has had time to stop.
			err = errors.Join(err, p.api.Delete(ctx, &running[i], client.GracePeriodSeconds(0)))
		}
	}
	for i := range jobs.Items {
		err = errors.Join(err, p.playJob(ctx, &jobs.Items[i], running))
	}
	return err
}

func (p *played) playJob(ctx context.Context, job *batchv1.Job, running []corev1.Pod) error {
	mine := slices.DeleteFunc(slices.Clone(running), func(pod corev1.Pod) bool { return pod.OwnerReferences[0].UID != job.UID })
	image := job.Spec.Template.Spec.Containers[0].Image
	if p.rng.IntN(4) > 0 {
		return nil // it takes its time
	}
	switch {
	case !job.DeletionTimestamp.IsZero() && len(mine) > 0:
		return p.api.Delete(ctx, &mine[0], client.GracePeriodSeconds(0))
	case !job.DeletionTimestamp.IsZero():
		job.Finalizers = nil
		return p.api.Update(ctx, job)
	case p.hasBegun(job, image):
		return p.pod(ctx, job)
	case len(job.Status.Conditions) == 0 && p.rng.IntN(3) == 0:
		return p.succeed(ctx, job, image, mine)
	case len(job.Status.Conditions) > 0 && p.rng.IntN(10) == 0 && p.noted(ctx, job):
		p.deleted++
		return p.api.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)) // somebody tidies up
	}
	return nil
}

// noted is whether the fleet remembers that the Job has succeeded. Whoever deletes it before that has it run again.
func (p *played) noted(ctx context.Context, job *batchv1.Job) bool {
	identity := &corev1.ServiceAccount{}
	err := p.api.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: "shop"}, identity)
	return err == nil && strings.Contains(identity.Annotations[fleet.PreparedAnnotation], job.Annotations[fleet.TemplateAnnotation])
}

// hasBegun is whether the Job begins now.
func (p *played) hasBegun(job *batchv1.Job, image string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, before := p.begun[job.UID]; before {
		return false
	}
	p.begun[job.UID] = image
	p.runs[image]++
	return true
}

func (p *played) pod(ctx context.Context, job *batchv1.Job) error {
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.GenerateName, pod.Spec.NodeName = job.Namespace, job.Name+"-", "node"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	if err := p.api.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	return p.api.Status().Update(ctx, pod)
}

func (p *played) succeed(ctx context.Context, job *batchv1.Job, image string, pods []corev1.Pod) error {
	for i := range pods {
		if err := p.api.Delete(ctx, &pods[i], client.GracePeriodSeconds(0)); err != nil {
			return err
		}
	}
	p.mutex.Lock()
	p.successes[image]++
	p.mutex.Unlock()
	now := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return p.api.Status().Update(ctx, job)
}

// playStatefulSet says that the StatefulSet was acted on. It checks that no pod could have been made of a template too early.
func (p *played) playStatefulSet(ctx context.Context) error {
	sets := &appsv1.StatefulSetList{}
	if err := p.api.List(ctx, sets, client.InNamespace(p.namespace)); err != nil {
		return err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		image := set.Spec.Template.Spec.Containers[0].Image
		current := cmp.Or(set.Status.CurrentRevision, image)
		given := current
		if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
			given = image
		} else if *set.Spec.Replicas == 0 {
			current = image
		}
		p.mutex.Lock()
		if *set.Spec.Replicas > 0 && p.successes[given] == 0 {
			p.t.Errorf("pods would be made of %s, whose command has not succeeded", given)
		}
		p.mutex.Unlock()
		if set.Status.ObservedGeneration == set.Generation && set.Status.CurrentRevision == current {
			continue
		}
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, CurrentRevision: current, UpdateRevision: image}
		if err := p.api.Status().Update(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// TestCommandRunsOnceWhateverHappensToTheOperator rolls a fleet out again and again while the operator dies at random requests.
// Somebody deletes Jobs that have succeeded, goes back to earlier templates, and changes his mind.
func TestCommandRunsOnceWhateverHappensToTheOperator(t *testing.T) {
	t.Logf("the seed is %d", *seedFlag)
	ctrl.SetLogger(logr.Discard())
	chance := rand.New(rand.NewPCG(*seedFlag, 1))
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join("..", "..", "..", "..", "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
	}
	t.Cleanup(func() { suite.Must(t, environment.Stop()) })
	admin, api, err := suite.AsOperator(environment, "restarts")
	suite.Must(t, err)
	admin.QPS = -1
	scheme, err := newScheme()
	suite.Must(t, err)
	tests, err := client.New(admin, client.Options{Scheme: scheme})
	suite.Must(t, err)

	p := &played{
		t: t, api: tests, namespace: suite.Namespace(t, tests), rng: rand.New(rand.NewPCG(*seedFlag, 2)),
		begun: map[types.UID]string{}, runs: map[string]int{}, successes: map[string]int{},
	}
	ctx, stop := context.WithCancel(t.Context())
	var playing sync.WaitGroup
	playing.Go(func() { p.play(ctx) })
	lives := 0
	deaths := map[string]int{}
	playing.Go(func() {
		rng := rand.New(rand.NewPCG(*seedFlag, 3))
		for ctx.Err() == nil {
			one := &life{left: 1 + rng.IntN(12), unsent: rng.IntN(2) == 0}
			if err := live(ctx, api, scheme, one); err != nil && !one.isDead {
				t.Errorf("the operator ended: %v", err)
			}
			lives++
			deaths[one.lastWords]++
		}
	})

	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "shop"}}
	shop.Spec = v1alpha1.LiveStashClusterSpec{Image: "shop:0", Adapter: v1alpha1.AdapterETS}
	shop.Spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"migrate"}}
	suite.Must(t, tests.Create(ctx, shop))
	p.rolledOut(ctx, "shop:0")
	for number := 1; number < *rolloutsFlag; number++ {
		if chance.IntN(4) == 0 {
			p.roll(ctx, shop, fmt.Sprintf("shop:%d", chance.IntN(number)), chance.IntN(5)) // back, for a while or a moment
		}
		image := fmt.Sprintf("shop:%d", number)
		p.roll(ctx, shop, image, chance.IntN(5))
		if chance.IntN(4) == 0 {
			continue // he changes his mind
		}
		p.rolledOut(ctx, image)
	}
	p.roll(ctx, shop, "shop:last", 0)
	p.rolledOut(ctx, "shop:last")
	stop()
	playing.Wait()
	for image, runs := range p.runs {
		if runs != 1 || p.successes[image] != 1 {
			t.Errorf("the command of %s ran %d times and succeeded %d times", image, runs, p.successes[image])
		}
	}
	t.Logf("%d commands, %d lives of the operator, %d Jobs deleted by somebody; it died at\n%s", len(p.runs), lives, p.deleted,
		strings.Join(slices.Sorted(maps.Keys(deaths)), "\n"))
}

// roll asks for that image, and waits a little.
func (p *played) roll(ctx context.Context, shop *v1alpha1.LiveStashCluster, image string, wait int) {
	p.t.Helper()
	before := shop.DeepCopy()
	shop.Spec.Image = image
	suite.Must(p.t, p.api.Patch(ctx, shop, client.MergeFrom(before)))
	time.Sleep(time.Duration(wait*wait) * 10 * time.Millisecond)
}

// rolledOut waits until pods may have that image: its command has succeeded, and the StatefulSet would give it to them.
func (p *played) rolledOut(ctx context.Context, image string) {
	p.t.Helper()
	suite.EventuallyWithin(p.t, 5*time.Minute, func() error { // the operator begins anew again and again
		p.mutex.Lock()
		succeeded := p.successes[image]
		p.mutex.Unlock()
		set := &appsv1.StatefulSet{}
		if err := p.api.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: "shop"}, set); err != nil {
			return err
		}
		if got := set.Spec.Template.Spec.Containers[0].Image; got != image || succeeded == 0 || *set.Spec.Replicas == 0 {
			return fmt.Errorf("the StatefulSet has %s and the command of %s has succeeded %d times", got, image, succeeded)
		}
		return nil
	})
}
