package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// resolveSecrets sees to it that every value that pods read from a Secret is there before anything else is made, and
// takes the digest that rolls the fleet when one of them changes.
func (r *Reconciler) resolveSecrets(ctx context.Context, p *pass) error {
	lost, err := r.lostSecrets(ctx, p)
	if err != nil {
		return err
	}
	waits := len(lost) > 0 && !p.givesUp(lost)
	if waits && p.cluster.DesiredReplicas() > 0 {
		return p.tellLost(lost)
	}
	digest := sha256.New()
	for _, wanted := range generatedSecrets(p.cluster) {
		if waits && lost[wanted.name] != nil {
			continue // no pod is to have it
		}
		found, err := r.ensureGeneratedSecret(ctx, p, wanted)
		if err != nil {
			return err
		}
		// The generated Secrets are immutable: their UIDs stand for their content, which the operator need not read.
		digest.Write([]byte(found.UID))
		p.noteCookie(found)
	}
	for _, ref := range fleet.SecretRefs(p.cluster) {
		value, err := r.secretValue(ctx, p.cluster.Namespace, ref)
		if err != nil {
			return err
		}
		var invalid *render.SpecError
		if errors.As(fleet.CheckSecretValue(p.cluster, ref, value), &invalid) {
			return &reconcile.Problem{Reason: v1alpha1.ReasonSecretInvalid, Message: invalid.Error(), Watched: true}
		}
		p.secrets[ref] = value
		if redis.IsPassword(p.cluster, ref) {
			continue // it reaches the pods by way of another Secret, when Redis knows it
		}
		content := sha256.Sum256(value)
		digest.Write(content[:])
	}
	// A few bytes tell a change. They tell of a value that can be guessed whether a guess is right: see docs/security.md.
	p.inputs.SecretsDigest = hex.EncodeToString(digest.Sum(nil)[:5])
	if waits {
		p.inputs.SecretsDigest = p.seen.statefulSet.Spec.Template.Annotations[fleet.SecretsDigestAnnotation]
	}
	return r.checkGenerated(ctx, p)
}

// generatedSecret is a Secret with values that the operator makes up.
type generatedSecret struct {
	name   string
	create func(*v1alpha1.LiveStashCluster) *corev1.Secret
}

// generatedSecrets are those that the fleet wants.
func generatedSecrets(c *v1alpha1.LiveStashCluster) []generatedSecret {
	var wanted []generatedSecret
	if fleet.NeedsGeneratedSecret(c) {
		wanted = append(wanted, generatedSecret{fleet.SecretName(c), fleet.GeneratedSecret})
	}
	if fleet.NeedsGeneratedCookie(c) {
		wanted = append(wanted, generatedSecret{fleet.CookieSecretName(c), fleet.GeneratedCookie})
	}
	if fleet.NeedsGeneratedSecretKeyBase(c) {
		wanted = append(wanted, generatedSecret{fleet.SecretKeyBaseSecretName(c), fleet.GeneratedSecretKeyBase})
	}
	return wanted
}

// ensureGeneratedSecret creates a Secret with generated values when it does not exist, and never writes to one that does.
func (r *Reconciler) ensureGeneratedSecret(ctx context.Context, p *pass, wanted generatedSecret) (*metav1.ObjectMeta, error) {
	c := p.cluster
	found, err := r.secretMetadata(ctx, c.Namespace, wanted.name)
	if err != nil {
		return nil, err
	}
	if found != nil && !apply.Owns(c, found) {
		return nil, notOurs(c, found.Name)
	}
	if found != nil {
		return &found.ObjectMeta, nil
	}

	secret := wanted.create(c)
	err = r.Create(ctx, secret, apply.FieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return r.generatedBefore(ctx, c, secret.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("creating Secret %s: %w", secret.Name, err)
	}
	if wanted.name != fleet.SecretName(c) && p.generatedInUse()[wanted.name] == nil {
		return &secret.ObjectMeta, nil // what is told of the change is enough
	}
	return &secret.ObjectMeta, r.tellGenerated(ctx, c, secret.Name)
}

// generatedBefore is the generated Secret that the cache does not have: it has lost its label, or the cache lags behind. One that is
// somebody else's is left alone.
func (r *Reconciler) generatedBefore(ctx context.Context, c *v1alpha1.LiveStashCluster, name string) (*metav1.ObjectMeta, error) {
	live := &corev1.Secret{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, live); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if !apply.Owns(c, live) {
		return nil, notOurs(c, name)
	}
	return &live.ObjectMeta, r.label(ctx, c, live)
}

// label gives a Secret of the fleet's back the label without which the cache does not have it.
func (r *Reconciler) label(ctx context.Context, c *v1alpha1.LiveStashCluster, live *corev1.Secret) error {
	if live.Labels[render.ClusterLabel] == c.Name {
		return nil
	}
	live.Labels = render.Merged(live.Labels, ownLabels(c))
	if err := r.Update(ctx, live, apply.FieldOwner); err != nil {
		return fmt.Errorf("labelling Secret %s: %w", live.Name, err)
	}
	return nil
}

// notOurs says what to do about a Secret in the place of the generated one. Without the fleets' label it is not watched: somebody looks
// again.
func notOurs(c *v1alpha1.LiveStashCluster, name string) error {
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonNameConflict,
		Message: fmt.Sprintf("Secret %[1]s exists and does not belong to this LiveStashCluster: give the LiveStashCluster another name, or delete the Secret. "+
			"If it is the fleet's own, as after a restore, whoever deletes it loses every session: have it taken over instead, with `%[2]s`",
			name, takeOver(c, name)),
	}
}

// tellGenerated says that values are new; when the fleet already runs, what that costs.
func (r *Reconciler) tellGenerated(ctx context.Context, c *v1alpha1.LiveStashCluster, secret string) error {
	err := r.Get(ctx, client.ObjectKeyFromObject(c), &appsv1.StatefulSet{})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	about := secretOf(c, secret)
	if err == nil {
		r.Recorder.Eventf(c, about, corev1.EventTypeWarning, v1alpha1.ReasonSecretRegenerated, "Generate",
			"Secret %s was gone and was generated anew: every pod is replaced, and sessions and stashes signed with the old values are lost", secret)
		return nil
	}
	r.Recorder.Eventf(c, about, corev1.EventTypeNormal, v1alpha1.ReasonSecretGenerated, "Generate",
		"Generated Secret %s: who loses it loses every session, so back it up", secret)
	return nil
}

// secretOf is a Secret that an event is about. Kubernetes' client takes events for the same that differ by their text alone.
func secretOf(c *v1alpha1.LiveStashCluster, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
}

// secretValue reads one key of a user's Secret.
func (r *Reconciler) secretValue(ctx context.Context, namespace string, ref v1alpha1.SecretKeyReference) ([]byte, error) {
	found, err := r.Named.Get(ctx, named.Key{Kind: fleet.SecretReference, Namespace: namespace, Name: ref.Name})
	if err != nil {
		return nil, fmt.Errorf("looking up Secret %s: %w", ref.Name, err)
	}
	if found == nil {
		return nil, secretMissing("Secret %s does not exist in namespace %s: create it with the key %s", ref.Name, namespace, ref.Key)
	}

	secret := &corev1.Secret{}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, secret)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", ref.Name, err)
	}
	value := secret.Data[ref.Key]
	if len(value) == 0 {
		return nil, secretMissing("Secret %s in namespace %s has no value under the key %s: add it, or name another key", ref.Name, namespace, ref.Key)
	}
	return value, nil
}

// secretMetadata is what the cache knows of a Secret that carries the fleets' label: never its data. Nil when there is none.
func (r *Reconciler) secretMetadata(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	found := secretMetadataObject()
	err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up Secret %s: %w", name, err)
	}
	return found, nil
}

func secretMetadataObject() *metav1.PartialObjectMetadata { return metadataObject("Secret") }

// metadataObject is an empty object of a kind of the core API, to read its metadata into.
func metadataObject(kind string) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return meta
}

func secretMissing(format string, args ...any) *reconcile.Problem {
	return &reconcile.Problem{Reason: v1alpha1.ReasonSecretMissing, Message: fmt.Sprintf(format, args...), Watched: true}
}
