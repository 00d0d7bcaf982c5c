package v1alpha1_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// clusters and benchmarks are the API of a real API server, where these tests apply good and bad objects.
var clusters, benchmarks dynamic.ResourceInterface

func TestMain(m *testing.M) {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	if err != nil {
		_ = environment.Stop()
		panic("these tests need an API server, see `make test-operator`: " + err.Error())
	}
	resource := func(name string) dynamic.ResourceInterface {
		kind := schema.GroupVersionResource{Group: "livestash.dev", Version: "v1alpha1", Resource: name}
		return dynamic.NewForConfigOrDie(config).Resource(kind).Namespace("default")
	}
	clusters, benchmarks = resource("livestashclusters"), resource("livestashbenchmarks")

	code := m.Run()
	if err := environment.Stop(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func TestPodTemplateIsKeptWhole(t *testing.T) {
	spec := `{image: a, adapter: ETS, podTemplate: {spec: {priorityClassName: gold, containers: [{name: app, lifecycle: {preStop: {sleep: {seconds: 3}}}}]}}}`
	object := clusterObject(t, "kept", spec)
	created, err := clusters.Create(context.Background(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "podTemplate", "spec", "priorityClassName")
	got, found, err := unstructured.NestedString(created.Object, "spec", "podTemplate", "spec", "priorityClassName")
	if err != nil || !found || got != want {
		t.Errorf("priorityClassName = %q, %v, %v", got, found, err)
	}
	containers, _, _ := unstructured.NestedSlice(created.Object, "spec", "podTemplate", "spec", "containers")
	if len(containers) != 1 || containers[0].(map[string]any)["lifecycle"] == nil {
		t.Errorf("the container's lifecycle is gone: %v", containers)
	}
}

func TestDefaults(t *testing.T) {
	created, err := clusters.Create(t.Context(), clusterObject(t, "", `{image: a, adapter: ETS, rollout: {}}`), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if surge, _, _ := unstructured.NestedString(created.Object, "spec", "rollout", "surge"); surge != "Stays" {
		t.Errorf("surge is %q", surge)
	}
	if most, _, _ := unstructured.NestedInt64(created.Object, "spec", "disruptionBudget", "maxUnavailable"); most != 1 {
		t.Errorf("maxUnavailable is %d", most)
	}
}

// Who waits by kstatus takes an object without a word on it for done: so there is one, that speaks of no generation, until the
// operator says more.
func TestNobodyHasSeenANewObject(t *testing.T) {
	for kind, spec := range map[string]string{
		"LiveStashCluster":   "{image: a, adapter: ETS}",
		"LiveStashBenchmark": "{target: {template: {spec: {image: a}}}, matrix: {runs: [{users: 200, ttl: 10m}]}}",
	} {
		objects := clusters
		if kind == "LiveStashBenchmark" {
			objects = benchmarks
		}
		made, err := objects.Create(t.Context(), objectOf(t, kind, "unseen", spec), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{}) })
		if made, err = objects.Get(t.Context(), made.GetName(), metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		seen, has, err := unstructured.NestedInt64(made.Object, "status", "observedGeneration")
		if err != nil || !has || seen == made.GetGeneration() {
			t.Errorf("%s: of generation %d, %d is seen (%v, %v)", kind, made.GetGeneration(), seen, has, err)
		}
	}
}

// An autoscaler may lower the replicas below what a canary asks for; who changes the canary is told.
func TestCanaryAndReplicas(t *testing.T) {
	made, err := clusters.Create(t.Context(), clusterObject(t, "canary", `{image: a, adapter: ETS, replicas: 4, rollout: {canary: {pods: 3}}}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clusters.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{}) })
	made.Object["status"] = map[string]any{"replicas": int64(4)}
	if made, err = clusters.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change string
		says   string
	}{
		{change: `{"spec":{"replicas":2}}`},
		{change: `{"spec":{"rollout":{"canary":{"duration":"1m"}}}}`},
		{change: `{"spec":{"rollout":{"canary":{"pods":2}}}}`, says: "must be less than replicas"},
		{change: `{"spec":{"rollout":{"canary":{"pods":1}}}}`},
	} {
		_, err := clusters.Patch(t.Context(), made.GetName(), types.MergePatchType, []byte(c.change), metav1.PatchOptions{})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.change, err)
		}
	}
}

func clusterObject(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectOf(t, "LiveStashCluster", name, spec)
}

// objectOf is an object of this API. It is named shop unless it has another name.
func objectOf(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	object.SetAPIVersion("livestash.dev/v1alpha1")
	object.SetKind(kind)
	object.SetName(cmp.Or(name, "shop"))
	object.Object["spec"] = fields
	return object
}
