package reconcile

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/apply"
)

// WriteStatus writes what the status of after has that before has not, and waits until the cache has it. It returns whether
// it was written, which may be so though the wait failed.
func WriteStatus(ctx context.Context, api client.Client, before, after client.Object) (bool, error) {
	// The answer replaces the object that it is read into, which others may still point into.
	written := copied(after)
	if err := api.Status().Patch(ctx, written, client.MergeFrom(before), apply.FieldOwner); err != nil {
		return false, fmt.Errorf("writing the status: %w", err)
	}
	after.SetResourceVersion(written.GetResourceVersion())
	return true, Await(ctx, api, written, copied(written))
}

func copied(object client.Object) client.Object { return object.DeepCopyObject().(client.Object) }
