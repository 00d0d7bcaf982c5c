package apply

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A StatefulSet with updateStrategy {type: OnDelete} must have no rollingUpdate. Applying one without it takes away what the
// operator set there, and the defaults. A field of somebody else, which can only be maxUnavailable, would stay, and the
// API server refuses both together.

func isOnDelete(want *unstructured.Unstructured) bool {
	if want.GroupVersionKind() != appsv1.SchemeGroupVersion.WithKind("StatefulSet") {
		return false
	}
	strategy, _, err := unstructured.NestedString(want.Object, "spec", "updateStrategy", "type")
	return err == nil && strategy == string(appsv1.OnDeleteStatefulSetStrategyType)
}

// dropRollingUpdate takes rollingUpdate away, whoever owns a field of it. In the same request as the type: alone it would come
// back with the default partition 0, which replaces every pod.
func (a Applier) dropRollingUpdate(ctx context.Context, want *unstructured.Unstructured) error {
	return a.makeWay(ctx, want, map[string]any{
		"updateStrategy": map[string]any{"type": appsv1.OnDeleteStatefulSetStrategyType, "rollingUpdate": nil},
	})
}
