package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Server-side apply tells the ports of a Service apart by their numbers. When somebody has changed a number, the wanted entry is
// added beside the changed one, which now is somebody else's, and the API server refuses two ports of one name.

// replaceLists puts the wanted lists into the spec, and takes away what others have put there. The whole spec in one request: when the
// API server refuses something else of it, nothing is changed.
func (a Applier) replaceLists(ctx context.Context, want *unstructured.Unstructured) error {
	return a.makeWay(ctx, want, want.Object["spec"])
}
