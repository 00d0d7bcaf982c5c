package runner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// What a test is made of, by whoever runs it.
func TestRenderedTests(t *testing.T) {
	test := Test{
		Name: "rush-1", Namespace: "shop", Labels: map[string]string{BenchmarkLabel: "rush"}, Owner: metav1.OwnerReference{Kind: "LiveStashBenchmark", Name: "rush"},
		Image: "livestash-k6", StarterImage: "starter", Runners: 2, Script: Script{File: "rush.js", ConfigMap: "scripts"},
		Env: []corev1.EnvVar{{Name: "USERS", Value: "100"}}, Prometheus: "http://prometheus:9090/api/v1/write", Limit: time.Minute,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
	}
	for name, object := range map[string]client.Object{
		"job": (&Job{}).Object(test), "testrun": (&TestRun{}).Object(test), "network-policy": NetworkPolicy(test, "livestash-system"),
	} {
		t.Run(name, func(t *testing.T) { rendertest.CompareGolden(t, name, object) })
	}
}
