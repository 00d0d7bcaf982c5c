package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// applyChildren applies those of the rendered objects that are not as wanted.
func (r *Reconciler) applyChildren(ctx context.Context, p *pass) error {
	for _, desired := range p.objects {
		applied, err := r.ensure(ctx, p.cluster, desired)
		if err != nil {
			return err
		}
		if applied == nil || applied.GetKind() != "StatefulSet" {
			continue
		}
		p.statefulSet = &appsv1.StatefulSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, p.statefulSet); err != nil {
			return fmt.Errorf("reading the applied StatefulSet: %w", err)
		}
	}
	return nil
}

// ensure applies one object unless the cache says that it is as wanted; then it returns nil.
func (r *Reconciler) ensure(ctx context.Context, owner *v1alpha1.LiveStashCluster, desired client.Object) (*unstructured.Unstructured, error) {
	want, err := applyConfiguration(desired)
	if err != nil {
		return nil, err
	}
	live, err := r.child(ctx, desired)
	if err != nil {
		return nil, err
	}

	if live != nil {
		if !metav1.IsControlledBy(live, owner) {
			return nil, nameConflict(live)
		}
		if asWanted, err := isAsWanted(live, want); err != nil || asWanted {
			return nil, err
		}
	}
	if err := r.write(ctx, want, live != nil); err != nil {
		return nil, err
	}
	return want, nil
}

// write applies an object. What is the operator's already, ours, gets back what somebody else wrote into the operator's
// fields. Without the force, an object of that name that the cache does not know, because somebody else made it, is not
// overwritten.
func (r *Reconciler) write(ctx context.Context, want *unstructured.Unstructured, ours bool) error {
	options := []client.ApplyOption{reconcile.FieldOwner}
	if ours {
		options = append(options, client.ForceOwnership)
	}
	name := kindAndName(want)
	err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), options...)
	if !ours && apierrors.IsConflict(err) {
		return nameConflict(want)
	}
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	return nil
}

// removeUnwanted deletes the optional children that the spec no longer asks for.
func (r *Reconciler) removeUnwanted(ctx context.Context, p *pass) error {
	if p.store.left {
		return nil // pods that use them are still there
	}
	if err := r.removeOperatedRedis(ctx, p); err != nil {
		return err
	}
	for _, optional := range fleet.Optional(p.cluster) {
		if wanted(p.objects, optional) {
			continue
		}
		live, err := r.child(ctx, optional)
		if err != nil {
			return err
		}
		if live == nil || !metav1.IsControlledBy(live, p.cluster) {
			continue
		}
		if err := client.IgnoreNotFound(r.Delete(ctx, live)); err != nil {
			return fmt.Errorf("deleting %s: %w", kindAndName(optional), err)
		}
	}
	return nil
}

func wanted(objects []client.Object, optional client.Object) bool {
	for _, object := range objects {
		if kindAndName(object) == kindAndName(optional) {
			return true
		}
	}
	return false
}

// child is the live object with the kind and name of like, as the cache has it. Nil when it has none.
func (r *Reconciler) child(ctx context.Context, like client.Object) (client.Object, error) {
	kind := like.GetObjectKind().GroupVersionKind()
	empty, err := r.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	live := empty.(client.Object)
	err = r.Get(ctx, client.ObjectKeyFromObject(like), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", kindAndName(like), err)
	}
	// The cache drops the kind of typed objects.
	live.GetObjectKind().SetGroupVersionKind(kind)
	return live, nil
}

func kindAndName(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}

func nameConflict(object client.Object) *reconcile.Problem {
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonNameConflict,
		Message: fmt.Sprintf("%s exists and does not belong to this LiveStashCluster: delete it, or give the LiveStashCluster another name",
			kindAndName(object)),
	}
}
