package stash

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// RedisDir is where the application finds the files that it needs for Redis.
	RedisDir = "/livestash-redis"
	// RedisCAFile is, in RedisDir, the certificates that the server's is checked against.
	RedisCAFile = "ca.crt"

	// RedisURLKey is the URL in the Secret that RedisSecretName names.
	RedisURLKey = "url"
)

// redis keeps stashes in a Redis server. Pods hold nothing.
type redis struct {
	anySize
	patient
}

func (redis) Name() string { return "redis" }

func (redis) Home() Home { return Elsewhere }

func (redis) Env(c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	env := []corev1.EnvVar{FromSecret("LIVE_STASH_REDIS_URL", redisURL(c))}
	if external := c.ExternalRedis(); external != nil && external.CASecretRef != nil {
		env = append(env, corev1.EnvVar{Name: "LIVE_STASH_REDIS_CACERTFILE", Value: RedisDir + "/" + RedisCAFile})
	}
	return env
}

func (redis) SecretRefs(c *v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference {
	var refs []v1alpha1.SecretKeyReference
	if managed := c.ManagedRedis(); managed != nil && managed.Password.Ref() != nil {
		refs = append(refs, *managed.Password.Ref())
	}
	if external := c.ExternalRedis(); external != nil {
		for _, ref := range []*v1alpha1.SecretKeyReference{external.URLSecretRef, external.PasswordSecretRef, external.CASecretRef} {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
	}
	return refs
}

// RedisSecretName is the name of the Secret with the password and the URL of the fleet's Redis, unless the user has one with
// the URL.
func RedisSecretName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis" }

// redisURL is where the application gets the URL from.
func redisURL(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	if external := c.ExternalRedis(); external != nil && external.URLSecretRef != nil {
		return *external.URLSecretRef
	}
	return v1alpha1.SecretKeyReference{Name: RedisSecretName(c), Key: RedisURLKey}
}

// FromSecret is the environment variable name with the value that a Secret holds.
func FromSecret(name string, ref v1alpha1.SecretKeyReference) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name},
		Key:                  ref.Key,
	}}}
}
