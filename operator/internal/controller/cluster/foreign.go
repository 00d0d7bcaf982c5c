package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// ensureForeign applies an object of another operator's kind, which this cluster may not serve: then missing is returned. Of
// such objects the cache holds the metadata: a lost one is made again, but what somebody else writes into its spec is not
// noticed.
func (r *Reconciler) ensureForeign(ctx context.Context, owner *v1alpha1.LiveStashCluster, desired *unstructured.Unstructured, missing *problem) error {
	want, err := applyConfiguration(desired)
	if err != nil {
		return err
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(desired.GroupVersionKind())
	err = r.Get(ctx, client.ObjectKeyFromObject(want), live)
	if meta.IsNoMatchError(err) {
		return missing
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking up %s: %w", kindAndName(want), err)
	}
	if err == nil && !metav1.IsControlledBy(live, owner) {
		return nameConflict(live)
	}
	if live.Annotations[appliedAnnotation] == want.GetAnnotations()[appliedAnnotation] {
		return nil
	}
	return r.applyForeign(ctx, want, live.UID != "")
}

func (r *Reconciler) applyForeign(ctx context.Context, want *unstructured.Unstructured, ours bool) error {
	options := []client.ApplyOption{fieldOwner}
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
