package benchmark

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// played is a benchmark with events whose load has begun. The test plays the fleet.
type played struct {
	t     *testing.T
	b     *v1alpha1.LiveStashBenchmark
	run   *unstructured.Unstructured
	fleet *v1alpha1.LiveStashCluster
	set   *appsv1.StatefulSet
	pokes int32
}

func play(t *testing.T, events ...v1alpha1.BenchmarkEvent) *played {
	t.Helper()
	namespace := suite.Namespace(t, api)
	b := newBenchmark(t, namespace, "eventful", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{Template: &v1alpha1.BenchmarkTemplate{Spec: v1alpha1.BenchmarkClusterSpec{Image: fleetImage, Replicas: ptr.To[int32](2)}}}
		spec.Routing, spec.Events = v1alpha1.RoutingService, events
		spec.Matrix.Runs[0].Duration = &metav1.Duration{Duration: 40 * time.Minute}
		spec.Thresholds.MaxLost = ptr.To[int64](0)
		// Pods are made by the API server's clock, which the test does not move: TestRestartedSince has what counts.
		spec.Thresholds.MaxRestarts = ptr.To[int32](9)
	})
	p := &played{t: t, b: b, fleet: &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "eventful-01-ets"}}}
	suite.Eventually(t, func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(p.fleet), p.fleet) })
	p.set = newSet(t, p.fleet, 0)
	p.pod(p.fleet.Name+"-0", true)
	p.pod(p.fleet.Name+"-1", true)
	p.serves()
	p.run = testRunOf(t, b)
	stage(t, p.run, "started")
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	return p
}

// newSet makes a fleet's StatefulSet, whose pods count from there.
func newSet(t *testing.T, c *v1alpha1.LiveStashCluster, start int32) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{render.ClusterLabel: c.Name, render.ComponentLabel: render.FleetComponent}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Ordinals: &appsv1.StatefulSetOrdinals{Start: start},
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}},
		},
	}
	suite.Must(t, controllerutil.SetControllerReference(c, set, scheme()))
	suite.Must(t, api.Create(t.Context(), set))
	return set
}

// pod makes a ready pod with the fleet's labels; of its StatefulSet, or of nobody.
func (p *played) pod(name string, own bool) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.b.Namespace, Name: name, Labels: p.set.Labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if own {
		suite.Must(p.t, controllerutil.SetControllerReference(p.set, pod, scheme()))
	}
	suite.Must(p.t, api.Create(p.t.Context(), pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(p.t, api.Status().Update(p.t.Context(), pod))
	return pod
}

// serves has the fleet say that all is well with what is asked of it now.
func (p *played) serves() {
	p.t.Helper()
	refresh(p.t, p.fleet)
	serves(p.t, p.fleet)
}

// until lets time pass, until a second after that moment of the run.
func (p *played) until(at time.Duration) {
	p.t.Helper()
	refresh(p.t, p.b)
	if left := p.b.Status.Runs[0].LoadStartedAt.Add(at + time.Second).Sub(operatorTime.Now()); left > 0 {
		operatorTime.Ahead.Add(int64(left))
	}
	p.pokes++
	changeSpec(p.t, p.b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To(3600 + p.pokes) })
}

// begun and over wait until an event has begun, and is over.
func (p *played) begun(number int) v1alpha1.BenchmarkEventStatus {
	p.t.Helper()
	reaches(p.t, p.b, "in its event", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Events[number].StartedAt != nil })
	return p.b.Status.Runs[0].Events[number]
}

func (p *played) over(number int) {
	p.t.Helper()
	reaches(p.t, p.b, "through its event", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Events[number].FinishedAt != nil })
}

// goesOn checks that an event is not over yet.
func (p *played) goesOn(number int) {
	p.t.Helper()
	time.Sleep(300 * time.Millisecond)
	refresh(p.t, p.b)
	if event := p.b.Status.Runs[0].Events[number]; event.FinishedAt != nil {
		p.t.Errorf("the event is over, and the fleet is not whole: %+v", event)
	}
}

// ends ends the runners, all of whose returns were well.
func (p *played) ends() v1alpha1.BenchmarkRunStatus {
	p.t.Helper()
	for i := range 2 {
		said := strings.NewReplacer(`"duration_s": 30`, `"duration_s": 2400`, `"ran_s": 30.1`, `"ran_s": 2400.1`, "12:00:30", "12:40:00",
			`"dropped": 0`, `"dropped": 0, "cut": 7`).Replace(reportOf(p.b, i, 80, 0))
		endPod(p.t, newPod(p.t, p.b, fmt.Sprintf("%s-%d", p.run.GetName(), i+1)), 0, said)
	}
	reaches(p.t, p.b, "judged", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Verdict != "" })
	suite.Must(p.t, api.DeleteAllOf(p.t.Context(), &corev1.Pod{}, client.InNamespace(p.b.Namespace), client.MatchingLabels(p.set.Labels)))
	return finished(p.t, p.b)
}

func eventAt(kind v1alpha1.BenchmarkEventKind, at time.Duration, more ...func(*v1alpha1.BenchmarkEvent)) v1alpha1.BenchmarkEvent {
	one := v1alpha1.BenchmarkEvent{Kind: kind, At: metav1.Duration{Duration: at}, Within: &metav1.Duration{Duration: 8 * time.Minute}}
	for _, change := range more {
		change(&one)
	}
	return one
}

func replicas(n int32) func(*v1alpha1.BenchmarkEvent) {
	return func(e *v1alpha1.BenchmarkEvent) { e.Replicas = &n }
}

// A deploy, a pod that is deleted and more pods, in the middle of one run: each when its time has come, and over when the fleet is whole.
func TestEvents(t *testing.T) {
	p := play(t, eventAt(v1alpha1.EventRollout, 10*time.Second), eventAt(v1alpha1.EventDeletePod, 10*time.Minute), eventAt(v1alpha1.EventScale, 20*time.Minute, replicas(3)))
	if spec := fmt.Sprint(p.run.Object["spec"]); !strings.Contains(spec, "5s+485s,595s+485s,1195s+485s") {
		t.Errorf("the runners are not told of the events: %s", spec)
	}

	p.until(10 * time.Second)
	p.begun(0)
	suite.Eventually(t, func() error {
		refresh(t, p.fleet)
		if env := p.fleet.Spec.Env; len(env) != 3 || env[2].Name != eventVariable || env[2].Value != "1" {
			return fmt.Errorf("the fleet is not deployed anew: %v", env)
		}
		return nil
	})
	p.goesOn(0)
	p.serves()
	p.over(0)

	impostor := p.pod("a-pod-of-nobody", false)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.b.Namespace, Name: p.fleet.Name + "-0"}}
	refresh(t, old)
	p.until(10 * time.Minute)
	if deleted := p.begun(1); deleted.Pod != old.Name || deleted.PodUID != old.UID {
		t.Errorf("the pod to delete is %+v", deleted)
	}
	suite.Eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(old), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("the pod is there: %w", err)
		}
		return nil
	})
	p.goesOn(1)
	again := p.pod(old.Name, true)
	p.over(1)
	refresh(t, impostor)
	refresh(t, again)

	p.until(20 * time.Minute)
	suite.Eventually(t, func() error {
		refresh(t, p.fleet)
		if p.fleet.DesiredReplicas() != 3 {
			return fmt.Errorf("the fleet has %d replicas", p.fleet.DesiredReplicas())
		}
		return nil
	})
	p.goesOn(2)
	p.pod(p.fleet.Name+"-2", true)
	p.serves()
	p.over(2)

	if row := p.ends(); row.Verdict != v1alpha1.VerdictPassed || row.Lost == nil || *row.Lost != 0 {
		t.Errorf("the run is %+v", row)
	}
	run := savedReport(t, p.b).Runs[0]
	if len(run.Events) != 3 || run.Events[1].Kind != "DeletePod" || run.Events[1].AtSeconds < 600 || run.Events[1].AtSeconds > 660 || run.Counts.Of[report.CountCut] != 14 {
		t.Errorf("the report has the events %+v, and %d cut sockets", run.Events, run.Counts.Of[report.CountCut])
	}
	if !strings.Contains(run.Message, "Rollout after ") || !strings.Contains(run.Message, "Sockets that it cut: 14. Returns that found nothing: 0.") {
		t.Errorf("the report says %q", run.Message)
	}
}

// A run whose event did not happen as planned says nothing about it.
func TestEventsThatGoWrong(t *testing.T) {
	for name, c := range map[string]struct {
		event   v1alpha1.BenchmarkEvent
		happens func(p *played)
		says    string
	}{
		"the operator was away": {
			eventAt(v1alpha1.EventRollout, 10*time.Second), func(p *played) { p.until(4*time.Minute + 15*time.Second) }, "Rollout at 10s would have begun 4m",
		},
		"the fleet is not whole again": {
			eventAt(v1alpha1.EventRollout, 10*time.Second), func(p *played) {
				p.until(10 * time.Second)
				p.begun(0)
				p.until(9 * time.Minute)
			},
			"Rollout at 10s was not over within 8m0s: ",
		},
		"the pod does not come back": {
			eventAt(v1alpha1.EventDeletePod, 10*time.Second), func(p *played) {
				p.until(10 * time.Second)
				p.begun(0)
				p.until(9 * time.Minute)
			},
			"DeletePod at 10s was not over within 8m0s: ",
		},
		"as many pods as there are": {
			eventAt(v1alpha1.EventScale, 10*time.Second, replicas(2)), func(p *played) { p.until(10 * time.Second) },
			"Scale at 10s changes nothing, because the fleet has 2 pods already",
		},
		"the image that is there": {
			eventAt(v1alpha1.EventRollout, 10*time.Second, func(event *v1alpha1.BenchmarkEvent) { event.Image = fleetImage }), func(p *played) { p.until(10 * time.Second) },
			"Rollout at 10s changes nothing, because the fleet has the image " + fleetImage + " already",
		},
		"the run is over first": {
			eventAt(v1alpha1.EventRollout, 10*time.Second), func(p *played) {
				p.until(10 * time.Second)
				p.begun(0)
				if row := p.ends(); row.Recovered != "1.0000" {
					p.t.Errorf("what the runners counted is not told: %+v", row)
				}
			},
			"Rollout at 10s was not over when the run was",
		},
		"the runners ended before it began": {
			eventAt(v1alpha1.EventRollout, 10*time.Minute), func(p *played) {
				for i := range 2 {
					said := strings.Replace(reportOf(p.b, i, 0, 0), `"problem": null`, `"problem": "There is nothing to test: status 301"`, 1)
					endPod(p.t, newPod(p.t, p.b, fmt.Sprintf("%s-%d", p.run.GetName(), i+1)), 108, said)
				}
			},
			"Runner 1 of 2 ran nothing: There is nothing to test: status 301.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, c.event)
			c.happens(p)
			reaches(t, p.b, "judged", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Verdict != "" })
			if row := p.b.Status.Runs[0]; row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, c.says) {
				t.Errorf("the run is %s because %q", row.Verdict, row.Message)
			}
		})
	}
}
