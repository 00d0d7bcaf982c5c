package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/kept"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "about " + reason, LastTransitionTime: metav1.Now()}
}

func TestStatus(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{
		ReadyReplicas: 1, Conditions: []metav1.Condition{condition("Ready", "False", "NodesMissing"), condition("Clustered", "False", "NodesMissing")},
	})
	out := must(t, c.Namespace, "status")
	wants(t, out, "shop is NodesMissing", "1 of 2 pods ready", "To do: See that the missing pod runs", "LiveStashMeshIncomplete.md")
	if strings.Contains(out, "\x1b") {
		t.Error("colours, and no terminal")
	}

	var status struct {
		State    string
		Problems []struct{ Reason, Do string }
	}
	suite.Must(t, json.Unmarshal([]byte(must(t, c.Namespace, "status", "shop", "-o", "json")), &status))
	if status.State != "NodesMissing" || len(status.Problems) != 1 || status.Problems[0].Do == "" {
		t.Errorf("%+v", status)
	}
	wants(t, must(t, c.Namespace, "status", "shop", "-o", "yaml"), "state: NodesMissing\n")
	wants(t, must(t, c.Namespace, "status", "-A"), "NAMESPACE", c.Namespace)
	_, err := run(t, c.Namespace, "status", "-o", "xml")
	refused(t, err, "json or yaml")
}

func TestWhichFleet(t *testing.T) {
	empty := suite.Namespace(t, api)
	_, err := run(t, empty, "rollout", "status")
	refused(t, err, "no LiveStashCluster in the namespace "+empty)
	wants(t, must(t, empty, "status"), "NAME")

	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	other := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "blog", Namespace: c.Namespace}, Spec: c.Spec}
	suite.Must(t, api.Create(t.Context(), other))
	wants(t, must(t, c.Namespace, "status"), "blog", "shop", "NotSeen")
	_, err = run(t, c.Namespace, "sessions")
	refused(t, err, "name one of blog, shop")
	_, err = run(t, c.Namespace, "status", "nobody")
	refused(t, err, "not found")
	wants(t, must(t, c.Namespace, "__complete", "status", ""), "blog\n", "shop\n")
}

func TestPause(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	wants(t, must(t, c.Namespace, "rollout", "pause"), "rollout resume shop")
	if reload(t, c); !c.Spec.Rollout.Paused {
		t.Error("it is not paused")
	}
	must(t, c.Namespace, "rollout", "resume", "shop")
	if reload(t, c); c.Spec.Rollout.Paused {
		t.Error("it is paused")
	}
	c.Spec.Paused = true
	suite.Must(t, api.Update(t.Context(), c))
	_, err := run(t, c.Namespace, "rollout", "resume")
	refused(t, err, "spec.paused")
}

// revision makes a revision of a StatefulSet's template, as its controller does.
func revision(t *testing.T, c *v1alpha1.LiveStashCluster, name string, number int64, app corev1.Container) {
	t.Helper()
	app.Name = fleet.AppContainer
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar", Image: "s"}, app}}}}})
	suite.Must(t, err)
	suite.Must(t, api.Create(t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace}, Revision: number, Data: runtime.RawExtension{Raw: data},
	}))
}

func TestUndo(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	_, err := run(t, c.Namespace, "rollout", "undo")
	refused(t, err, "no rollout")

	c.Status.Rollouts = []v1alpha1.RolloutStatus{{From: "shop-old", To: "shop-new", Started: metav1.Now()}}
	suite.Must(t, api.Status().Update(t.Context(), c))
	revision(t, c, "shop-old", 1, corev1.Container{Image: "ghcr.io/acme/shop:1.4.1"})
	revision(t, c, "shop-new", 2, corev1.Container{Image: c.Spec.Image, Env: []corev1.EnvVar{{Name: "FLAG", Value: "on"}}})
	wants(t, must(t, c.Namespace, "rollout", "undo"), "ghcr.io/acme/shop:1.4.1", "also changed the variable FLAG", "stays as it is")
	if reload(t, c); c.Spec.Image != "ghcr.io/acme/shop:1.4.1" {
		t.Error(c.Spec.Image)
	}

	_, err = run(t, c.Namespace, "rollout", "undo")
	refused(t, err, "had the image ghcr.io/acme/shop:1.4.1 too", "the variable FLAG")
}

// steering is what would clear a terminal and change its title, by bytes and by single characters.
const steering = "\x1b[2J\x1b]0;title\x07\u009b2J"

// steers fails when a text has a character that steers a terminal.
func steers(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && unicode.IsControl(r) {
			t.Errorf("it has %q: %q", r, text)
			return
		}
	}
}

// What others wrote cannot steer the terminal of who looks at it, whichever verb shows it.
func TestOthersDoNotSteerTheTerminal(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{
		Pods: []v1alpha1.PodStatus{{Name: "shop-0" + steering, Problem: steering}},
		Conditions: []metav1.Condition{
			{Type: "Progressing", Status: "True", Reason: "PodFailing", Message: steering, LastTransitionTime: metav1.Now()},
			{Type: "Stalled", Status: "True", Reason: "PodFailing", Message: steering, LastTransitionTime: metav1.Now()},
		},
		Rollouts: []v1alpha1.RolloutStatus{{From: "shop-old", To: "shop-new", Started: metav1.Now(), Message: steering}},
	})
	revision(t, c, "shop-old", 1, corev1.Container{Image: "ghcr.io/acme/shop:1.4.1"})
	revision(t, c, "shop-new", 2, corev1.Container{Image: c.Spec.Image, Env: []corev1.EnvVar{{Name: "FLAG" + steering, Value: "on"}}})
	b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "evening", Namespace: c.Namespace}}
	b.Spec = benchmarkOf(c, b.Name, benchOptions{users: 10}).Spec
	suite.Must(t, api.Create(t.Context(), b))
	b.Status = v1alpha1.LiveStashBenchmarkStatus{Phase: v1alpha1.BenchmarkFinished, Verdict: v1alpha1.VerdictFailed,
		Comparison: &v1alpha1.BenchmarkComparisonStatus{Verdict: v1alpha1.VerdictFailed, Message: steering},
		Runs: []v1alpha1.BenchmarkRunStatus{
			{Name: "evening-1-ets" + steering, Adapter: "ETS", Phase: v1alpha1.RunFinished, Message: steering},
			{Name: "evening-2-ets" + steering, Adapter: "ETS", Phase: v1alpha1.RunRunning},
		}}
	suite.Must(t, api.Status().Update(t.Context(), b))
	deployment := filepath.Join(t.TempDir(), "deployment.yaml")
	suite.Must(t, os.WriteFile(deployment, []byte(`{"kind":"Deployment","metadata":{"name":"shop"},"spec":{"template":{"spec":{"containers":[{"name":"app","image":"shop:1",
		"env":[{"name":"LIVESTASH_\u001b[2J"}]}]}}}}`), 0o600))
	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	suite.Must(t, os.WriteFile(cluster, []byte(`{"kind":"LiveStashCluster","metadata":{"name":"shop\u001b[2J"},"spec":{"image":"shop:1"}}`), 0o600))
	notMine := filepath.Join(t.TempDir(), "not-mine.yaml")
	suite.Must(t, os.WriteFile(notMine, []byte(`{"kind":"Pod\u001b[2J"}`), 0o600))

	for _, args := range [][]string{
		{"status", "shop"}, {"status", "shop", "-o", "json"}, {"status", "shop", "-o", "yaml"}, {"rollout", "status"}, {"rollout", "status", "--watch"}, {"doctor"}, {"doctor", "-f", cluster},
		{"bench", "watch", "evening"}, {"bench", "watch", "evening", "-o", "json"}, {"migrate", "-f", deployment}, {"migrate", "-f", notMine},
		{"rollout", "undo"}, {"rollout", "undo"}, // there is nothing left to take back
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out, err := run(t, c.Namespace, args...)
			steers(t, out)
			var said strings.Builder
			Fail(&said, err)
			steers(t, said.String())
			if len(out)+said.Len() == 0 {
				t.Error("it said nothing")
			}
		})
	}
}

// statefulSet is the fleet's, as far as the tests need it.
func statefulSet(t *testing.T, c *v1alpha1.LiveStashCluster) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace}}
	set.Spec.Selector = render.Selector(c)
	set.Spec.Template.Labels = render.SelectorLabels(c)
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: fleet.AppContainer, Image: c.Spec.Image}}
	suite.Must(t, api.Create(t.Context(), set))
	return set
}

func TestRestart(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	_, err := run(t, c.Namespace, "restart")
	refused(t, err, "no StatefulSet")
	set := statefulSet(t, c)
	wants(t, must(t, c.Namespace, "restart"), "one at a time")
	if reload(t, set); set.Spec.Template.Annotations[restartedAt] == "" {
		t.Error(set.Spec.Template.Annotations)
	}
}

// awaited is what a command says, in which words are waited for.
type awaited struct {
	bytes.Buffer
	words string
	came  chan struct{}
	once  sync.Once
}

func (a *awaited) Write(said []byte) (int, error) {
	n, err := a.Buffer.Write(said)
	if strings.Contains(a.String(), a.words) {
		a.once.Do(func() { close(a.came) })
	}
	return n, err
}

func TestWatchRollout(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{UpdatedReplicas: 1, Conditions: []metav1.Condition{condition("Progressing", "True", "RollingOut")}})
	for _, timeout := range []string{"1ns", "100ms"} { // before the first answer of the API server, and mostly after it
		_, err := run(t, c.Namespace, "rollout", "status", "--watch", "--timeout", timeout)
		refused(t, err, "not complete after "+timeout)
	}

	out := &awaited{words: "1/2 pods", came: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- runTo(t, out, c.Namespace, "rollout", "status", "--watch", "--timeout", "60s") }()
	select {
	case <-out.came:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	}
	c.Status.UpdatedReplicas = 2
	c.Status.Conditions = []metav1.Condition{condition("Progressing", "False", "Complete")}
	suite.Must(t, api.Status().Update(t.Context(), c))
	suite.Must(t, <-ended)
	wants(t, out.String(), "2/2 pods", "Complete")

	c.Status.Conditions = []metav1.Condition{condition("Progressing", "True", "PodFailing"), condition("Stalled", "True", "PodFailing")}
	suite.Must(t, api.Status().Update(t.Context(), c))
	_, err := run(t, c.Namespace, "rollout", "status", "--watch")
	refused(t, err, "PodFailing: about PodFailing", "kubectl livestash status shop")
}

// newPod makes a pod of a fleet that runs, for whom no kubelet is needed.
func newPod(t *testing.T, c *v1alpha1.LiveStashCluster, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: render.SelectorLabels(c)}}
	pod.Spec.Containers = []corev1.Container{{Name: fleet.AppContainer, Image: c.Spec.Image}}
	suite.Must(t, api.Create(t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	return pod
}

func TestDrain(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	pod := newPod(t, c, "shop-1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: fleet.AppContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Message: `{"livestash":1,"sessionsBefore":12,"socketsClosed":9,"handedOff":11,"notHandedOff":1,"reason":"no peer had room\u001b[2J","seconds":4.2}`,
	}}}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: c.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: render.Selector(c), MaxUnavailable: ptr.To(intstr.FromInt32(0))}}
	suite.Must(t, api.Create(t.Context(), budget))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, ExpectedPods: 1, DesiredHealthy: 1, CurrentHealthy: 1}
	suite.Must(t, api.Status().Update(t.Context(), budget))

	_, err := run(t, c.Namespace, "drain", "shop-1")
	refused(t, err, "does not let shop-1 go", "kubectl livestash restart shop")
	suite.Must(t, api.Delete(t.Context(), budget))
	wants(t, must(t, c.Namespace, "drain", "shop-1"), "shop-1 was drained in 4.2 s: of 12 stashes, 11 handed over and 1 lost; 9 connections closed. no peer had room\\x1b[2J")
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil || err == nil {
		t.Error("the pod is still there:", err)
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: c.Namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	suite.Must(t, api.Create(t.Context(), other))
	_, err = run(t, c.Namespace, "drain", "other")
	refused(t, err, "no pod of a LiveStashCluster")
}

// An API server ends watches: the pod is asked for again, and is not gone for that.
func TestDrainOutlivesItsWatch(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	pod := newPod(t, c, "shop-1")
	watches, err := client.NewWithWatch(connection, client.Options{Scheme: api.Scheme()})
	suite.Must(t, err)
	access := &kube.Access{WithWatch: watches}
	ended := watch.NewFake()
	ended.Stop()
	told := make(chan error, 1)
	go func() {
		_, err := awaitEnd(t.Context(), access, ended, pod)
		told <- err
	}()
	select {
	case err := <-told:
		t.Fatalf("the wait for a pod that is there ended: %v", err)
	case <-time.After(2 * watchPause):
	}
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	suite.Must(t, <-told)
}

// A pod that cannot be asked is told with the reason.
func TestSessions(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	newPod(t, c, "shop-0")
	wants(t, must(t, c.Namespace, "sessions"), "shop-0", "port-forward")
	_, err := run(t, c.Namespace, "rpc", "shop", "--pod", "shop-7", "1")
	refused(t, err, "shop has no pod shop-7")
	_, err = run(t, c.Namespace, "remote")
	refused(t, err, "needs a terminal")
}

// What a pod says of its dumps needs a kubelet: the end-to-end tests ask one.
func TestCrashdump(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	_, err := run(t, c.Namespace, "crashdump")
	refused(t, err, "set spec.beam.crashDumps")

	c.Spec.BEAM.CrashDumps = &v1alpha1.CrashDumpsSpec{}
	suite.Must(t, api.Update(t.Context(), c))
	pod := newPod(t, c, "shop-0")
	wants(t, must(t, c.Namespace, "crashdump"), "shop-0", "made without spec.beam.crashDumps")
	_, err = run(t, c.Namespace, "crashdump", "get", pod.Name, "--out", filepath.Join(t.TempDir(), "dump"))
	refused(t, err, "made without spec.beam.crashDumps")
	_, err = run(t, c.Namespace, "crashdump", "get", "other-0")
	refused(t, err, "other-0")
}

// A pod cannot choose where its dump is written to.
func TestDumpsAreFilesOfTheFolder(t *testing.T) {
	dumps, err := parseDumps([]byte(`[{"name":"erl_crash-20261123T185500.000Z.dump","bytes":7}]`))
	if err != nil || len(dumps) != 1 || dumps[0].Bytes != 7 {
		t.Errorf("%+v, %v", dumps, err)
	}
	for _, name := range []string{"/../../.bashrc", `\\..\\.bashrc`, "C:dump"} {
		_, err := parseDumps([]byte(`[{"name":"` + name + `"}]`))
		refused(t, err, "is no dump")
	}
}

func TestBench(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	must(t, c.Namespace, "bench", "run", "evening", "--users", "40", "--duration", "10m")
	b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "evening", Namespace: c.Namespace}}
	reload(t, b)
	run0 := b.Spec.Matrix.Runs[0]
	if b.Spec.Target.ClusterRef.Name != "shop" || run0.Users != 40 || run0.TTL.Duration != 5*time.Minute || b.Spec.Matrix.Adapters[0] != v1alpha1.AdapterETS {
		t.Errorf("%+v", b.Spec)
	}
	_, err := run(t, c.Namespace, "bench", "report", "evening")
	refused(t, err, "no report yet")
	_, err = run(t, c.Namespace, "bench", "watch", "morning")
	refused(t, err, "not found")

	b.Status = v1alpha1.LiveStashBenchmarkStatus{Phase: v1alpha1.BenchmarkFinished, Verdict: v1alpha1.VerdictFailed, Report: &v1alpha1.BenchmarkReportReference{ConfigMap: "evening-report"},
		Runs: []v1alpha1.BenchmarkRunStatus{{Name: "evening-1-ets", Adapter: "ETS", Users: 40, TTL: run0.TTL, Phase: v1alpha1.RunFinished, Verdict: v1alpha1.VerdictFailed, Message: "minRecovered"}}}
	suite.Must(t, api.Status().Update(t.Context(), b))
	out, err := run(t, c.Namespace, "bench", "watch", "evening")
	refused(t, err, "the verdict is Failed")
	wants(t, out, "1/1 runs", "minRecovered")

	suite.Must(t, api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "evening-report", Namespace: c.Namespace},
		Data: map[string]string{"report.html": "<h1>", "report.md": "#", "report.json": "{}"}}))
	folder := filepath.Join(t.TempDir(), "new")
	must(t, c.Namespace, "bench", "report", "evening", "--out", folder)
	if html, err := os.ReadFile(filepath.Join(folder, "report.html")); err != nil || string(html) != "<h1>" {
		t.Error(string(html), err)
	}
}

// No value of a Secret, a ConfigMap or a variable is in a report, wherever it was written.
func TestReport(t *testing.T) {
	const marked, quoted = "MARKED-aGVsbG8+/value", "MARKED\"quoted\\value"
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{
		Pods:       []v1alpha1.PodStatus{{Name: "shop-0", Problem: "it said " + marked}},
		Conditions: []metav1.Condition{{Type: "Stalled", Status: "True", Reason: "PodFailing", Message: "url " + quoted, LastTransitionTime: metav1.Now()}},
	})
	c.Spec.Env = []corev1.EnvVar{{Name: "PLAIN", Value: "MARKED-plain"}}
	c.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "MARKED-applied"}
	suite.Must(t, api.Update(t.Context(), c))
	labels := map[string]string{render.ClusterLabel: "shop"}
	suite.Must(t, api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-env", Namespace: c.Namespace, Labels: labels}, StringData: map[string]string{"A": marked, "B": quoted, "C": "MARKED-first\nMARKED-second"}}))
	suite.Must(t, api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: c.Namespace, Labels: labels}, Data: map[string]string{"a": "MARKED-config"}}))
	pod := newPod(t, c, "shop-0")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: c.Namespace, Labels: labels, Annotations: map[string]string{kept.RenderingAnnotation: "MARKED-packed"}}}
	set.Spec.Selector, set.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	set.Spec.Template.Spec.Containers = pod.Spec.Containers
	suite.Must(t, api.Create(t.Context(), set))
	suite.Must(t, api.Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: c.Namespace}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name, Namespace: c.Namespace},
		Message: "told MARKED-second and " + base64.StdEncoding.EncodeToString([]byte(marked))}))

	out := filepath.Join(t.TempDir(), "shop.tar.gz")
	must(t, c.Namespace, "report", "--out", out)
	files := unpack(t, out)
	for _, name := range []string{"about.txt", "status.txt", "doctor.txt", "livestashcluster.yaml", "statefulset.yaml", "secret.yaml", "configmap.yaml", "pod.yaml", "event.yaml"} {
		if files[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "MARKED") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(marked))) {
			t.Errorf("a marked value is in %s:\n%s", name, text)
		}
	}
	wants(t, files["livestashcluster.yaml"], "name: PLAIN", "[redacted]")
	wants(t, files["secret.yaml"], "A: '[redacted]'")
	_, err := run(t, c.Namespace, "report", "--out", out)
	refused(t, err, "file exists")
}

// unpack are the files of an archive, by their names without the folder.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	suite.Must(t, err)
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	suite.Must(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		suite.Must(t, err)
		text, err := io.ReadAll(archive)
		suite.Must(t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

func TestDoctor(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	wants(t, must(t, c.Namespace, "doctor"), "nothing is wrong")
	c.Spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "shop-env", Key: "SECRET_KEY_BASE"}}
	suite.Must(t, api.Update(t.Context(), c))
	out, err := run(t, c.Namespace, "doctor")
	refused(t, err, "broken")
	wants(t, out, "The spec names the Secret shop-env, which does not exist.")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-env", Namespace: c.Namespace}, StringData: map[string]string{"SECRET_KEY_BASE": "MARKED\n"}}
	suite.Must(t, api.Create(t.Context(), secret))
	out, _ = run(t, c.Namespace, "doctor", "-o", "json")
	var examined struct {
		Findings []struct{ Check, Severity string }
	}
	suite.Must(t, json.Unmarshal([]byte(out), &examined))
	if len(examined.Findings) != 1 || examined.Findings[0].Check != "secret-value" || strings.Contains(out, "MARKED") {
		t.Error(out)
	}

	file := filepath.Join(t.TempDir(), "new.yaml")
	suite.Must(t, os.WriteFile(file, []byte("apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: blog}\nspec: {image: 'blog:1', adapter: ETS, ttl: soon}\n"), 0o600))
	_, err = run(t, c.Namespace, "doctor", "-f", file)
	refused(t, err, "ttl must be a duration")
	for spec, says := range map[string]string{
		"rollouts: {surge: Never}": "rollouts", // not rollout
		"http: {port: 0}":          "spec.http.port",
	} {
		suite.Must(t, os.WriteFile(file, []byte("apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: blog}\nspec: {image: 'blog:1', adapter: ETS, "+spec+"}\n"), 0o600))
		out, err = run(t, c.Namespace, "doctor", "-f", file)
		refused(t, err, "broken")
		wants(t, out, "spec-refused", says)
	}
	suite.Must(t, os.WriteFile(file, []byte("apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: blog}\nspec: {image: 'blog:1', adapter: ETS, http: {host: 'https://blog'}}\n"), 0o600))
	out, err = run(t, c.Namespace, "doctor", "-f", file)
	refused(t, err, "broken")
	wants(t, out, "spec-refused", "host must be a DNS name alone")
	for _, adapter := range []string{"", "adapter: Ets, "} {
		suite.Must(t, os.WriteFile(file, []byte("apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: blog}\nspec: {"+adapter+"image: 'blog:1'}\n"), 0o600))
		out, err = run(t, c.Namespace, "doctor", "-f", file)
		refused(t, err, "broken")
		wants(t, out, "spec-refused", "spec.adapter")
	}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "blog"}, &v1alpha1.LiveStashCluster{}); err == nil {
		t.Error("doctor has made the fleet")
	}
}

// Who may edit a namespace can do everything, and is told what could not be looked at.
func TestRights(t *testing.T) {
	c := newFleet(t, v1alpha1.LiveStashClusterStatus{})
	suite.Tenant(t, connection, api.Scheme(), c.Namespace)
	as := []string{"--as", "tenant of " + c.Namespace, "--as-group", "system:authenticated"}
	statefulSet(t, c)
	for _, verb := range [][]string{{"status"}, {"rollout", "pause"}, {"rollout", "resume"}, {"restart"}, {"sessions"}, {"bench", "run", "b"}, {"report", "--out", filepath.Join(t.TempDir(), "r")}} {
		must(t, c.Namespace, append(verb, as...)...)
	}
	wants(t, must(t, c.Namespace, append([]string{"doctor"}, as...)...), "Not looked at: Nodes", "nothing is wrong")
}

func TestMigrateFromCluster(t *testing.T) {
	namespace := suite.Namespace(t, api)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: namespace}}
	labels := map[string]string{"app": "shop"}
	deployment.Spec.Selector, deployment.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "shop:1"}}
	suite.Must(t, api.Create(t.Context(), deployment))
	wants(t, must(t, namespace, "migrate", "shop"), "kind: LiveStashCluster", "image: shop:1", "# Delete the Deployment")
	_, err := run(t, namespace, "migrate")
	refused(t, err, "name a Deployment")
}
