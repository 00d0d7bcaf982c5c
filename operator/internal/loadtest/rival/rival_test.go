package rival_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func cable() rival.Rival {
	return rival.Rival{
		Name: "rooms-02-rails", Namespace: "shop", Labels: map[string]string{"livestash.dev/benchmark": "rooms"},
		Owner: metav1.OwnerReference{Kind: "LiveStashBenchmark", Name: "rooms"},
		Server: v1alpha1.BenchmarkServer{
			Image: "rails", Port: 3000, Protocol: v1alpha1.ProtocolActionCable, Replicas: 1, Redis: &v1alpha1.BenchmarkServerRedis{}, RunAsUser: 65534,
			Env: []v1alpha1.BenchmarkServerVariable{{Name: "WEB_CONCURRENCY", Value: "2"}},
		},
		UsageImage: "operator", RedisImage: "valkey", ByPod: true, OperatorNamespace: "livestash-system", ClusterDomain: "cluster.local",
	}
}

// What a server is made of.
func TestRenderedServer(t *testing.T) {
	rendertest.CompareGolden(t, "rails", cable().Objects()...)
}

// Users reach pods by their names, or all of them through the Service.
func TestURLs(t *testing.T) {
	one := cable()
	one.Server.Replicas = 2
	if diff := cmp.Diff([]string{
		"http://rooms-02-rails-0.rooms-02-rails.shop.svc.cluster.local:3000", "http://rooms-02-rails-1.rooms-02-rails.shop.svc.cluster.local:3000",
	}, one.URLs()); diff != "" {
		t.Errorf("by pod (-want +got):\n%s", diff)
	}
	one.ByPod = false
	if diff := cmp.Diff([]string{"http://rooms-02-rails.shop.svc.cluster.local:3000"}, one.URLs()); diff != "" {
		t.Errorf("through the Service (-want +got):\n%s", diff)
	}
	if service := one.Objects()[1].(*corev1.Service); service.Spec.ClusterIP == corev1.ClusterIPNone {
		t.Error("the Service has no address")
	}
}

// A server has its own resources, else those of the fleets beside it; which files it may write is the user's to say.
func TestResources(t *testing.T) {
	of := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	own := of("3")
	for want, change := range map[string]func(*rival.Rival){
		"2": func(r *rival.Rival) { r.Place.Resources = of("2") },
		"3": func(r *rival.Rival) { r.Place.Resources, r.Server.Resources = of("2"), &own },
		"0": func(*rival.Rival) {},
	} {
		one := cable()
		change(&one)
		one.Server.RootFilesystem = v1alpha1.RootWritable
		server := one.Objects()[2].(*appsv1.StatefulSet).Spec.Template.Spec.Containers[0]
		if got := server.Resources.Limits.Cpu().String(); got != want || *server.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("the limit is %s, want %s; its files: %+v", got, want, server.SecurityContext)
		}
	}
}

// What stands in front of servers: one pod without a second container, whose configuration names them all.
func TestRenderedProxy(t *testing.T) {
	run := rival.Rival{
		Name: "front-01-ets", Namespace: "shop", Labels: map[string]string{"livestash.dev/benchmark": "front"},
		Owner: metav1.OwnerReference{Kind: "LiveStashBenchmark", Name: "front"}, ClusterDomain: "cluster.local",
		Place: rival.Place{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}},
	}
	proxy := rival.Proxy(run, v1alpha1.BenchmarkProxy{Image: "nginx"}, []string{"http://shop-0.shop-nodes.shop.svc.cluster.local:4000", "http://shop-1.shop-nodes.shop.svc.cluster.local:4000"})
	rendertest.CompareGolden(t, "proxy", proxy.Objects()...)
	if diff := cmp.Diff([]string{"http://front-01-ets-proxy.shop.svc.cluster.local:8080"}, proxy.URLs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
