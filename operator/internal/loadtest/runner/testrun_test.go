package runner

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// k6-operator gives runners a liveness probe of its own, which a load test with all processors busy does not survive.
func TestBusyRunnersAreNotKilled(t *testing.T) {
	object := (&TestRun{}).Object(Test{Name: "run", Namespace: "shop", Runners: 2}).(*unstructured.Unstructured)
	fields, found, err := unstructured.NestedMap(object.Object, "spec", "runner", "livenessProbe")
	if err != nil || !found {
		t.Fatalf("there is no liveness probe: %v", err)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	var probe corev1.Probe
	if err := json.Unmarshal(text, &probe); err != nil {
		t.Fatal(err)
	}
	if patience := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; patience < 5*time.Minute || probe.TimeoutSeconds < 10 {
		t.Errorf("k6 is killed when it is busy for %s, or for one answer %d s", patience, probe.TimeoutSeconds)
	}
}
