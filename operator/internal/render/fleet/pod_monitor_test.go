package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

const (
	agentScraped = `podMetricsEndpoints:
- path: /metrics
  port: agent
  relabelings:
  - sourceLabels:
    - __meta_kubernetes_pod_label_livestash_dev_cluster
    targetLabel: livestash_cluster
`
	redisScraped = `podMetricsEndpoints:
- interval: 15s
  path: /metrics
  port: agent
  relabelings:
  - sourceLabels:
    - __meta_kubernetes_pod_label_livestash_dev_cluster
    targetLabel: livestash_cluster
- interval: 15s
  path: /metrics
  port: metrics
  relabelings:
  - sourceLabels:
    - __meta_kubernetes_pod_label_livestash_dev_cluster
    targetLabel: livestash_cluster
`
	selectsFleet = `sampleLimit: 10000
selector:
  matchLabels:
    livestash.dev/cluster: shop
`
)

func TestPodMonitor(t *testing.T) {
	cases := map[string]struct {
		cluster *v1alpha1.LiveStashCluster
		wanted  v1alpha1.PodMonitorSpec
		want    string
	}{
		"agents": {rendertest.Cluster(t, "smallest"), v1alpha1.PodMonitorSpec{}, agentScraped + selectsFleet},
		"agents and the exporter of Redis": {
			rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{}}),
			v1alpha1.PodMonitorSpec{Interval: &metav1.Duration{Duration: 15 * time.Second}},
			redisScraped + selectsFleet,
		},
		"no exporter": {
			rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Exporter: v1alpha1.RedisExporter{Enabled: ptr.To(false)}}}),
			v1alpha1.PodMonitorSpec{},
			agentScraped + selectsFleet,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if PodMonitor(c.cluster) != nil {
				t.Error("it is made without being asked for")
			}
			c.wanted.Enabled = true
			c.cluster.Spec.Monitoring.PodMonitor = c.wanted
			object := PodMonitor(c.cluster)
			got, err := yaml.Marshal(object.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("the spec (-want +got):\n%s", diff)
			}
			if !metav1.IsControlledBy(object, c.cluster) {
				t.Error("it is not deleted with the LiveStashCluster")
			}
		})
	}
}

func TestPodMonitorLabels(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.Monitoring.PodMonitor = v1alpha1.PodMonitorSpec{Enabled: true, Labels: map[string]string{"release": "monitoring"}}
	want := render.Labels(cluster)
	want["release"] = "monitoring"
	if diff := cmp.Diff(want, PodMonitor(cluster).GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}
