package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/pki"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// What the Secrets with certificates say of themselves, so that a pass over a fleet with nothing due reads none of them.
const (
	// authorityAnnotation is the fingerprint of the authority: of the one in the Secret, or of the one that its certificate
	// was last checked against.
	authorityAnnotation = "livestash.dev/authority"
	// dnsNameAnnotation is the name that the certificate was made for.
	dnsNameAnnotation = "livestash.dev/dns-name"
	// dueAnnotation is when the certificate is to be looked at again, as RFC 3339.
	dueAnnotation = "livestash.dev/due"
	// expiryAnnotation is when the certificate ends, as RFC 3339. Metrics tells it.
	expiryAnnotation = "livestash.dev/expiry"
)

// issuedForAnnotation is cert-manager's, on the Secrets that it makes: for which Certificate.
const issuedForAnnotation = "cert-manager.io/certificate-name"

// holdTLS lets nobody switch TLS between nodes, or its issuer, while there are pods whose stashes are in them. The API refuses that, and knows
// only how many pods there are to be: that may have been 0 while the operator was paused.
func (r *Reconciler) holdTLS(_ context.Context, p *pass) error {
	c := p.cluster
	if store.For(c).Home() == store.Elsewhere || p.seen.statefulSet.UID == "" || !p.hasPods() {
		return nil
	}
	wanted := ""
	if c.TLSEnabled() {
		wanted = tls.SecretName(c)
	}
	if tls.SecretOf(&p.seen.statefulSet.Spec.Template.Spec) == wanted {
		return nil
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonInvalidSpec,
		Message: fmt.Sprintf("spec.clustering.tls is not what the pods have, and nodes with and without TLS, or of two issuers, cannot talk to each other, so a rollout would lose all "+
			"stashes (adapter %s). Nothing is changed until you set it back, or, if the stashes may go, set spec.replicas to 0 until the pods are gone", c.Spec.Adapter),
		Watched: true,
	}
}

// ensureCertificates sees to it that the nodes of a fleet with TLS have a certificate before there are pods, and another
// one before it ends.
func (r *Reconciler) ensureCertificates(ctx context.Context, p *pass) error {
	if !p.cluster.TLSEnabled() {
		return nil
	}
	if certificate := tls.IssuedCertificate(p.cluster, p.inputs); certificate != nil {
		p.DueIn(lookAtOthers)
		return r.ensureIssuedCertificate(ctx, p, certificate)
	}

	_, err := r.ensureOwnCertificates(ctx, p, ownCertificates{
		authorityName: tls.AuthorityName(p.cluster), leafName: tls.SecretName(p.cluster), name: tls.DNSName(p.cluster, p.inputs),
		subject: "distribution", whose: "this fleet", leaf: "nodes' certificate", users: "nodes", every: "every node", trouble: "nodes may fail to connect to each other",
		lasts: true,
	})
	return err
}

// ensureOwnCertificates does what is due for certificates of the fleet's own authority, and returns what the Secret with them says of itself.
func (r *Reconciler) ensureOwnCertificates(ctx context.Context, p *pass, found ownCertificates) (map[string]string, error) {
	err := r.lookUpCertificates(ctx, p.cluster, &found)
	if err != nil {
		return nil, err
	}
	now := r.Clock.Now()
	due := found.due()
	if now.Before(due) {
		p.DueIn(due.Sub(now))
		return found.secret.Annotations, nil
	}
	said, err := r.renewCertificates(ctx, p.cluster, found, now)
	if err != nil {
		return nil, err
	}
	p.DueIn(timeIn(said, dueAnnotation).Sub(now))
	return said, nil
}

// ownCertificates is what is wanted of the Secrets with the certificates of a fleet's own authority, and what the cache knows of them.
type ownCertificates struct {
	// authorityName and leafName are the Secrets' names, name is the DNS name that the certificate should have.
	authorityName, leafName, name string
	// subject is in the authority's name. The others are for sentences: whose the authority is, what the certificate is called, who goes
	// over to another one, who must have read it, and what may happen until then.
	subject, whose, leaf, users, every, trouble string
	// lasts is whether spec.whenDeleted may let the authority outlive the LiveStashCluster.
	lasts bool
	// isTold is whether who shows the certificate has to be told that there is another one.
	isTold bool
	// authority and secret are nil when there is no such Secret.
	authority, secret *metav1.PartialObjectMetadata
}

func (r *Reconciler) lookUpCertificates(ctx context.Context, c *v1alpha1.LiveStashCluster, found *ownCertificates) (err error) {
	found.authority, err = r.ownSecret(ctx, c, found.authorityName)
	if err != nil {
		return err
	}
	found.secret, err = r.ownSecret(ctx, c, found.leafName)
	return err
}

// due is when something is to be done: the zero time, which is past, when it is now.
func (o ownCertificates) due() time.Time {
	if o.authority == nil || o.secret == nil {
		return time.Time{}
	}
	said := o.secret.Annotations
	if said[authorityAnnotation] != o.authority.Annotations[authorityAnnotation] || said[dnsNameAnnotation] != o.name {
		return time.Time{}
	}
	return timeIn(said, dueAnnotation)
}

// timeIn is the time in an annotation: the zero time, which is past, when there is none.
func timeIn(annotations map[string]string, key string) time.Time {
	due, err := time.Parse(time.RFC3339, annotations[key])
	if err != nil {
		return time.Time{}
	}
	return due
}

// renewCertificates does what is due, and returns what the Secret says of itself then.
func (r *Reconciler) renewCertificates(ctx context.Context, c *v1alpha1.LiveStashCluster, found ownCertificates, now time.Time) (map[string]string, error) {
	authority, err := r.ensureAuthority(ctx, c, found, now)
	if err != nil {
		return nil, err
	}
	before, err := r.readSecret(ctx, c, found.leafName)
	if err != nil {
		return nil, err
	}
	have := tls.ReadCertificate(before)
	want, due, err := authority.Next(have, found.name, timeIn(before.Annotations, dueAnnotation), now)
	if err != nil {
		return nil, fmt.Errorf("making the %s: %w", found.leaf, err)
	}
	isNew := !bytes.Equal(have.Certificate, want.Certificate)
	// Who has not been told yet may show a certificate of an authority of before, and could be told nothing if nobody accepted that one.
	unread := found.isTold && (isNew || before.Annotations[unreadAnnotation] != "")
	if unread && want.KeepAuthorities(have) {
		due = now.Add(pki.Spread)
	}
	if last := authority.RenewAfter(); last.Before(due) {
		due = last
	}

	secret := tls.Certificate(c, found.leafName, want)
	secret.Annotations = map[string]string{
		authorityAnnotation: authority.Fingerprint(),
		dnsNameAnnotation:   found.name,
		dueAnnotation:       due.UTC().Format(time.RFC3339),
		expiryAnnotation:    want.NotAfter().UTC().Format(time.RFC3339),
	}
	if unread {
		secret.Annotations[unreadAnnotation] = "true"
	}
	if err := r.writeSecret(ctx, before, secret); err != nil {
		return nil, err
	}
	if before.UID != "" && isNew {
		r.Recorder.Eventf(c, secretOf(c, secret.Name), corev1.EventTypeNormal, v1alpha1.ReasonCertificateRenewed, "Generate",
			"Renewed the %s in Secret %s: new connections use it within minutes, open ones stay, no pod restarts", found.leaf, secret.Name)
	}
	return render.Merged(before.Annotations, secret.Annotations), nil
}

// ensureAuthority reads the fleet's certificate authority. It makes one when there is none, when it is due to be replaced
// and when what is in the Secret is none.
func (r *Reconciler) ensureAuthority(ctx context.Context, c *v1alpha1.LiveStashCluster, found ownCertificates, now time.Time) (*pki.Authority, error) {
	before, err := r.readSecret(ctx, c, found.authorityName)
	if err != nil {
		return nil, err
	}
	authority, unreadable := tls.ReadAuthority(before)
	if unreadable == nil && now.Before(authority.RenewAfter()) {
		return authority, nil
	}
	wasDue := unreadable == nil

	authority, err = pki.NewAuthority(c.Name+" "+found.subject+" CA", now)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	secret, err := tls.Authority(c, found.authorityName, authority)
	if err != nil {
		return nil, err
	}
	secret.Annotations = map[string]string{authorityAnnotation: authority.Fingerprint()}
	if found.lasts {
		render.OwnOrKeep(c, secret)
	}
	if err := r.writeSecret(ctx, before, secret); err != nil {
		return nil, err
	}
	return authority, r.tellAuthority(ctx, c, found, wasDue)
}

// tellAuthority says that the certificate authority is new; when there are pods that know another one, what that costs.
func (r *Reconciler) tellAuthority(ctx context.Context, c *v1alpha1.LiveStashCluster, found ownCertificates, wasDue bool) error {
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, client.ObjectKeyFromObject(c), set)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking up the StatefulSet: %w", err)
	}
	about := secretOf(c, found.authorityName)
	noCost := found.users + " go over to it within half an hour, and no connection is cut"
	switch {
	case ptr.Deref(set.Spec.Replicas, 0) == 0:
		r.Recorder.Eventf(c, about, corev1.EventTypeNormal, v1alpha1.ReasonCertificateAuthorityGenerated, "Generate",
			"Generated Secret %s, the certificate authority of %s alone", found.authorityName, found.whose)
	case wasDue:
		r.Recorder.Eventf(c, about, corev1.EventTypeNormal, v1alpha1.ReasonCertificateAuthorityReplaced, "Generate",
			"Replaced the certificate authority in Secret %s before its end: %s", found.authorityName, noCost)
	case found.secret != nil:
		r.Recorder.Eventf(c, about, corev1.EventTypeWarning, v1alpha1.ReasonCertificateAuthorityReplaced, "Generate",
			"Secret %s was gone or unreadable, and a new certificate authority was generated: %s", found.authorityName, noCost)
	default:
		r.Recorder.Eventf(c, about, corev1.EventTypeWarning, v1alpha1.ReasonCertificateAuthorityReplaced, "Generate",
			"Secrets %s and %s were gone and were generated anew: for some minutes, until %s has read the new certificate, %s; open connections stay",
			found.authorityName, found.leafName, found.every, found.trouble)
	}
	return nil
}

// ensureIssuedCertificate asks cert-manager for the nodes' certificate, and waits until it is there.
func (r *Reconciler) ensureIssuedCertificate(ctx context.Context, p *pass, certificate *unstructured.Unstructured) error {
	c := p.cluster
	_, err := r.applier().One(ctx, c, certificate)
	if meta.IsNoMatchError(err) {
		return &reconcile.Problem{
			Reason: v1alpha1.ReasonCertManagerMissing,
			Message: "spec.clustering.tls.issuerRef needs cert-manager, and this cluster does not serve " + tls.CertificateKind.GroupVersion().String() +
				" Certificates: install cert-manager, or remove issuerRef so that the operator makes the certificates",
		}
	}
	if err != nil {
		return err
	}
	p.certificate = certificate.GetName()
	secret, err := r.Named.Get(ctx, named.Key{Kind: fleet.SecretReference, Namespace: c.Namespace, Name: tls.SecretName(c)})
	if err != nil || secret != nil {
		return err
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonCertificateMissing,
		Message: fmt.Sprintf("cert-manager has not made Secret %s yet (spec.clustering.tls.issuerRef): if it stays away, see `kubectl describe certificate -n %s %s`",
			tls.SecretName(c), c.Namespace, certificate.GetName()),
		Watched: true,
	}
}

// removeIssuedCertificate deletes the Certificate that the status tells of and, because cert-manager does not, the Secret that was
// made for it. A fleet that has none costs no request.
func (r *Reconciler) removeIssuedCertificate(ctx context.Context, p *pass) error {
	if p.certificate == "" || tls.IssuedCertificate(p.cluster, p.inputs) != nil {
		return nil
	}
	gone, err := r.removeOfOthersKind(ctx, p.cluster, tls.CertificateKind, p.certificate)
	if err == nil && gone {
		err = r.removeIssuedSecret(ctx, p.cluster.Namespace, p.certificate)
	}
	if err != nil {
		return err
	}
	p.certificate = ""
	return nil
}

// removeIssuedSecret deletes the Secret of a Certificate that is gone, if cert-manager says that it made it. Certificate and Secret
// have the same name.
func (r *Reconciler) removeIssuedSecret(ctx context.Context, namespace, name string) error {
	secret := secretMetadataObject()
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if err == nil && secret.Annotations[issuedForAnnotation] == name {
		err = r.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing Secret %s: %w", name, err)
	}
	return nil
}

// ownSecret is what the cache knows of a Secret that only the operator may have made. Nil when there is none.
func (r *Reconciler) ownSecret(ctx context.Context, c *v1alpha1.LiveStashCluster, name string) (*metav1.PartialObjectMetadata, error) {
	found, err := r.secretMetadata(ctx, c.Namespace, name)
	if err != nil || found == nil {
		return nil, err
	}
	if err := r.applier().CheckOwner(c, found); err != nil {
		return nil, err
	}
	return found, nil
}

// readSecret reads a Secret from the API server that only the operator may have made. It is empty, with no UID, when there is
// none.
func (r *Reconciler) readSecret(ctx context.Context, c *v1alpha1.LiveStashCluster, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	if err := r.applier().CheckOwner(c, secret); err != nil {
		return secret, err
	}
	return secret, r.label(ctx, c, secret)
}

// writeSecret makes a Secret, or changes the one that was read before. When that has changed meanwhile, the error is a
// conflict and the next pass starts from what it is then.
func (r *Reconciler) writeSecret(ctx context.Context, before, want *corev1.Secret) error {
	if before.UID == "" {
		if err := r.Create(ctx, want, apply.FieldOwner); err != nil {
			return fmt.Errorf("creating Secret %s: %w", want.Name, err)
		}
		return nil
	}
	after := before.DeepCopy()
	after.Data = want.Data
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	maps.Copy(after.Annotations, want.Annotations)
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	if err := r.Update(ctx, after, apply.FieldOwner); err != nil {
		return fmt.Errorf("updating Secret %s: %w", want.Name, err)
	}
	return nil
}
