package apply

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretKind is the kind whose metadata alone is cached.
var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

// Prune deletes the objects of the kinds that were applied for the owner and are no longer wanted. What is known is the
// inventory: of is the label that all of them have. Without something to delete it costs no request.
func (a Applier) Prune(ctx context.Context, owner client.Object, of client.MatchingLabels, kinds []schema.GroupVersionKind, wanted []client.Object) error {
	keep := map[string]bool{}
	for _, object := range wanted {
		keep[kindAndName(object)] = true
	}
	for _, kind := range kinds {
		err := a.prune(ctx, owner, of, kind, func(object client.Object) bool {
			return object.GetAnnotations()[Annotation] == "" || keep[kind.Kind+" "+object.GetName()]
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PruneSecrets deletes the owner's Secrets with other names than those that are wanted. Secrets are made by other means: what
// is in them is not a function of the spec.
func (a Applier) PruneSecrets(ctx context.Context, owner client.Object, of client.MatchingLabels, wanted []string) error {
	return a.prune(ctx, owner, of, secretKind, func(secret client.Object) bool { return slices.Contains(wanted, secret.GetName()) })
}

// prune deletes the owner's objects of a kind, apart from those that are kept.
func (a Applier) prune(ctx context.Context, owner client.Object, of client.MatchingLabels, kind schema.GroupVersionKind, kept func(client.Object) bool) error {
	list, err := a.emptyList(kind)
	if err != nil {
		return err
	}
	// Not copied: they are only looked at.
	if err := a.Known.List(ctx, list, client.InNamespace(owner.GetNamespace()), of, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing every %s: %w", kind.Kind, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		if !Owns(owner, object) || isKept(owner, object, string(owner.GetUID())) || kept(object) {
			return nil
		}
		return a.delete(ctx, kind, object)
	})
}

// Remove deletes one object that is known, if it is the owner's, and returns whether there is none of the owner's any more. Without
// something to delete it costs no request. When the kind is not served, there is none.
func (a Applier) Remove(ctx context.Context, owner, like client.Object) (gone bool, err error) {
	known, err := a.lookUp(ctx, like)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, err
	}
	if known == nil {
		return true, nil
	}
	if !Owns(owner, known) {
		return false, nil
	}
	return true, a.delete(ctx, like.GetObjectKind().GroupVersionKind(), known)
}

// delete deletes this object and no other that has got its name meanwhile.
func (a Applier) delete(ctx context.Context, kind schema.GroupVersionKind, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	unwanted := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	unwanted.SetGroupVersionKind(kind)
	err := a.Writer.Delete(ctx, unwanted, client.Preconditions{UID: ptr.To(object.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", kindAndName(unwanted), err)
	}
	return nil
}

func (a Applier) emptyList(kind schema.GroupVersionKind) (client.ObjectList, error) {
	listKind := kind.GroupVersion().WithKind(kind.Kind + "List")
	if kind == secretKind {
		metadata := &metav1.PartialObjectMetadataList{}
		metadata.SetGroupVersionKind(listKind)
		return metadata, nil
	}
	empty, err := a.Writer.Scheme().New(listKind)
	if err != nil {
		return nil, err
	}
	return empty.(client.ObjectList), nil
}
