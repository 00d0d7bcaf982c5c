package stash

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// redis keeps stashes in a Redis server. Pods hold nothing.
type redis struct {
	anySize
	patient
}

func (redis) Name() string { return "redis" }

func (redis) Home() Home { return Elsewhere }

func (redis) Env(c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	return []corev1.EnvVar{FromSecret("LIVE_STASH_REDIS_URL", c.Spec.Redis.External.URLSecretRef)}
}

func (redis) SecretRefs(c *v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference {
	return []v1alpha1.SecretKeyReference{c.Spec.Redis.External.URLSecretRef}
}

// FromSecret is the environment variable name with the value that a Secret holds.
func FromSecret(name string, ref v1alpha1.SecretKeyReference) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name},
		Key:                  ref.Key,
	}}}
}
