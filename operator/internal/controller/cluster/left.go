package cluster

import (
	"context"
	"fmt"
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
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// takeBack makes the fleet's again what a LiveStashCluster of its name has left without an owner (`kubectl delete --cascade=orphan`): of
// all that, the Secrets, and what tells how far the fleet has got. A pass must know these before it does anything. The rest is taken
// back as it is applied. Without such an object it costs no request.
func (r *Reconciler) takeBack(ctx context.Context, c *v1alpha1.LiveStashCluster) error {
	var taken []string
	for _, like := range keepsakes(c) {
		kind := like.GetObjectKind().GroupVersionKind().Kind
		err := r.Get(ctx, client.ObjectKeyFromObject(like), like, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("looking up %s %s: %w", kind, like.GetName(), err)
		}
		if err != nil || !isLeft(c, kind, like) {
			continue
		}
		if err := r.takeBackOne(ctx, c, kind, like.GetName()); err != nil {
			return fmt.Errorf("taking back %s %s: %w", kind, like.GetName(), err)
		}
		taken = append(taken, kind+" "+like.GetName())
	}
	if len(taken) > 0 {
		r.Recorder.Eventf(c, nil, corev1.EventTypeNormal, v1alpha1.ReasonTakenBack, "Reconcile",
			"took back what an earlier LiveStashCluster of this name had left: %s", strings.Join(taken, ", "))
	}
	return nil
}

// keepsakes are the objects that takeBack looks for, empty but for their kinds and names.
func keepsakes(c *v1alpha1.LiveStashCluster) []client.Object {
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: c.Namespace, Name: name} }
	objects := []client.Object{
		&appsv1.StatefulSet{TypeMeta: render.StatefulSetType, ObjectMeta: at(c.Name)},
		&corev1.ServiceAccount{TypeMeta: render.ServiceAccountType, ObjectMeta: at(c.Name)},
	}
	if store.ManagedRedis(c) != nil {
		objects = append(objects, &appsv1.StatefulSet{TypeMeta: render.StatefulSetType, ObjectMeta: at(redis.Name(c))})
	}
	for _, name := range ownSecrets(c) {
		objects = append(objects, &metav1.PartialObjectMetadata{TypeMeta: render.SecretType, ObjectMeta: at(name)})
	}
	return objects
}

// isLeft is whether nobody owns the object, and it was made for a LiveStashCluster of this name.
func isLeft(c *v1alpha1.LiveStashCluster, kind string, object client.Object) bool {
	labels := map[string]string{render.ClusterLabel: c.Name, render.ManagedByLabel: render.Operator}
	return apply.IsLeft(object, labels) && (kind == render.SecretType.Kind || object.GetAnnotations()[apply.Annotation] != "")
}

// takeBackOne makes the LiveStashCluster the owner of an object that is still there and has still none.
func (r *Reconciler) takeBackOne(ctx context.Context, c *v1alpha1.LiveStashCluster, kind, name string) error {
	var live, seen client.Object
	switch kind {
	case render.StatefulSetType.Kind:
		live, seen = &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
	case render.ServiceAccountType.Kind:
		live, seen = &corev1.ServiceAccount{}, &corev1.ServiceAccount{}
	default:
		live, seen = &corev1.Secret{}, secretMetadataObject()
	}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !isLeft(c, kind, live) {
		return nil
	}
	before := live.DeepCopyObject().(client.Object)
	live.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
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
