package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// targetSays waits until condition TargetReady has that status and says that.
func targetSays(t *testing.T, b *v1alpha1.LiveStashBenchmark, status metav1.ConditionStatus, says string) {
	t.Helper()
	reaches(t, b, fmt.Sprintf("told that its target is %s: %s", status, says), func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		found := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionTargetReady)
		return found != nil && found.Status == status && strings.Contains(found.Message, says)
	})
}

// A fleet that is not there yet is awaited, as the condition promises, and one that goes in the middle ends the run at once.
func TestTargetThatComesAndGoes(t *testing.T) {
	space := suite.Namespace(t, api)
	b := newBenchmark(t, space, "early", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}
	})
	targetSays(t, b, metav1.ConditionFalse, "There is no LiveStashCluster shop in namespace "+space+": make it")

	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop"}}
	shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL = fleetImage, v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}
	suite.Must(t, api.Create(t.Context(), shop))
	targetSays(t, b, metav1.ConditionFalse, "the operator has not looked at it yet")
	serves(t, shop)
	testRunOf(t, b)
	targetSays(t, b, metav1.ConditionTrue, "LiveStashCluster shop is available")

	suite.Must(t, api.Delete(t.Context(), shop))
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "LiveStashCluster shop was deleted while the run went on") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
	targetSays(t, b, metav1.ConditionFalse, "shop was deleted")
}

// A run in whose middle somebody scales the fleet was of neither size.
func TestTargetThatIsScaled(t *testing.T) {
	space := suite.Namespace(t, api)
	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop"}}
	shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL, shop.Spec.Replicas = fleetImage, v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}, ptr.To[int32](4)
	suite.Must(t, api.Create(t.Context(), shop))
	serves(t, shop)
	b := newBenchmark(t, space, "scaled", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}
		spec.Thresholds.MaxRestarts = ptr.To[int32](9) // there are no pods
	})
	run := testRunOf(t, b)
	stage(t, run, "started")
	reaches(t, b, "running", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return s.Runs[0].Phase == v1alpha1.RunRunning })
	refresh(t, shop)
	shop.Spec.Replicas = ptr.To[int32](2)
	suite.Must(t, api.Update(t.Context(), shop))
	hasSeen(t, operator.known, shop)
	for i := range 2 {
		endPod(t, newPod(t, b, fmt.Sprintf("%s-%d", run.GetName(), i+1)), 0, reportOf(b, i, 80, 0))
	}
	row := finished(t, b)
	if row.Verdict != v1alpha1.VerdictErrored || row.Message != "LiveStashCluster shop was scaled while the run went on: 4 -> 2 pods." || row.Recovered == "" {
		t.Errorf("the run is %s because %q, and recovered %q", row.Verdict, row.Message, row.Recovered)
	}
}

// Somebody else's fleet with the name of the run's own ends the run, and its pods are nothing to wait for.
func TestForeignFleetsAreLeftAlone(t *testing.T) {
	space := suite.Namespace(t, api)
	foreign := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "taken-01-ets"}}
	foreign.Spec.Image, foreign.Spec.Adapter = fleetImage, v1alpha1.AdapterETS
	suite.Must(t, api.Create(t.Context(), foreign))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "taken-01-ets-0", Labels: map[string]string{render.ClusterLabel: foreign.Name, render.ComponentLabel: render.FleetComponent}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	suite.Must(t, api.Create(t.Context(), pod))
	b := newBenchmark(t, space, "taken", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{Template: &v1alpha1.BenchmarkTemplate{Spec: v1alpha1.BenchmarkClusterSpec{Image: fleetImage}}}
	})
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "LiveStashCluster taken-01-ets exists and does not belong to this benchmark") {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
	for _, object := range []client.Object{foreign, pod} {
		version := object.GetResourceVersion()
		if refresh(t, object); object.GetResourceVersion() != version {
			t.Errorf("%s was changed: %+v", object.GetName(), object)
		}
	}
}

// After a rollout with a surge that stays, a fleet's pods do not count from 0.
func TestTargetWhosePodsCountFromOne(t *testing.T) {
	space := suite.Namespace(t, api)
	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop"}}
	shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL, shop.Spec.Replicas = "i", v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}, ptr.To[int32](2)
	suite.Must(t, api.Create(t.Context(), shop))
	newSet(t, shop, 1)
	serves(t, shop)
	b := newBenchmark(t, space, "later", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target, spec.Runner = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}, v1alpha1.RunnerJob
	})
	host := ".shop-nodes." + space + ".svc.cluster.local:4000"
	if _, told := jobOf(t, b); told["BASE_URLS"] != "http://shop-1"+host+",http://shop-2"+host {
		t.Errorf("k6 is told BASE_URLS=%s", told["BASE_URLS"])
	}
}

// A fleet that is told to go, and waits for something before it does, as with `kubectl delete --cascade=foreground`, is none any more: no
// run begins on it, and one that has begun ends at once.
func TestTargetThatIsBeingDeleted(t *testing.T) {
	for name, begun := range map[string]bool{"before the run": false, "in the middle": true} {
		t.Run(name, func(t *testing.T) {
			space := suite.Namespace(t, api)
			shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop", Finalizers: []string{"example.com/wait"}}}
			shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL = fleetImage, v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}
			suite.Must(t, api.Create(t.Context(), shop))
			t.Cleanup(func() {
				_ = api.Patch(context.Background(), shop, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`)))
			})
			serves(t, shop)
			if !begun {
				suite.Must(t, api.Delete(t.Context(), shop))
			}
			b := newBenchmark(t, space, "late", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
				spec.Target = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}
			})
			if !begun {
				targetSays(t, b, metav1.ConditionFalse, "LiveStashCluster shop is being deleted: make it again")
				return
			}
			testRunOf(t, b)
			suite.Must(t, api.Delete(t.Context(), shop))
			if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "LiveStashCluster shop was deleted while the run went on") {
				t.Errorf("the run is %s because %q", row.Verdict, row.Message)
			}
			targetSays(t, b, metav1.ConditionFalse, "shop was deleted")
		})
	}
}

// Nothing of a run outlives it, whatever is to become of the user's own fleet.
func TestARunKeepsNothing(t *testing.T) {
	b := &v1alpha1.LiveStashBenchmark{}
	b.Spec.Scenario, b.Spec.Target.Template = v1alpha1.ScenarioVisits, &v1alpha1.BenchmarkTemplate{}
	suite.Must(t, json.Unmarshal([]byte(`{"image": "i", "whenDeleted": "Retain"}`), &b.Spec.Target.Template.Spec))
	made, err := freshFleet(b, loadtest.Run{Name: "run", Adapter: v1alpha1.AdapterETS})
	suite.Must(t, err)
	if spec := made.Object["spec"].(map[string]any); spec["whenDeleted"] != nil || spec["image"] != "i" {
		t.Errorf("the spec is %v", spec)
	}
}

// A variant's fleet is that of the template with the patch merged in: objects field by field, variables by their names, lists as a whole.
func TestAVariantIsPatched(t *testing.T) {
	b := &v1alpha1.LiveStashBenchmark{}
	b.Spec.Scenario, b.Spec.Target.Template = v1alpha1.ScenarioVisits, &v1alpha1.BenchmarkTemplate{}
	run := loadtest.Run{Name: "run", Variant: "other", Adapter: v1alpha1.AdapterNone, TTL: time.Minute, Patch: &v1alpha1.BenchmarkPatch{}}
	suite.Must(t, json.Unmarshal([]byte(`{"image": "i", "beam": {"fullsweepAfter": 65535, "drainTimeout": "1m"}, "tolerations": [{"key": "a"}],
		"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}`), &b.Spec.Target.Template.Spec))
	suite.Must(t, json.Unmarshal([]byte(`{"replicas": 3, "beam": {"fullsweepAfter": 20}, "tolerations": [{"key": "b"}],
		"env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "C", "value": "3"}]}`), run.Patch))
	run.Patch = run.Patch.DeepCopy()
	for range 2 { // the template itself stays as it is
		made, err := freshFleet(b, run)
		suite.Must(t, err)
		got, err := json.Marshal(made.Object["spec"])
		suite.Must(t, err)
		want := `{"adapter":"None","beam":{"drainTimeout":"1m","fullsweepAfter":20},"env":[{"name":"A","value":"1"},` +
			`{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}},{"name":"C","value":"3"},` +
			`{"name":"STASH_PAYLOAD_KEYS","value":"150"},{"name":"STASH_PAYLOAD_ON_PAGE","value":"hidden"}],"image":"i","replicas":3,"tolerations":[{"key":"b"}],"ttl":"1m0s"}`
		if string(got) != want {
			t.Errorf("the fleet is\n%s, want\n%s", got, want)
		}
	}
	b.Spec.Matrix = &v1alpha1.BenchmarkMatrix{Variants: []v1alpha1.BenchmarkVariant{{Name: "usual", Adapter: v1alpha1.AdapterETS}, {Name: "other", Adapter: v1alpha1.AdapterNone, Patch: run.Patch}}}
	spec := specOf(b, report.Spec{})
	if len(spec.Variants) != 2 || spec.Baseline != "usual" || spec.Variants[0] != (report.Variant{Name: "usual", Adapter: "ETS"}) ||
		spec.Variants[1].Adapter != "None" || !strings.Contains(spec.Variants[1].Patch, `"fullsweepAfter": 20`) {
		t.Errorf("the report says %+v", spec)
	}
	run.Patch = nil
	made, err := freshFleet(b, run)
	suite.Must(t, err)
	if spec := made.Object["spec"].(map[string]any); spec["replicas"] != nil || spec["beam"].(map[string]any)["fullsweepAfter"] != 65535.0 {
		t.Errorf("without a patch the fleet is %v", spec)
	}
}

// The pods are told what to stash and whether to show it, as the report says.
func TestAFleetIsToldItsPayload(t *testing.T) {
	b := &v1alpha1.LiveStashBenchmark{}
	b.Spec.Preset, b.Spec.Scenario, b.Spec.Target.Template = v1alpha1.PresetLiveStash2026, v1alpha1.ScenarioVisits, &v1alpha1.BenchmarkTemplate{}
	suite.Must(t, json.Unmarshal([]byte(`{"image": "i"}`), &b.Spec.Target.Template.Spec))
	made, err := freshFleet(b, loadtest.Run{Name: "run", Adapter: v1alpha1.AdapterETS})
	suite.Must(t, err)
	if told := fmt.Sprint(made.Object["spec"].(map[string]any)["env"]); told != "[map[name:STASH_PAYLOAD_KEYS value:150] map[name:STASH_PAYLOAD_ON_PAGE value:shown]]" {
		t.Errorf("the pods are told %s", told)
	}
	if spec := specOf(b, report.Spec{}); spec.PayloadKeys != 150 || spec.PayloadOnPage != "Shown" {
		t.Errorf("the report says %+v", spec)
	}
}

// serves is what the operator says of a fleet that can be measured.
func serves(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	cluster.Status.ObservedGeneration = cluster.Generation
	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionReconcileSucceeded: metav1.ConditionTrue, v1alpha1.ConditionAvailable: metav1.ConditionTrue,
		v1alpha1.ConditionClustered: metav1.ConditionTrue, v1alpha1.ConditionStoreReady: metav1.ConditionTrue, v1alpha1.ConditionProgressing: metav1.ConditionFalse,
	} {
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test"})
	}
	suite.Must(t, api.Status().Update(t.Context(), cluster))
}

// A fleet whose image cannot be had says so while it is awaited, not after the deadline.
func TestUnreadyNamesWhatHoldsItUp(t *testing.T) {
	const image = "pod shop-0, container app: ErrImagePull; the image nowhere/shop:1 cannot be had"
	for reason, want := range map[string]string{
		v1alpha1.ReasonPodFailing:     "Available is False: 0 of 1 pods ready; " + image,
		v1alpha1.ReasonWaitingForPods: "Available is False: 0 of 1 pods ready",
	} {
		shop := &v1alpha1.LiveStashCluster{}
		shop.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionReconcileSucceeded, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Message: "0 of 1 pods ready"},
			{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: reason, Message: image},
		}
		if got := unready(shop); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

// What the API cannot see of a deadline, as with scale and Visits, is told before anything is made.
func TestDeadlineThatNoRunKeeps(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "short", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Scenario, spec.RunDeadline = v1alpha1.ScenarioVisits, &metav1.Duration{Duration: time.Minute}
	})
	if row := finished(t, b); row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "lasts 37s, and spec.runDeadline of 1m0s leaves no time") || row.Runner != "" {
		t.Errorf("the run is %s because %q, its runner is %q", row.Verdict, row.Message, row.Runner)
	}
}

// So does an image of k6 that cannot be had, with k6-operator and with a Job.
func TestRunnersThatDoNotStartAreNamed(t *testing.T) {
	for kind, test := range map[v1alpha1.BenchmarkRunner]client.Object{v1alpha1.RunnerK6Operator: testRun(metav1.ObjectMeta{}), v1alpha1.RunnerJob: &batchv1.Job{}} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBenchmark(t, suite.Namespace(t, api), "unpulled", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Runner = kind })
			reaches(t, b, "begun", func(s v1alpha1.LiveStashBenchmarkStatus) bool { return len(s.Runs) > 0 && s.Runs[0].Runner != "" })
			suite.Eventually(t, func() error {
				return api.Get(t.Context(), client.ObjectKey{Namespace: b.Namespace, Name: b.Status.Runs[0].Runner}, test)
			})
			pod := newPod(t, b, b.Status.Runs[0].Runner+"-initializer")
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = "0"
			suite.Must(t, controllerutil.SetControllerReference(test, pod, scheme()))
			suite.Must(t, api.Update(t.Context(), pod))
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "k6", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "nowhere/k6:1: not found"},
			}}}
			suite.Must(t, api.Status().Update(t.Context(), pod))
			reaches(t, b, "told what is wrong", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
				complete := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete)
				return complete != nil && strings.Contains(complete.Message, "ErrImagePull: nowhere/k6:1: not found")
			})
		})
	}
}
