package fleet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// PodMonitorKind is prometheus-operator's kind of a set of pods to scrape.
var PodMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}

// PodMonitorLabel is the label of scraped series that names the LiveStashCluster.
const PodMonitorLabel = "livestash_cluster"

// mostSamples is many times what an agent or an exporter tells: an image may put anything on those ports, and Prometheus would take it.
const mostSamples int64 = 10000

// PodMonitor makes Prometheus scrape the fleet's agents, and the exporter of a Redis that this operator runs: one object for
// both, because a pod without a port of that name is passed over. Nil when it is not enabled.
func PodMonitor(c *v1alpha1.LiveStashCluster) *unstructured.Unstructured {
	wanted := c.Spec.Monitoring.PodMonitor
	if !wanted.Enabled {
		return nil
	}
	endpoints := []any{podMetricsEndpoint(AgentPort, wanted)}
	if managed := store.ManagedRedis(c); managed != nil && managed.ExporterEnabled() {
		endpoints = append(endpoints, podMetricsEndpoint(redis.ExporterPortName, wanted))
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector":            map[string]any{"matchLabels": map[string]any{render.ClusterLabel: c.Name}},
		"podMetricsEndpoints": endpoints,
		"sampleLimit":         mostSamples,
	}}}
	object.SetGroupVersionKind(PodMonitorKind)
	object.SetNamespace(c.Namespace)
	object.SetName(c.Name)
	object.SetLabels(render.Merged(wanted.Labels, render.Labels(c)))
	object.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
	return object
}

func podMetricsEndpoint(port string, wanted v1alpha1.PodMonitorSpec) map[string]any {
	endpoint := map[string]any{
		"port": port,
		"path": "/metrics",
		"relabelings": []any{map[string]any{
			"sourceLabels": []any{"__meta_kubernetes_pod_label_livestash_dev_cluster"},
			"targetLabel":  PodMonitorLabel,
		}},
	}
	if wanted.Interval != nil {
		endpoint["interval"] = wanted.Interval.Duration.String()
	}
	return endpoint
}
