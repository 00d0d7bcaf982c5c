// Package rendertest is what the tests of rendering share.
package rendertest

import (
	"embed"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Inputs are what the rendered objects in the tests are made with.
var Inputs = render.Inputs{ClusterDomain: "cluster.local", SecretsDigest: "0123456789", AgentImage: "ghcr.io/livestash-dev/livestash-operator:0.1.0",
	RedisImage: "valkey", RedisExporterImage: "redis_exporter", OperatorNamespace: "livestash-system", Readers: []string{"monitoring"},
	RedisAccessUID: "1-2-3", StoreDigest: "abcdef0123", Replicas: 2}

//go:embed *.yaml
var clusters embed.FS

// Cluster reads one of the LiveStashClusters that stand beside this file and sets what the API server would: the defaults of the CRD.
func Cluster(t *testing.T, name string) *v1alpha1.LiveStashCluster {
	t.Helper()
	content, err := clusters.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.LiveStashCluster{}
	if err := yaml.UnmarshalStrict(content, cluster); err != nil {
		t.Fatal(err)
	}
	if name == "full" {
		return cluster
	}
	cluster.Spec.HTTP = v1alpha1.HTTPSpec{Port: 4000, Service: v1alpha1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Port: 80}}
	cluster.Spec.Clustering.DistributionPort = 9100
	cluster.Spec.Agent = v1alpha1.AgentSpec{Port: 9568, ReadyGrace: ptr.To(metav1.Duration{Duration: 30 * time.Second})}
	cluster.Spec.Drain = v1alpha1.DrainSpec{
		EndpointWait:   ptr.To(metav1.Duration{Duration: 3 * time.Second}),
		BatchSize:      50,
		BatchInterval:  ptr.To(metav1.Duration{Duration: 200 * time.Millisecond}),
		CloseTimeout:   ptr.To(metav1.Duration{Duration: 30 * time.Second}),
		HandOffTimeout: ptr.To(metav1.Duration{Duration: 20 * time.Second}),
		KeepFor:        ptr.To(metav1.Duration{Duration: time.Hour}),
		KeepBytes:      ptr.To(resource.MustParse("256Mi")),
	}
	cluster.Spec.BEAM = v1alpha1.BEAMSpec{ProcessLimit: 1048576, PortLimit: 65536}
	cluster.Spec.DisruptionBudget.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	cluster.Spec.TopologySpread = v1alpha1.SpreadScheduleAnyway
	return cluster
}

// WithRedis is the smallest LiveStashCluster with its stashes in that Redis.
func WithRedis(t *testing.T, redis v1alpha1.RedisSpec) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := Cluster(t, "smallest")
	cluster.Spec.Adapter, cluster.Spec.Redis = v1alpha1.AdapterRedis, &redis
	return cluster
}
