package store

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// RedisDir is where the application finds the files that it needs for Redis.
	RedisDir = "/livestash-redis"
	// RedisCAFile is, in RedisDir, the certificates that the server's is checked against.
	RedisCAFile = "ca.crt"

	// RedisURLVariable is the environment variable with the URL, unless that is in a file.
	RedisURLVariable = "LIVE_STASH_REDIS_URL"
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

func (redis) Recovers() bool { return true }

func (redis) Renewed() bool { return true }

func (redis) Env(c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	env := []corev1.EnvVar{FromSecret(RedisURLVariable, redisURL(c))}
	if RedisAuthorities(c) != nil {
		env = append(env, corev1.EnvVar{Name: "LIVE_STASH_REDIS_CACERTFILE", Value: RedisDir + "/" + RedisCAFile})
	}
	return env
}

func (redis) SecretRefs(c *v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference {
	var refs []v1alpha1.SecretKeyReference
	if managed := ManagedRedis(c); managed != nil && managed.Password.Ref() != nil {
		refs = append(refs, *managed.Password.Ref())
	}
	if external := ExternalRedis(c); external != nil {
		for _, ref := range []*v1alpha1.SecretKeyReference{external.URLSecretRef, external.PasswordSecretRef, external.CASecretRef} {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
	}
	return refs
}

func (redis) OwnSecrets(c *v1alpha1.LiveStashCluster) []string {
	external := ExternalRedis(c)
	switch {
	case ManagedRedis(c) != nil && ManagedRedis(c).TLSEnabled():
		return []string{RedisSecretName(c), RedisAccessName(c), RedisAuthorityName(c), RedisCertificateName(c)}
	case ManagedRedis(c) != nil:
		return []string{RedisSecretName(c), RedisAccessName(c)}
	case external != nil && external.URLSecretRef != nil:
		return nil
	}
	return []string{RedisSecretName(c)}
}

func (redis) OwnField() string { return "redis" }

// ManagedRedis is the Redis server that this operator runs for the fleet, or nil when it runs none.
func ManagedRedis(c *v1alpha1.LiveStashCluster) *v1alpha1.ManagedRedis {
	redis := c.Spec.Redis
	switch {
	case c.Spec.Adapter != v1alpha1.AdapterRedis || OperatedRedis(c) != nil || ExternalRedis(c) != nil:
		return nil
	case redis == nil || redis.Managed == nil:
		return &v1alpha1.ManagedRedis{}
	}
	return redis.Managed
}

// OperatedRedis is the Redis that redis-operator runs for the fleet, or nil when it runs none.
func OperatedRedis(c *v1alpha1.LiveStashCluster) *v1alpha1.OperatedRedis {
	if c.Spec.Adapter != v1alpha1.AdapterRedis || c.Spec.Redis == nil {
		return nil
	}
	return c.Spec.Redis.Operator
}

// ExternalRedis is the Redis that somebody else runs, or nil when there is none.
func ExternalRedis(c *v1alpha1.LiveStashCluster) *v1alpha1.ExternalRedis {
	if c.Spec.Adapter != v1alpha1.AdapterRedis || c.Spec.Redis == nil {
		return nil
	}
	return c.Spec.Redis.External
}

// RedisSecretName is the name of the Secret with the password and the URL of the fleet's Redis, unless the user has one with
// the URL.
func RedisSecretName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis" }

// RedisAccessName is the name of the Secret with the users of the Redis that this operator runs.
func RedisAccessName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-acl" }

// RedisAuthorityName is the name of the Secret with the certificate authority of the Redis that this operator runs with TLS.
func RedisAuthorityName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-ca" }

// RedisCertificateName is the name of the Secret with that Redis' certificate.
func RedisCertificateName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-tls" }

// RedisAuthorities is where the certificates are that the Redis server's is checked against. Nil: the application's own are, or there is
// no TLS.
func RedisAuthorities(c *v1alpha1.LiveStashCluster) *v1alpha1.SecretKeyReference {
	if managed := ManagedRedis(c); managed != nil && managed.TLSEnabled() {
		return &v1alpha1.SecretKeyReference{Name: RedisCertificateName(c), Key: RedisCAFile}
	}
	if external := ExternalRedis(c); external != nil {
		return external.CASecretRef
	}
	return nil
}

// redisURL is where the application gets the URL from.
func redisURL(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	if external := ExternalRedis(c); external != nil && external.URLSecretRef != nil {
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
