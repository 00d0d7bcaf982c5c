package benchmark

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

// uncached reads what the load tests are made of from the API server.
type uncached struct{ cache.Cache }

func (uncached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return api.List(ctx, list, options...)
}

// A report says how large the machines were. Which kernel they have is not for whoever may read a ConfigMap.
func TestReportTellsNoKernel(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-the-report"}}
	suite.Must(t, api.Create(t.Context(), node))
	t.Cleanup(func() { _ = api.Delete(context.Background(), node) })
	node.Status = corev1.NodeStatus{
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0-13", OSImage: "Debian", KubeletVersion: "v1.36.3"},
	}
	suite.Must(t, api.Status().Update(t.Context(), node))
	b := newBenchmark(t, suite.Namespace(t, api), "machine", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	suite.Must(t, api.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "runner", Labels: map[string]string{runner.TestLabel: "machine-01"}, Finalizers: []string{"example.com/kept-from-the-collector"}},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "k6", Image: "k6"}}},
	}))

	clients, err := kubernetes.NewForConfig(connection)
	suite.Must(t, err)
	one, so := &Reconciler{Client: api, Live: api, Tests: uncached{}, Clients: clients}, report.Report{}
	one.describe(t.Context(), &so, &pass{benchmark: b, run: &loadtest.Run{}, row: &v1alpha1.BenchmarkRunStatus{Runner: "machine-01"}})
	if diff := cmp.Diff([]report.Node{{Name: node.Name, CPU: 4, Memory: 8 << 30, Kubelet: "v1.36.3"}}, so.Machine.Nodes); diff != "" {
		t.Errorf("the machines (-want +got):\n%s", diff)
	}
	told, err := json.Marshal(so)
	suite.Must(t, err)
	for _, word := range []string{"6.1.0-13", "Debian"} {
		if strings.Contains(string(told), word) {
			t.Errorf("%s is told of the node: %s", word, told)
		}
	}
}
