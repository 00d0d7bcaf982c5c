package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// ensureForeign applies an object of another operator's kind, which this cluster may not serve: then missing is returned. Of
// such objects the cache holds the metadata: a lost one is made again, but what somebody else writes into its spec is not
// noticed.
func (r *Reconciler) ensureForeign(ctx context.Context, owner *v1alpha1.LiveStashCluster, desired *unstructured.Unstructured, missing *reconcile.Problem) error {
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
	if live.Annotations[render.AppliedAnnotation] == want.GetAnnotations()[render.AppliedAnnotation] {
		return nil
	}
	return r.write(ctx, want, live.UID != "")
}
