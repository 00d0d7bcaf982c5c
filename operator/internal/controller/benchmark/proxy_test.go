package benchmark

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// proxied makes a benchmark of a fleet of two pods that serves, through a proxy, and waits for that.
func proxied(t *testing.T, name string) (*v1alpha1.LiveStashBenchmark, *appsv1.StatefulSet) {
	t.Helper()
	space := suite.Namespace(t, api)
	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "shop"}}
	shop.Spec.Image, shop.Spec.Adapter, shop.Spec.TTL, shop.Spec.Replicas = "i", v1alpha1.AdapterETS, &metav1.Duration{Duration: 10 * time.Second}, ptr.To[int32](2)
	suite.Must(t, api.Create(t.Context(), shop))
	b := newBenchmark(t, space, name, func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Target = v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: "shop"}}
		spec.Routing, spec.Proxy, spec.Runner = v1alpha1.RoutingProxy, &v1alpha1.BenchmarkProxy{Image: "nginx"}, v1alpha1.RunnerJob
	})
	targetSays(t, b, metav1.ConditionFalse, "the operator has not looked at it yet")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name + "-01-ets-proxy"}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), set); !apierrors.IsNotFound(err) {
		t.Errorf("there is a proxy before there are servers: %v", err)
	}
	serves(t, shop)
	suite.Eventually(t, func() error { return api.Get(t.Context(), client.ObjectKeyFromObject(set), set) })
	return b, set
}

// Users reach a fleet through the proxy alone, which knows all of its pods, is awaited, and goes with the run.
func TestProxy(t *testing.T) {
	b, set := proxied(t, "front")
	targetSays(t, b, metav1.ConditionFalse, "0 of 1 pods are ready")
	refresh(t, b)
	container := set.Spec.Template.Spec.Containers[0]
	if !metav1.IsControlledBy(set, b) || len(set.Spec.Template.Spec.Containers) != 1 || container.Image != "nginx" {
		t.Errorf("the proxy's pod is %+v", set.Spec.Template.Spec)
	}
	for _, server := range []string{"server shop-0.shop-nodes." + b.Namespace, "server shop-1.shop-nodes." + b.Namespace, "least_conn;"} {
		if told := container.Env[len(container.Env)-1].Value; !strings.Contains(told, server) {
			t.Errorf("nginx is not told %q:\n%s", server, told)
		}
	}
	pod := serverPod(t, set, set.Name+"-0")
	pod.Finalizers = []string{"livestash.dev/test"}
	suite.Must(t, api.Update(t.Context(), pod))
	readyPod(t, pod)
	targetSays(t, b, metav1.ConditionTrue, "all pods of the proxy front-01-ets-proxy are ready")
	job, told := jobOf(t, b)
	hasSeen(t, operator.tests, job)
	if told["BASE_URLS"] != "http://front-01-ets-proxy."+b.Namespace+".svc.cluster.local:8080" {
		t.Errorf("k6 is told BASE_URLS=%s", told["BASE_URLS"])
	}

	suite.Must(t, api.Delete(t.Context(), set))
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	reaches(t, b, "ended, because its proxy is gone", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		return s.Runs[0].Verdict == v1alpha1.VerdictErrored && s.Runs[0].Message == "The proxy front-01-ets-proxy was deleted while the run went on."
	})
	suite.Eventually(t, func() error {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(set), &corev1.Service{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("its Service is still there: %w", err)
	})
	if refresh(t, b); b.Status.Phase == v1alpha1.BenchmarkFinished {
		t.Error("it is over while the proxy's pod is there")
	}
	refresh(t, pod)
	pod.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), pod))
	finished(t, b)
}

// A proxy that does not start says why, and ends the run long before its deadline.
func TestProxyThatNeverGetsReady(t *testing.T) {
	b, set := proxied(t, "dead")
	pod := serverPod(t, set, set.Name+"-0")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "nginx: not found"},
	}}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	targetSays(t, b, metav1.ConditionFalse, "nginx: not found")
	operatorTime.Ahead.Add(int64(serverStart + time.Second))
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	row := finished(t, b)
	if row.Verdict != v1alpha1.VerdictErrored || !strings.Contains(row.Message, "The proxy of adapter ETS was not ready within 5m0s") || !strings.HasSuffix(row.Message, "listens on port 8080.") {
		t.Errorf("the run is %s: %s", row.Verdict, row.Message)
	}
}
