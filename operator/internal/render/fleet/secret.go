package fleet

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// The keys of the generated Secrets.
const (
	cookieKey        = "cookie"
	secretKeyBaseKey = "secret-key-base"
)

const (
	cookieVariable = "RELEASE_COOKIE"
	// previousCookieVariable is the agent's.
	previousCookieVariable = "LIVESTASH_PREVIOUS_COOKIE"
)

// NeedsGeneratedSecret is whether pods read any value of the Secret with the generated values.
func NeedsGeneratedSecret(c *v1alpha1.LiveStashCluster) bool {
	return CookieRef(c).Name == SecretName(c) || secretKeyBaseRef(c).Name == SecretName(c)
}

// NeedsGeneratedCookie is whether the fleet's cookie is generated, and not the first.
func NeedsGeneratedCookie(c *v1alpha1.LiveStashCluster) bool {
	return c.Spec.Clustering.Cookie.Ref() == nil && CookieSecretName(c) != SecretName(c)
}

// NeedsGeneratedSecretKeyBase is the same of SECRET_KEY_BASE.
func NeedsGeneratedSecretKeyBase(c *v1alpha1.LiveStashCluster) bool {
	return c.Spec.SecretKeyBase.Ref() == nil && SecretKeyBaseSecretName(c) != SecretName(c)
}

// GeneratedSecret is a new Secret with a random Erlang cookie and SECRET_KEY_BASE. Every call makes other values: create
// it once. It is immutable, because a changed cookie would split the BEAM cluster.
func GeneratedSecret(c *v1alpha1.LiveStashCluster) *corev1.Secret {
	return generated(c, SecretName(c), map[string][]byte{cookieKey: render.RandomText(32), secretKeyBaseKey: render.RandomText(64)})
}

// GeneratedCookie is a new Secret with another random Erlang cookie than the first. It is immutable, too.
func GeneratedCookie(c *v1alpha1.LiveStashCluster) *corev1.Secret {
	return generated(c, CookieSecretName(c), map[string][]byte{cookieKey: render.RandomText(32)})
}

// GeneratedSecretKeyBase is a new Secret with another random SECRET_KEY_BASE than the first.
func GeneratedSecretKeyBase(c *v1alpha1.LiveStashCluster) *corev1.Secret {
	return generated(c, SecretKeyBaseSecretName(c), map[string][]byte{secretKeyBaseKey: render.RandomText(64)})
}

// generatedName is what the name of a generated Secret has after the fleet's.
var generatedName = regexp.MustCompile(`^-(secrets|(cookie|secret-key-base)-[0-9]+)$`)

// GeneratedIn are the generated Secrets that pods read, each with the keys that they read: that of the previous cookie only if it counts.
func GeneratedIn(c *v1alpha1.LiveStashCluster, pods *corev1.PodSpec, previousCounts bool) map[string][]string {
	found := map[string][]string{}
	add := func(name, key string) {
		rest, ofFleet := strings.CutPrefix(name, c.Name)
		if ofFleet && generatedName.MatchString(rest) && !isOwn(c, name) && !slices.Contains(found[name], key) {
			found[name] = append(found[name], key)
		}
	}
	for _, container := range pods.Containers {
		for _, variable := range container.Env {
			if ref := neededBy(variable, previousCounts); ref != nil {
				add(ref.Name, ref.Key)
			}
		}
	}
	for _, volume := range pods.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			for _, item := range items(source.Secret) {
				add(source.Secret.Name, item.Key)
			}
		}
	}
	return found
}

// neededBy is what a variable needs of a Secret. Nil: nothing, or it can do without.
func neededBy(variable corev1.EnvVar, previousCounts bool) *corev1.SecretKeySelector {
	if variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
		return nil
	}
	ref := variable.ValueFrom.SecretKeyRef
	if ptr.Deref(ref.Optional, false) && (variable.Name != previousCookieVariable || !previousCounts) {
		return nil
	}
	return ref
}

func items(secret *corev1.SecretProjection) []corev1.KeyToPath {
	if secret == nil {
		return nil
	}
	return secret.Items
}

// isOwn is whether the spec names the Secret as the user's own.
func isOwn(c *v1alpha1.LiveStashCluster, name string) bool {
	return slices.ContainsFunc(SecretRefs(c), func(ref v1alpha1.SecretKeyReference) bool { return ref.Name == name })
}

func generated(c *v1alpha1.LiveStashCluster, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{
		TypeMeta:   render.SecretType,
		ObjectMeta: render.ObjectMeta(c, name),
		Immutable:  ptr.To(true),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
	render.OwnOrKeep(c, secret)
	return secret
}

// SecretRefs are the keys of the user's own Secrets that the fleet's pods read.
func SecretRefs(c *v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference {
	var refs []v1alpha1.SecretKeyReference
	for _, source := range []*v1alpha1.SecretSource{c.Spec.Clustering.Cookie, c.Spec.SecretKeyBase} {
		if ref := source.Ref(); ref != nil {
			refs = append(refs, *ref)
		}
	}
	return append(refs, store.For(c).SecretRefs(c)...)
}

// CookieRef is where the Erlang cookie is that the fleet wants.
func CookieRef(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	return ownOrGenerated(c.Spec.Clustering.Cookie, CookieSecretName(c), cookieKey)
}

// SetCookie has the spec ask for the cookie that is there: one of the user's, or a generated one.
func SetCookie(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference, generated bool) {
	clustering := &c.Spec.Clustering
	clustering.Cookie, clustering.CookieGeneration = nil, nil
	if !generated {
		clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &ref}
		return
	}
	if number, err := strconv.ParseInt(strings.TrimPrefix(ref.Name, c.Name+"-cookie-"), 10, 32); err == nil {
		clustering.CookieGeneration = ptr.To(int32(number))
	}
}

// CookiesOf are where the cookie of pods is, and the one that they know besides, of pods that have not been replaced yet. Each is nil
// when there is none.
func CookiesOf(pods *corev1.PodSpec) (cookie, previous *v1alpha1.SecretKeyReference) {
	for _, container := range pods.Containers {
		for _, variable := range container.Env {
			if container.Name != AppContainer || variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
				continue
			}
			ref := &v1alpha1.SecretKeyReference{Name: variable.ValueFrom.SecretKeyRef.Name, Key: variable.ValueFrom.SecretKeyRef.Key}
			switch variable.Name {
			case cookieVariable:
				cookie = ref
			case previousCookieVariable:
				previous = ref
			}
		}
	}
	return cookie, previous
}

func secretKeyBaseRef(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	return ownOrGenerated(c.Spec.SecretKeyBase, SecretKeyBaseSecretName(c), secretKeyBaseKey)
}

func ownOrGenerated(source *v1alpha1.SecretSource, name, key string) v1alpha1.SecretKeyReference {
	if ref := source.Ref(); ref != nil {
		return *ref
	}
	return v1alpha1.SecretKeyReference{Name: name, Key: key}
}

// CookieVariable is that variable of a container which says where the pod's cookie is. None: it has none.
func CookieVariable(env []corev1.EnvVar) []corev1.EnvVar {
	for _, variable := range env {
		if variable.Name == cookieVariable {
			return []corev1.EnvVar{variable}
		}
	}
	return nil
}

// CheckSecretValue refuses a user's value with which pods could not start. An error is a *render.SpecError: it speaks to the
// user, and never tells the value.
func CheckSecretValue(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference, value []byte) error {
	if own := c.Spec.Clustering.Cookie.Ref(); own != nil && *own == ref && !cookieText.Match(value) {
		return render.SpecErrorf("the key %s of Secret %s is no Erlang cookie: use up to 255 letters, digits and the signs _ . @ = + / -, starting with a letter or digit, with no line break at the end",
			ref.Key, ref.Name)
	}
	own := c.Spec.SecretKeyBase.Ref()
	isBase := own != nil && *own == ref
	if unprintable := render.Unprintable(value); isBase && unprintable != "" {
		return render.SpecErrorf("the key %s of Secret %s has %s, and is used as SECRET_KEY_BASE as it is: write the value again without that; `mix phx.gen.secret | tr -d '\\n'` prints one",
			ref.Key, ref.Name, unprintable)
	}
	if isBase && len(value) < leastSecretKeyBase {
		return render.SpecErrorf("the key %s of Secret %s is too short: SECRET_KEY_BASE needs at least %d bytes; `mix phx.gen.secret` makes one",
			ref.Key, ref.Name, leastSecretKeyBase)
	}
	return redis.CheckSecretValue(c, ref, value)
}

// leastSecretKeyBase is the least number of bytes that Phoenix takes.
const leastSecretKeyBase = 64

// cookieText is a cookie that survives the start script's command line: with a leading - it would be taken for a flag.
var cookieText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@=+/-]{0,254}$`)
