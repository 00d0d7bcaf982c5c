package fleet

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// The keys of the generated Secret.
const (
	cookieKey        = "cookie"
	secretKeyBaseKey = "secret-key-base"
)

// NeedsGeneratedSecret is whether any value of the fleet is generated.
func NeedsGeneratedSecret(c *v1alpha1.LiveStashCluster) bool {
	return c.Spec.Clustering.Cookie.Ref() == nil || c.Spec.SecretKeyBase.Ref() == nil
}

// GeneratedSecret is a new Secret with a random Erlang cookie and SECRET_KEY_BASE. Every call makes other values: create
// it once. It is immutable, because a changed cookie would split the BEAM cluster.
func GeneratedSecret(c *v1alpha1.LiveStashCluster) *corev1.Secret {
	secret := &corev1.Secret{
		TypeMeta:   render.SecretType,
		ObjectMeta: render.ObjectMeta(c, SecretName(c)),
		Immutable:  ptr.To(true),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{cookieKey: render.RandomText(32), secretKeyBaseKey: render.RandomText(64)},
	}
	secret.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(c)}
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

func cookieRef(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	return ownOrGenerated(c, c.Spec.Clustering.Cookie, cookieKey)
}

func secretKeyBaseRef(c *v1alpha1.LiveStashCluster) v1alpha1.SecretKeyReference {
	return ownOrGenerated(c, c.Spec.SecretKeyBase, secretKeyBaseKey)
}

func ownOrGenerated(c *v1alpha1.LiveStashCluster, source *v1alpha1.SecretSource, key string) v1alpha1.SecretKeyReference {
	if ref := source.Ref(); ref != nil {
		return *ref
	}
	return v1alpha1.SecretKeyReference{Name: SecretName(c), Key: key}
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
