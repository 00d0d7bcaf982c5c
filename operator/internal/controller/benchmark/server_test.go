package benchmark

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

// roomsOfServer makes a benchmark whose first variant is a server, with further lines of its spec.
func roomsOfServer(t *testing.T, namespace, name, server string) *v1alpha1.LiveStashBenchmark {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: livestash.dev/v1alpha1, kind: LiveStashBenchmark, metadata: {name: %s, namespace: %s}, spec: {
		scenario: Rooms, rooms: {size: 20, every: 1s}, runner: Job, cooldown: 0s, thresholds: {maxRestarts: 1},
		target: {template: {spec: {image: i, imagePullPolicy: Never, resources: {limits: {cpu: "1"}}, podTemplate: {spec: {nodeSelector: {disk: fast}}}}}},
		matrix: {variants: [{name: chat, server: {image: chat, %s}}], runs: [{users: 40, ramp: 20s, duration: 1m}]}}}`, name, namespace, server)
	b := &v1alpha1.LiveStashBenchmark{}
	suite.Must(t, yaml.UnmarshalStrict([]byte(text), b))
	suite.Must(t, api.Create(t.Context(), b))
	return b
}

// serverPod makes a pod of a server, as the controller of StatefulSets would.
func serverPod(t *testing.T, set *appsv1.StatefulSet, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name, Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	if set.UID != "" {
		suite.Must(t, controllerutil.SetControllerReference(set, pod, scheme()))
	}
	suite.Must(t, api.Create(t.Context(), pod))
	return pod
}

func readyPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status.PodIP = "10.0.0.9"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
}

func serverOf(t *testing.T, b *v1alpha1.LiveStashBenchmark) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name + "-01-chat"}}
	suite.Eventually(t, func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(set), set) })
	return set
}

// A server is made where the fleets would be, awaited, loaded in its own protocol, and gone with its pods before the run is over.
func TestServer(t *testing.T) {
	b := roomsOfServer(t, suite.Namespace(t, api), "rivals", "port: 3000, protocol: ActionCable, redis: {}")
	set := serverOf(t, b)
	suite.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(b), b))
	spec := set.Spec.Template.Spec
	if !metav1.IsControlledBy(set, b) || len(spec.Containers) != 3 || spec.Containers[0].Image != "chat" || spec.Containers[1].Image != "redis" || spec.Containers[2].Image != "operator" ||
		spec.Containers[0].ImagePullPolicy != corev1.PullNever || spec.NodeSelector["disk"] != "fast" || spec.Containers[0].Resources.Limits.Cpu().String() != "1" {
		t.Errorf("the pods are %+v", spec)
	}
	targetSays(t, b, metav1.ConditionFalse, "0 of 1 pods are ready")
	pod := serverPod(t, set, set.Name+"-0")
	pod.Finalizers = []string{"livestash.dev/test"}
	suite.Must(t, api.Update(t.Context(), pod))
	readyPod(t, pod)
	targetSays(t, b, metav1.ConditionTrue, "all pods of the server rivals-01-chat are ready")

	told := endJobOf(t, b, `"protocol": "action_cable"`)
	if want := "http://rivals-01-chat-0.rivals-01-chat." + b.Namespace + ".svc.cluster.local:3000"; told["BASE_URLS"] != want || told["PROTOCOL"] != "action_cable" {
		t.Errorf("k6 is told BASE_URLS=%s PROTOCOL=%s", told["BASE_URLS"], told["PROTOCOL"])
	}
	suite.Eventually(t, func() error {
		for _, object := range []client.Object{&appsv1.StatefulSet{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}} {
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T is still there: %w", object, err)
			}
		}
		return nil
	})
	if refresh(t, b); b.Status.Phase == v1alpha1.BenchmarkFinished {
		t.Error("it is over while a pod of the server is there")
	}
	refresh(t, pod)
	pod.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), pod))
	suite.Must(t, client.IgnoreNotFound(api.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictPassed || row.Variant != "chat" || row.Adapter != v1alpha1.AdapterNone {
		t.Errorf("the row is %+v", row)
	}
	written := savedReport(t, b)
	if variants := written.Spec.Variants; len(variants) != 1 || *variants[0].Server != (report.Server{Image: "chat", Protocol: "ActionCable", Replicas: 1, Redis: true}) || written.Runs[0].Replicas != 1 {
		t.Errorf("the report says %+v of %+v", variants, written.Runs[0])
	}
}

// endJobOf waits for the Job of a run, ends its one runner well, with some of its report, and returns what it was told.
func endJobOf(t *testing.T, b *v1alpha1.LiveStashBenchmark, says string) map[string]string {
	t.Helper()
	job, told := jobOf(t, b)
	pod := newPod(t, b, job.Name)
	pod.Labels["batch.kubernetes.io/job-completion-index"] = "0"
	suite.Must(t, controllerutil.SetControllerReference(job, pod, scheme()))
	suite.Must(t, api.Update(t.Context(), pod))
	endPod(t, pod, 0, fmt.Sprintf(`{"version": 3, "testid": %q, "runner": 0, "runners": 1, "started_at": "2026-07-01T12:00:00Z", "ended_at": "2026-07-01T12:01:40Z", "completed": true,
		"client_delay": {"count": 900, "p99": 2.5}, "failed": {"yes": 0, "no": 6000}, "durations": {}, "scenario": "rooms", "users": 40, "room_size": 20, "speakers": 20, "bytes": 64,
		"duration_s": 60, "ran_s": 61, "planned": 40, "connected": 40, "messages": 6000, "deliveries": 120000, %s}`, job.Labels[runner.TestLabel], says))
	return told
}

// A server that does not get ready says why while it is awaited, and ends the run long before its deadline.
func TestServerThatNeverGetsReady(t *testing.T) {
	b := roomsOfServer(t, suite.Namespace(t, api), "broken", "protocol: WebSocket")
	set := serverOf(t, b)
	pod := serverPod(t, set, set.Name+"-0")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "bind: permission denied\n"},
	}}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	const why = "0 of 1 pods are ready; pod broken-01-chat-0: container server ended with exit code 3: bind: permission denied"
	targetSays(t, b, metav1.ConditionFalse, why)
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	again := serverPod(t, set, set.Name+"-0")
	again.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "chat: not found"},
	}}}
	suite.Must(t, api.Status().Update(t.Context(), again))
	targetSays(t, b, metav1.ConditionFalse, "ErrImagePull: chat: not found")

	operatorTime.Ahead.Add(int64(serverStart + time.Second))
	suite.Must(t, api.Delete(t.Context(), again, client.GracePeriodSeconds(0)))
	row := finished(t, b)
	if row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "The server of variant chat was not ready within 5m0s: 0 of 1 pods are ready") || !strings.Contains(row.Message, "listens on port 4000") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
}

// Somebody else's object of the server's name is not taken, and ends the run; one that goes in the middle ends it, too.
func TestServersOfOthers(t *testing.T) {
	namespace := suite.Namespace(t, api)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken-01-chat"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
	suite.Must(t, api.Create(t.Context(), service))
	b := roomsOfServer(t, namespace, "taken", "protocol: WebSocket")
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "Service taken-01-chat exists and does not belong to this LiveStashBenchmark") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
	refresh(t, service)

	b = roomsOfServer(t, namespace, "gone", "protocol: WebSocket")
	set := serverOf(t, b)
	pod := serverPod(t, set, set.Name+"-0")
	readyPod(t, pod)
	job, _ := jobOf(t, b)
	hasSeen(t, operator.tests, job)
	suite.Must(t, api.Delete(t.Context(), set))
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "The server gone-01-chat was deleted while the run went on") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
}

// What the API server does not take ends the benchmark before anything is made.
func TestRefusedServer(t *testing.T) {
	b := roomsOfServer(t, suite.Namespace(t, api), "refused", `protocol: WebSocket, resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}`)
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || row.Attempt != 0 || !strings.Contains(row.Message, "There is no server for variant chat") || !strings.Contains(row.Message, "cpu limit") {
		t.Errorf("the run is %+v", row)
	}
}

// Anybody may give a pod the label of a server's. Only those that its own StatefulSet made are asked, and for what they use alone.
func TestOnlyTheServersPodsAreAsked(t *testing.T) {
	namespace := suite.Namespace(t, api)
	labels := map[string]string{runner.BenchmarkLabel: "bench", rival.ServerLabel: "bench-01-chat"}
	one := int32(1)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench-01-chat"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "a"}}}},
	}}
	suite.Must(t, api.Create(t.Context(), set))
	readyPod(t, serverPod(t, set, "bench-01-chat-0"))
	foreign := set.DeepCopy()
	foreign.UID = ""
	readyPod(t, serverPod(t, foreign, "intruder"))
	r := &Reconciler{Client: api, Live: api, Tests: uncached{}, Clock: clock.RealClock{}, Agents: idleAgents{}}
	begun, err := r.askPods(t.Context(), &pass{server: set})
	suite.Must(t, err)
	said := <-begun.said
	if begun.pods != 1 || len(said) != 1 || !said["bench-01-chat-0"].Metrics.PodOnly {
		t.Errorf("asked were %v of %d", said, begun.pods)
	}
	recorder := loadtest.NewRecorder(time.Now())
	recorder.Add(begun.pods, said)
	if series := recorder.Series(); len(series) != 1 || series[report.SeriesPodMemory].Peak != 1e6 {
		t.Errorf("the series are %v of %v", series, said)
	}
}
