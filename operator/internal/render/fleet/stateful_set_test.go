package fleet

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func TestAuthoritiesOfRedisReachThePods(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis", TLS: &v1alpha1.RedisTLS{Enabled: true}, CASecretRef: &v1alpha1.SecretKeyReference{Name: "ca", Key: "value"}}})
	set, err := StatefulSet(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	app := set.Spec.Template.Spec.Containers[0]
	if !hasMount(app, "/livestash-redis") {
		t.Error("the authorities are not mounted")
	}
	for _, variable := range app.Env {
		if variable.Name == "LIVE_STASH_REDIS_CACERTFILE" && variable.Value == "/livestash-redis/ca.crt" {
			return
		}
	}
	t.Error("LIVE_STASH_REDIS_CACERTFILE is not set")
}

func hasMount(container corev1.Container, path string) bool {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath == path {
			return true
		}
	}
	return false
}

// In neither strategy does the StatefulSet controller replace a pod by itself.
func TestUpdateStrategies(t *testing.T) {
	for _, replacing := range []bool{false, true} {
		in := rendertest.Inputs
		in.Replacing = replacing
		set, err := StatefulSet(rendertest.Cluster(t, "smallest"), in)
		if err != nil {
			t.Fatal(err)
		}
		got := set.Spec.UpdateStrategy
		if replacing && (got.Type != appsv1.OnDeleteStatefulSetStrategyType || got.RollingUpdate != nil) {
			t.Errorf("while pods are replaced the strategy is %+v", got)
		}
		if !replacing && (got.Type != appsv1.RollingUpdateStatefulSetStrategyType || *got.RollingUpdate.Partition <= 1000) {
			t.Errorf("between rollouts the strategy is %+v, whose partition pods reach", got)
		}
	}
}
