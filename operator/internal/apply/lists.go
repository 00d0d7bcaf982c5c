package apply

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Server-side apply tells the ports of a Service apart by their numbers. When somebody has changed a number, the wanted entry is
// added beside the changed one, which now is somebody else's, and the API server refuses two ports of one name.

// replaceLists puts the wanted lists into the spec, and takes away what others have put there. The whole spec in one request: when the
// API server refuses something else of it, nothing is changed.
func (a Applier) replaceLists(ctx context.Context, live client.Object, want *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID()}, "spec": want.Object["spec"]})
	if err != nil {
		return fmt.Errorf("encoding the spec of %s: %w", kindAndName(want), err)
	}
	changed := &unstructured.Unstructured{}
	changed.SetGroupVersionKind(want.GroupVersionKind())
	changed.SetNamespace(want.GetNamespace())
	changed.SetName(want.GetName())
	if err := a.Writer.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return fmt.Errorf("removing what is in the way in %s: %w", kindAndName(want), err)
	}
	return nil
}
