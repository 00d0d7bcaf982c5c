package cluster

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// largestStash is status.largestStash: the largest of those that the pods made, and of those of pods that are gone, which browsers
// have for another TTL. Nil with adapters that keep stashes of any size.
func largestStash(c *v1alpha1.LiveStashCluster, seen *observation, gone []drained) *v1alpha1.LargestStash {
	if store.For(c).LargestStash(c) == 0 {
		return nil
	}
	now, known, there := ptr.To(seconds(seen.now)), c.Status.LargestStash.DeepCopy(), (*v1alpha1.LargestStash)(nil)
	for _, d := range gone {
		known = larger(known, d.pod, d.report.LargestStashBytes, now)
	}
	if !seen.heard() {
		return known // what the others have is not known
	}
	for i := range seen.members {
		m := &seen.members[i]
		there = larger(there, m.Name, m.answer.Status.LargestStashBytes, nil)
	}
	switch {
	case known == nil, there != nil && there.Bytes >= known.Bytes:
		return there
	case known.PodGone == nil:
		known.PodGone = now
	case !seen.now.Before(carriedUntil(c, known)):
		return there
	}
	return known
}

// larger is the larger of a stash and of one of that pod. Nil: there is none.
func larger(stash *v1alpha1.LargestStash, pod string, bytes int64, gone *metav1.Time) *v1alpha1.LargestStash {
	if bytes == 0 || stash != nil && stash.Bytes >= bytes {
		return stash
	}
	return &v1alpha1.LargestStash{Bytes: bytes, Pod: pod, PodGone: gone}
}

// carriedUntil is until when a browser may bring back a stash whose pod is gone.
func carriedUntil(c *v1alpha1.LiveStashCluster, stash *v1alpha1.LargestStash) time.Time {
	return stash.PodGone.Add(time.Duration(c.TTLSeconds()) * time.Second)
}

// stashesFit: no browser has a stash that is too large to be brought back.
func stashesFit(c *v1alpha1.LiveStashCluster, largest *v1alpha1.LargestStash) metav1.Condition {
	const toDo = "Stash fewer assigns, or use another adapter; or raise the limit of every proxy on the way and of the web server, and then " +
		"spec.browserMemory.maxStashBytes"
	limit := store.For(c).LargestStash(c)
	condition := metav1.Condition{
		Type: v1alpha1.ConditionStashesFit, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStashesSmall,
		Message: fmt.Sprintf("no stash seen has nine tenths of the %d bytes of spec.browserMemory.maxStashBytes", limit),
	}
	switch {
	case largest == nil, !nearLimit(largest.Bytes, limit):
	case largest.Bytes <= limit:
		condition.Reason = v1alpha1.ReasonStashNearLimit
		condition.Message = fmt.Sprintf("%s made a stash of %d bytes, and above the %d of spec.browserMemory.maxStashBytes its user cannot reconnect. %s",
			largest.Pod, largest.Bytes, limit, toDo)
	default:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonStashTooLarge
		condition.Message = fmt.Sprintf("%s made a stash of %d bytes, more than the %d of spec.browserMemory.maxStashBytes: a browser sends it in the URL "+
			"of its WebSocket, proxies and servers refuse that with 414, and the page tries again for ever; its user has to load it anew, and begins "+
			"with a new state. %s", largest.Pod, largest.Bytes, limit, toDo)
		if largest.PodGone != nil {
			condition.Reason = v1alpha1.ReasonStashWasTooLarge
			condition.Message += fmt.Sprintf(". That pod is gone; a browser may have such a stash until %s", carriedUntil(c, largest).UTC().Format(time.RFC3339))
		}
	}
	return condition
}

// nearLimit is whether a stash has nine tenths of the limit: the alert LiveStashStashNearRequestLimit reckons the same.
func nearLimit(bytes, limit int64) bool { return 10*bytes >= 9*limit }
