package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// keepsake is what a pass must know of before it does anything, should an earlier LiveStashCluster of this name have left it.
type keepsake struct {
	kind   string
	object client.Object
	// outlives is whether spec.whenDeleted may let it outlive the LiveStashCluster.
	outlives bool
	// unwanted is whether the spec does without it. It is not taken back then, but what is noted on it is seen to.
	unwanted bool
}

// takeBack makes the fleet's again what a LiveStashCluster of its name has left without an owner (spec.whenDeleted, or
// `kubectl delete --cascade=orphan`): of all that, the Secrets, the volume, and what tells how far the fleet has got. A pass must know
// these before it does anything. The rest is taken back as it is applied. It also does what a change of spec.whenDeleted asks for.
// Where nothing is to be done it costs no request.
func (r *Reconciler) takeBack(ctx context.Context, c *v1alpha1.LiveStashCluster, left []keepsake) error {
	var taken []string
	var err error
	for _, k := range left {
		name := k.kind + " " + k.object.GetName()
		var is bool
		if is, err = r.takeOne(ctx, c, k); err != nil {
			err = fmt.Errorf("taking back %s: %w", name, err)
			break
		}
		if is {
			taken = append(taken, name)
		}
	}
	if len(taken) > 0 {
		r.Recorder.Eventf(c, nil, corev1.EventTypeNormal, v1alpha1.ReasonTakenBack, "Reconcile",
			"took back what an earlier LiveStashCluster of this name had left: %s", strings.Join(taken, ", "))
	}
	return err
}

// takeOne returns whether it was left, and is the fleet's again.
func (r *Reconciler) takeOne(ctx context.Context, c *v1alpha1.LiveStashCluster, k keepsake) (taken bool, err error) {
	err = r.Get(ctx, client.ObjectKeyFromObject(k.object), k.object, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if k.isSettled(c) {
		return false, nil
	}
	was := apply.Owns(c, k.object)
	err = r.settleOwner(ctx, c, k)
	return err == nil && !was, err
}

// keepsakes are what takeBack looks for: the objects are empty but for their names.
func keepsakes(c *v1alpha1.LiveStashCluster) []keepsake {
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: c.Namespace, Name: name} }
	set := func(name string) keepsake {
		return keepsake{kind: render.StatefulSetType.Kind, object: &appsv1.StatefulSet{ObjectMeta: at(name)}}
	}
	all := []keepsake{
		set(c.Name),
		{kind: render.ServiceAccountType.Kind, object: &corev1.ServiceAccount{ObjectMeta: at(c.Name)}},
	}
	managed := store.ManagedRedis(c)
	if managed != nil {
		all = append(all, set(redis.Name(c)))
	}
	all = append(all, keepsake{
		kind: render.PersistentVolumeClaimType.Kind, object: &corev1.PersistentVolumeClaim{ObjectMeta: at(redis.DataName(c))},
		outlives: true, unwanted: managed == nil || managed.Persistence == nil,
	})
	own, lasting := ownSecrets(c), []string{fleet.SecretName(c), fleet.CookieSecretName(c), fleet.SecretKeyBaseSecretName(c), tls.AuthorityName(c)}
	unwanted := slices.DeleteFunc(slices.Clone(lasting), func(name string) bool { return slices.Contains(own, name) })
	for _, name := range slices.Concat(own, unwanted) {
		secret := keptSecret(c, name, slices.Contains(lasting, name))
		secret.unwanted = slices.Contains(unwanted, name)
		all = append(all, secret)
	}
	return all
}

func keptSecret(c *v1alpha1.LiveStashCluster, name string, outlives bool) keepsake {
	object := &metav1.PartialObjectMetadata{TypeMeta: render.SecretType, ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
	return keepsake{kind: render.SecretType.Kind, object: object, outlives: outlives}
}

// isSettled is whether nothing is to be done about the object: it belongs to the LiveStashCluster as it should, or is somebody else's.
func (k keepsake) isSettled(c *v1alpha1.LiveStashCluster) bool {
	kept := k.outlives && c.Retains()
	switch {
	case metav1.IsControlledBy(k.object, c):
		return !kept || k.unwanted || c.Spec.Paused
	case apply.Owns(c, k.object):
		return kept && k.object.GetAnnotations()[render.KeptAnnotation] == render.KeptFor(c, k.object) || c.Spec.Paused
	}
	return k.unwanted || !isLeft(c, k.kind, k.object)
}

// isLeft is whether nobody owns the object, and it was made for a LiveStashCluster of this name.
func isLeft(c *v1alpha1.LiveStashCluster, kind string, object client.Object) bool {
	return apply.IsLeft(object, ownLabels(c)) && (kind == render.SecretType.Kind || object.GetAnnotations()[apply.Annotation] != "")
}

// ownLabels are those by which an object is known as the fleet's when nobody owns it.
func ownLabels(c *v1alpha1.LiveStashCluster) map[string]string {
	return map[string]string{render.ClusterLabel: c.Name, render.ManagedByLabel: render.Operator}
}

// takeOver is the command by which a Secret without an owner gets those labels.
func takeOver(c *v1alpha1.LiveStashCluster, secret string) string {
	return fmt.Sprintf("kubectl label secret -n %s %s %s=%s %s=%s", c.Namespace, secret, render.ClusterLabel, c.Name, render.ManagedByLabel, render.Operator)
}

// isThere is an error unless the API server has the LiveStashCluster, and nobody deletes it. The cache may not know yet, and the garbage
// collector deletes what is given an owner that is gone.
func (r *Reconciler) isThere(ctx context.Context, c *v1alpha1.LiveStashCluster) error {
	live := &v1alpha1.LiveStashCluster{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(c), live); err != nil {
		return err
	}
	if live.UID != c.UID || !live.DeletionTimestamp.IsZero() {
		return fmt.Errorf("LiveStashCluster %s is being deleted", c.Name)
	}
	return nil
}

// settleOwner makes an object belong to the LiveStashCluster as it should, if that is still to be done.
func (r *Reconciler) settleOwner(ctx context.Context, c *v1alpha1.LiveStashCluster, k keepsake) error {
	var live, seen client.Object
	switch k.kind {
	case render.StatefulSetType.Kind:
		live, seen = &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
	case render.ServiceAccountType.Kind:
		live, seen = &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
	case render.PersistentVolumeClaimType.Kind:
		live, seen = &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	default:
		live, seen = &corev1.Secret{}, secretMetadataObject()
	}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(k.object), live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	found := keepsake{kind: k.kind, object: live, outlives: k.outlives, unwanted: k.unwanted}
	if found.isSettled(c) {
		return nil
	}
	if err := r.isThere(ctx, c); err != nil {
		return err
	}
	before := live.DeepCopyObject().(client.Object)
	if k.outlives {
		render.OwnOrKeep(c, live)
	} else {
		live.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
	}
	if secret, is := live.(*corev1.Secret); is {
		err = r.Update(ctx, secret, apply.FieldOwner)
	} else {
		err = r.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), apply.FieldOwner)
	}
	if err != nil {
		return err
	}
	return reconcile.Await(ctx, r.Client, live, seen)
}
