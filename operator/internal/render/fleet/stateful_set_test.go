package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func TestAuthoritiesOfRedisReachThePods(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis", TLS: ptr.To(true), CASecretRef: &v1alpha1.SecretKeyReference{Name: "ca", Key: "value"}}})
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

// While pods with another store are there, no new ones are made.
func TestNoPodsWhileAnotherStoreIsInUse(t *testing.T) {
	left := rendertest.Inputs
	left.StoreLeft = true
	set, err := StatefulSet(rendertest.WithRedis(t, v1alpha1.RedisSpec{}), left)
	if err != nil {
		t.Fatal(err)
	}
	if *set.Spec.Replicas != 0 || set.Spec.Template.Annotations[StoreAnnotation] != left.StoreDigest {
		t.Errorf("%d replicas with the store %s", *set.Spec.Replicas, set.Spec.Template.Annotations[StoreAnnotation])
	}
}
