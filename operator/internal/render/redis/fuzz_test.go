package redis

import (
	"net/url"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// Whatever is in the Secret, the sentence about it tells nothing of the password, and the address that a status shows is not a part of it.
func FuzzRedisURL(f *testing.F) {
	for _, password := range []string{"s3cret", "12/34", "a#b", "a?b", "%2", "x@y", "://", "[::1]"} {
		f.Add("redis://user:"+password+"@redis:6379/0", password)
	}
	f.Fuzz(func(t *testing.T, value, password string) {
		ref := secretKey("s")
		cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: ref}})
		err := CheckSecretValue(cluster, *ref, []byte(value))
		parsed, broken := url.Parse(value)
		if err == nil && (broken != nil || parsed.Hostname() == "" || strings.Contains(parsed.Path+parsed.RawQuery+parsed.Fragment, "@")) {
			t.Errorf("%q is taken", value)
		}
		// Only a password that the sentence would not have by itself can be looked for in it.
		if err != nil && len(password) >= 8 && strings.Contains(value, password) && !strings.Contains(sentences(t, cluster, ref), password) && strings.Contains(err.Error(), password) {
			t.Errorf("%v tells %q", err, password)
		}
	})
}

// sentences are what is said of values without a password.
func sentences(t *testing.T, cluster *v1alpha1.LiveStashCluster, ref *v1alpha1.SecretKeyReference) string {
	t.Helper()
	var all []string
	for _, value := range []string{" ", "x", "http://x", "redis://x/y"} {
		all = append(all, CheckSecretValue(cluster, *ref, []byte(value)).Error())
	}
	return strings.Join(all, "\n")
}
