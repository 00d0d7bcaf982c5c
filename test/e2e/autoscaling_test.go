package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fenced"
)

// metricsNginx stands in for metrics-server: it answers with what lies in /tmp, whoever asks.
const metricsNginx = `
server {
  listen 443 ssl;
  ssl_certificate     /etc/nginx/tls/tls.crt;
  ssl_certificate_key /etc/nginx/tls/tls.key;
  default_type application/json;
  location = /apis/metrics.k8s.io/v1beta1 {
    return 200 '{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]}]}';
  }
  location = /apis/metrics.k8s.io/v1beta1/namespaces/@NAMESPACE@/pods { alias /tmp/pods.json; }
}
`

const metricsService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  service: {name: nginx, namespace: @NAMESPACE@}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
`

// The page's HorizontalPodAutoscaler, which Kubernetes runs, finds the fleet's pods and what they use, gives the fleet more of them and
// takes them away again. No stash goes with them. What the pods use is made up here.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "autoscaling")
	if out, err := s.kubectl("", "get", "apiservice", "v1beta1.metrics.k8s.io"); err == nil {
		t.Skipf("the cluster has metrics of its own:\n%s", out)
	}
	s.apply("adapter: ETS\nreplicas: 2\nresources: {requests: {cpu: 50m}}")
	s.nginx(strings.ReplaceAll(metricsNginx, "@NAMESPACE@", s.name))
	s.settled()
	s.rows("shop-0", 100)
	s.rows("shop-1", 100)
	s.use("11m") // 20 % of the 50m of the application and the 5m of the agent's helper
	s.must(strings.ReplaceAll(metricsService, "@NAMESPACE@", s.name), "apply", "-f", "-")
	t.Cleanup(func() { s.must("", "delete", "apiservice", "v1beta1.metrics.k8s.io") })
	s.must("", "wait", "apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", "--timeout=1m")

	var autoscaler string
	for _, block := range fenced.Blocks(read(t, "docs/how-to/autoscaling.md")) {
		if strings.Contains(block.Text, "kind: HorizontalPodAutoscaler") {
			autoscaler = block.Text
		}
	}
	const most = "maxReplicas: 12"
	if !strings.Contains(autoscaler, "minReplicas: 3\n") || !strings.Contains(autoscaler, most) {
		t.Fatalf("the page's autoscaler is another one:\n%s", autoscaler)
	}
	// Four pods are enough for the machine of the tests.
	s.must(strings.Replace(autoscaler, most, "maxReplicas: 4", 1), "apply", "-f", "-")
	replicas := func(want string) {
		t.Helper()
		s.eventually(4*time.Minute, func() error {
			if now := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.spec.replicas}"); now != want {
				return fmt.Errorf("the fleet is to have %s replicas, want %s:\n%s", now, want, s.must("", "describe", "hpa", "shop"))
			}
			return nil
		})
		s.settled()
	}
	replicas("3")
	s.eventually(2*time.Minute, func() error {
		if percent := s.must("", "get", "hpa", "shop", "-o", "jsonpath={.status.currentMetrics[0].resource.current.averageUtilization}"); percent != "20" {
			return fmt.Errorf("the autoscaler sees %q %% in use, want 20:\n%s", percent, s.must("", "describe", "hpa", "shop"))
		}
		return nil
	})

	s.use("42m") // 76 %, where 60 % are wanted: four thirds of the pods
	replicas("4")
	s.held(200, "shop-0", "shop-1", "shop-2", "shop-3")

	s.must("", "patch", "hpa", "shop", "--type=merge", "--patch", `{"spec":{"minReplicas":2,"maxReplicas":2}}`)
	replicas("2")
	s.held(200, "shop-0", "shop-1")
}

// use has the metrics say that every pod uses so much. They are of a time to come, so that no pod is too young for them.
func (s space) use(cpu string) {
	s.t.Helper()
	var items []string
	for i := range 4 {
		items = append(items, fmt.Sprintf(`{"metadata": {"name": "shop-%d", "namespace": %q}, "timestamp": "2100-01-01T00:00:00Z", "window": "15s",
			"containers": [{"name": "app", "usage": {"cpu": %q, "memory": "100Mi"}}]}`, i, s.name, cpu))
	}
	list := `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [` + strings.Join(items, ",") + `]}`
	s.must(list, "exec", "-i", "deployment/nginx", "--", "sh", "-c", "cat > /tmp/new.json && mv /tmp/new.json /tmp/pods.json")
}
