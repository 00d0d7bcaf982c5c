package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

func (r *Reconciler) applier() apply.Applier {
	return apply.Applier{Writer: r.Client, Known: r.Client, Live: r.Live, TakesBack: true}
}

// applyChildren applies those of the rendered objects that are not as wanted. What hinders one of them is told when everything
// else is done.
func (r *Reconciler) applyChildren(ctx context.Context, p *pass) error {
	for _, object := range p.objects {
		if set, is := object.(*appsv1.StatefulSet); is {
			set.ResourceVersion = p.seen.versions[set.Name]
		}
	}
	applied, err := r.applier().All(ctx, p.cluster, p.objects)
	if apierrors.IsConflict(err) {
		return err // what was planned is of something old
	}
	if err != nil {
		p.postpone(err)
		p.lacking = true
		p.unwritten = slices.ContainsFunc(p.objects, func(object client.Object) bool { return p.precedes(object) && apply.Failed(err, object) })
	}
	for _, object := range applied {
		if err := r.awaitService(ctx, p, object); err != nil {
			return err
		}
		if object.GetKind() != "StatefulSet" {
			continue
		}
		r.tellGivenUp(p.cluster, object, p.givenUp[object.GetName()])
		if object.GetName() != p.cluster.Name {
			continue
		}
		r.tellKeyBaseGivenUp(p)
		p.seen.statefulSet, p.wroteStatefulSet = &appsv1.StatefulSet{}, true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, p.seen.statefulSet); err != nil {
			return fmt.Errorf("reading the applied StatefulSet: %w", err)
		}
		// The next pass must not plan with an older one.
		if err := reconcile.Await(ctx, r.Client, p.seen.statefulSet, &appsv1.StatefulSet{}); err != nil {
			return err
		}
	}
	return nil
}

// precedes is whether an object has to be as wanted before a pod goes: the StatefulSet with the note of a canary that was found bad, which that pod alone
// tells, and a client Service that must not lead to that pod alone any more.
func (p *pass) precedes(object client.Object) bool {
	if object.GetName() != p.cluster.Name {
		return false
	}
	switch object.(type) {
	case *appsv1.StatefulSet:
		return p.inputs.Rejected != "" && p.seen.statefulSet.Annotations[fleet.RejectedAnnotation] != p.inputs.Rejected
	case *corev1.Service:
		return p.seen.revision != "" && p.inputs.Revision != p.seen.revision
	}
	return false
}

// dismissPods tells the pods of a fleet that is to have none that nobody comes back whom they could wait for: their agents look for
// the headless Service in DNS. So it goes before they are told to stop.
func (r *Reconciler) dismissPods(ctx context.Context, p *pass) error {
	if p.inputs.Replicas > 0 {
		return nil
	}
	service := &corev1.Service{TypeMeta: render.ServiceType, ObjectMeta: render.ObjectMeta(p.cluster, render.HeadlessName(p.cluster))}
	_, err := r.applier().Remove(ctx, p.cluster, service)
	return err
}

// prunedKinds are the kinds of the children that a spec can do without. podInputs are those of them that pods mount.
var (
	prunedKinds = []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		corev1.SchemeGroupVersion.WithKind("Service"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
	}
	podInputs = []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")}
)

// removeUnwanted deletes the children that the spec no longer asks for: what pods mount when none has it any more.
func (r *Reconciler) removeUnwanted(ctx context.Context, p *pass) error {
	if len(p.oldStorePods) > 0 || p.plan.Leave || p.unfinished != nil && !reconcile.HealsByItself(p.unfinished) {
		return nil // pods use what is no longer wanted, or may still be made of it
	}
	if err := r.removeOperatedRedis(ctx, p); err != nil {
		return err
	}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.cluster.Namespace, Name: redis.DataName(p.cluster)}}
	r.tellGivenUp(p.cluster, volume, p.volumeGivenUp)
	applier, of := r.applier(), client.MatchingLabels{render.ClusterLabel: p.cluster.Name}
	if err := applier.Prune(ctx, p.cluster, of, prunedKinds, p.objects); err != nil {
		return err
	}
	if !p.hasRolled() || p.upgrade != nil && len(p.upgrade.kept) > 0 {
		return nil // the StatefulSet's next change brings the next pass
	}
	if err := applier.Prune(ctx, p.cluster, of, podInputs, p.objects); err != nil {
		return err
	}
	if err := r.removeIssuedCertificate(ctx, p); err != nil {
		return err
	}
	return applier.PruneSecrets(ctx, p.cluster, of, ownSecrets(p.cluster))
}

// removeOfOthersKind deletes an object of another operator's kind, which no cache is to hold for it, if it is the fleet's. It returns
// whether there is none of the fleet's any more.
func (r *Reconciler) removeOfOthersKind(ctx context.Context, c *v1alpha1.LiveStashCluster, kind schema.GroupVersionKind, name string) (gone bool, err error) {
	unwanted := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	unwanted.SetGroupVersionKind(kind)
	applier := r.applier()
	applier.Known = r.Live
	return applier.Remove(ctx, c, unwanted)
}

// ownSecrets are the names of the Secrets that the operator makes for the fleet. The first generated one stays when it is not needed:
// who loses it loses every session.
func ownSecrets(c *v1alpha1.LiveStashCluster) []string {
	names := []string{fleet.SecretName(c)}
	if fleet.NeedsGeneratedCookie(c) {
		names = append(names, fleet.CookieSecretName(c))
	}
	if fleet.NeedsGeneratedSecretKeyBase(c) {
		names = append(names, fleet.SecretKeyBaseSecretName(c))
	}
	if c.TLSEnabled() && c.Spec.Clustering.TLS.IssuerRef == nil {
		names = append(names, tls.AuthorityName(c), tls.SecretName(c))
	}
	return append(names, store.For(c).OwnSecrets(c)...)
}

// lookAtOthers is how often an object of another operator's kind, which is not watched, is looked up. One that
// somebody has deleted is then made again.
const lookAtOthers = time.Hour

// ensureOfOthersKind applies an object of another operator's kind, and returns whether it is there. When the kind is not served,
// which is the problem missing, or the object is refused, that is told when everything else is done.
func (r *Reconciler) ensureOfOthersKind(ctx context.Context, p *pass, wanted client.Object, missing *reconcile.Problem) (bool, error) {
	p.DueIn(lookAtOthers)
	_, err := r.applier().One(ctx, p.cluster, wanted)
	switch {
	case meta.IsNoMatchError(err):
		p.DueIn(lookAgain)
		p.postpone(missing)
		return false, nil
	case err != nil && reconcile.IsMistake(err):
		p.postpone(err)
		return false, nil
	}
	return err == nil, err
}
