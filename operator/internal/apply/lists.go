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

// replaceLists puts the wanted lists into the spec, and takes away what others have put there.
func (a Applier) replaceLists(ctx context.Context, live client.Object, want *unstructured.Unstructured) error {
	lists := listsOf(want.Object["spec"])
	if lists == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": live.GetUID()}, "spec": lists})
	if err != nil {
		return fmt.Errorf("encoding the lists of %s: %w", kindAndName(want), err)
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

// listsOf are the lists of objects in a part of an object, at their places. Nil: there are none.
func listsOf(part any) any {
	switch part := part.(type) {
	case []any:
		if len(part) == 0 {
			return nil
		}
		if _, keyed := part[0].(map[string]any); keyed {
			return part
		}
	case map[string]any:
		lists := map[string]any{}
		for name, value := range part {
			if found := listsOf(value); found != nil {
				lists[name] = found
			}
		}
		if len(lists) > 0 {
			return lists
		}
	}
	return nil
}
