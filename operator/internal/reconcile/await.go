package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Await waits for the cache to have the object just written, which takes milliseconds, and for a second at most. The next pass would
// else start from the old status, write the same one again, and tell the same news twice. seen is an empty object to read into.
func Await(ctx context.Context, cache client.Reader, written, seen client.Object) error {
	caughtUp := func(ctx context.Context) (bool, error) {
		err := cache.Get(ctx, client.ObjectKeyFromObject(written), seen)
		if err != nil || seen.GetUID() != written.GetUID() {
			return true, client.IgnoreNotFound(err)
		}
		order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), written.GetResourceVersion())
		return order >= 0, err
	}
	err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, time.Second, true, caughtUp)
	if wait.Interrupted(err) {
		return nil // a repeated write is the worst that can happen
	}
	return err
}
