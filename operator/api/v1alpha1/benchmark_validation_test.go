package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const small = `matrix: {runs: [{users: 100, ttl: 1m}]}`

func TestBenchmarkDefaults(t *testing.T) {
	created, err := createBenchmark(t, `{target: {template: {spec: {image: a}}}, `+small+`}`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"target": map[string]any{"template": map[string]any{"spec": map[string]any{"image": "a", "replicas": int64(2)}}},
		"matrix": map[string]any{"runs": []any{map[string]any{"users": int64(100), "ttl": "1m"}}, "repeat": int64(1)},
		"scale":  int64(1), "scenario": "Visits", "routing": "RoundRobin", "runner": "Auto", "runnerTemplate": map[string]any{},
		"thresholds": map[string]any{"minRecovered": "0.99", "maxWrong": int64(0), "maxFailed": "0.01", "maxClientDelay": "100ms", "maxRestarts": int64(0)},
	}
	if diff := cmp.Diff(want, created.Object["spec"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The fields of a fleet that have no type here reach the fleet all the same.
func TestTemplateIsKeptWhole(t *testing.T) {
	spec := `{target: {template: {spec: {image: a, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], beam: {fullsweepAfter: 20}}}}, ` + small + `}`
	created, err := createBenchmark(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	text, err := created.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	typed := &v1alpha1.LiveStashBenchmark{}
	if err := json.Unmarshal(text, typed); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(typed.DeepCopy().Spec.Target.Template.Spec.Raw(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"image": "a", "replicas": 2.0, "beam": map[string]any{"fullsweepAfter": 20.0},
		"env": []any{map[string]any{"name": "A", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func createBenchmark(t *testing.T, spec string) (*unstructured.Unstructured, error) {
	t.Helper()
	return benchmarks.Create(t.Context(), objectOf(t, "LiveStashBenchmark", "", spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}
