package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// An operator goes on with the samples that the one before it has written down, and not with those of another test.
func TestSamplesOutliveTheOperator(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "bench", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	began := time.Now().Add(-time.Minute)
	before := &recording{test: "bench-01-ets-a", recorder: loadtest.NewRecorder(began)}
	for i := range 3 {
		at := began.Add(time.Duration(i) * sampleInterval)
		before.recorder.Add(1, map[string]loadtest.Answer{"pod": {At: at, Metrics: agentclient.Metrics{Processes: float64(100 + i)}}})
	}
	one := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	suite.Must(t, one.keepSamples(t.Context(), b, before))

	cases := map[string]struct {
		test string
		want *loadtest.Recorder
	}{
		"the same test": {"bench-01-ets-a", before.recorder},
		"another test":  {"bench-01-ets-b", loadtest.NewRecorder(began)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			next := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
			row := &v1alpha1.BenchmarkRunStatus{Runner: c.test, LoadStartedAt: ptr.To(metav1.NewTime(began))}
			got, err := next.recordingOf(t.Context(), &pass{benchmark: b, row: row})
			suite.Must(t, err)
			if text(t, got.recorder) != text(t, c.want) {
				t.Errorf("it goes on with %s, want %s", text(t, got.recorder), text(t, c.want))
			}
		})
	}
}

// Of a fleet whose agents stop answering nobody knows what the rest of the run took, whatever its verdict says.
func TestAFleetThatGaveOutIsNotWhole(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "bench", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	began := time.Now().Add(-100 * time.Second)
	running := &recording{test: "bench-01-none-a", recorder: loadtest.NewRecorder(began)}
	for second := range 20 {
		said := map[string]loadtest.Answer{}
		if second < 5 {
			said["pod"] = loadtest.Answer{At: began.Add(time.Duration(second) * sampleInterval), Metrics: agentclient.Metrics{CPUSeconds: float64(second)}}
		}
		running.recorder.Add(1, said)
	}
	r := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	r.recordings.put(client.ObjectKeyFromObject(b), running)
	p := &pass{
		benchmark: b, cluster: &v1alpha1.LiveStashCluster{}, run: &loadtest.Run{Duration: 90 * time.Second},
		row: &v1alpha1.BenchmarkRunStatus{Runner: running.test, LoadStartedAt: ptr.To(metav1.NewTime(began)), Message: "maxFailed: 76 % of 37249 messages failed"},
	}
	got, err := r.samplesOf(t.Context(), p)
	suite.Must(t, err)
	const want = "15 of 20 samples are incomplete, because an agent did not answer. All agents answered for 20 of 90 s, so peaks and totals of the fleet are left out."
	if got.note != want || ptr.Deref(got.part, 0) != 20 {
		t.Errorf("%q, sampled for %v s", got.note, ptr.Deref(got.part, 0))
	}
	for message, want := range map[string]string{"": want, "It failed": "It failed. " + want, "It failed.": "It failed. " + want, "Not judged. " + want: "Not judged. " + want} {
		if told := sentences(message, "", got.note); told != want {
			t.Errorf("the report says %q, want %q", told, want)
		}
	}
	p.run.Duration = 30 * time.Second
	if got, err = r.samplesOf(t.Context(), p); err != nil || got.part != nil {
		t.Errorf("a run of 30 s was seen as a whole: %+v, %v", got, err)
	}
}

// An operator that notices late that the load is there has not seen its beginning, however well it has seen the rest.
func TestSamplesOfALoadThatWasNoticedLate(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "bench", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	noticed := time.Now().Add(-100 * time.Second)
	running := &recording{test: "bench-01-none-a", recorder: loadtest.NewRecorder(noticed)}
	for second := range 20 {
		running.recorder.Add(1, map[string]loadtest.Answer{"pod": {At: noticed.Add(time.Duration(second) * sampleInterval)}})
	}
	r := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	r.recordings.put(client.ObjectKeyFromObject(b), running)
	row := &v1alpha1.BenchmarkRunStatus{Runner: running.test, LoadStartedAt: ptr.To(metav1.NewTime(noticed))}
	for lasts, want := range map[time.Duration]string{100 * time.Second: "", 300 * time.Second: "All agents answered for 95 of 300 s, so peaks and totals of the fleet are left out."} {
		got, err := r.samplesOf(t.Context(), &pass{benchmark: b, cluster: &v1alpha1.LiveStashCluster{}, run: &loadtest.Run{Duration: lasts}, row: row})
		suite.Must(t, err)
		if got.note != want || (got.part == nil) != (want == "") {
			t.Errorf("of a run of %s: %q, sampled for %v s", lasts, got.note, ptr.Deref(got.part, 0))
		}
	}
}

// Fifty agents that do not answer hold no worker up, and are not all asked at once.
func TestSilentAgentsHoldNoWorkerUp(t *testing.T) {
	const size, most = 50, 8
	b := newBenchmark(t, suite.Namespace(t, api), "bench", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "shop"}}
	cluster.UID = "shop"
	cluster.Spec.Replicas = ptr.To[int32](size)
	set := statefulSet(t, cluster)
	for i := range size {
		fleetPod(t, set, fmt.Sprintf("shop-%d", i), fmt.Sprintf("10.0.0.%d", i+1))
	}

	agents := &silentAgents{speak: make(chan struct{})}
	r := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}, Agents: observe.NewPool(agents, most)}
	row := &v1alpha1.BenchmarkRunStatus{Runner: "bench-01-ets-a", Phase: v1alpha1.RunRunning, LoadStartedAt: ptr.To(metav1.Now())}
	sampled := func() *loadtest.Recorder {
		suite.Must(t, r.sample(t.Context(), &pass{benchmark: b, row: row, cluster: cluster}))
		return r.recordings.get(client.ObjectKeyFromObject(b)).recorder
	}
	if got := sampled(); got.Samples != 0 {
		t.Errorf("the pass went on when everybody had had their time: %d samples, %d of them incomplete", got.Samples, got.Incomplete)
	}
	close(agents.speak)
	suite.Eventually(t, func() error {
		if got := sampled(); got.Samples != 1 || got.Incomplete != 0 {
			return fmt.Errorf("%d samples, %d of them incomplete", got.Samples, got.Incomplete)
		}
		return nil
	})
	if got := agents.most.Load(); got > most {
		t.Errorf("%d agents were asked at once, want %d at most", got, most)
	}
}

// silentAgents say nothing until they are let speak.
type silentAgents struct {
	speak     chan struct{}
	out, most atomic.Int32
}

func (a *silentAgents) Metrics(ctx context.Context, _ string, _ int32) (agentclient.Metrics, error) {
	for out, most := a.out.Add(1), a.most.Load(); out > most && !a.most.CompareAndSwap(most, out); {
		most = a.most.Load()
	}
	defer a.out.Add(-1)
	select {
	case <-a.speak:
		return agentclient.Metrics{Processes: 1}, nil
	case <-ctx.Done():
		return agentclient.Metrics{}, ctx.Err()
	}
}

func (a *silentAgents) Usage(ctx context.Context, ip string, port int32) (agentclient.Metrics, error) {
	return a.Metrics(ctx, ip, port)
}

func text(t *testing.T, recorder *loadtest.Recorder) string {
	t.Helper()
	text, err := json.Marshal(recorder)
	suite.Must(t, err)
	return string(text)
}

// statefulSet makes a fleet's, as the operator's other half would.
func statefulSet(t *testing.T, c *v1alpha1.LiveStashCluster) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{render.ClusterLabel: c.Name, render.ComponentLabel: render.FleetComponent}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: c.Name, Labels: labels, OwnerReferences: []metav1.OwnerReference{render.OwnerReference(c)},
		},
		Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "a"}}},
		}},
	}
	suite.Must(t, api.Create(t.Context(), set))
	return set
}

// fleetPod makes a pod of a fleet. Without a StatefulSet it only has a fleet's labels.
func fleetPod(t *testing.T, set *appsv1.StatefulSet, name, ip string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name, Labels: set.Labels}, Spec: set.Spec.Template.Spec}
	if set.UID != "" {
		suite.Must(t, controllerutil.SetControllerReference(set, pod, scheme()))
	}
	suite.Must(t, api.Create(t.Context(), pod))
	pod.Status.PodIP = ip
	suite.Must(t, api.Status().Update(t.Context(), pod))
}

// Anybody may give a pod a fleet's labels. Only the pods that the fleet's own StatefulSet made are asked.
func TestOnlyTheFleetsPodsAreAsked(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: suite.Namespace(t, api), Name: "shop", UID: "shop"}}
	set := statefulSet(t, cluster)
	fleetPod(t, set, "shop-0", "10.0.0.1")
	foreign := set.DeepCopy()
	foreign.UID = ""
	fleetPod(t, foreign, "intruder", "10.0.0.2")

	r := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}, Agents: idleAgents{}}
	asked := func() map[string]loadtest.Answer {
		begun, err := r.askAgents(t.Context(), cluster)
		suite.Must(t, err)
		return <-begun.said
	}
	if said := asked(); len(said) != 1 || said["shop-0"].Metrics.Processes == 0 {
		t.Errorf("asked were %v", said)
	}
	cluster.UID = "another"
	if said := asked(); len(said) != 0 {
		t.Errorf("of a StatefulSet of somebody else, asked were %v", said)
	}
}
