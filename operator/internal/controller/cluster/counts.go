package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// countsEvery is how often a status is written of which only the numbers of stashes have changed: they always do.
const countsEvery = time.Minute

// counts remembers when the status of each LiveStashCluster was last written.
type counts struct{ written sync.Map }

// wait is for how long a status is to wait because only numbers of stashes in it have changed. 0: it is to be written, if at all.
func (k *counts) wait(before, after *v1alpha1.LiveStashCluster, now time.Time) time.Duration {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return 0
	}
	last, known := k.written.Load(after.UID)
	if known && equality.Semantic.DeepEqual(withoutCounts(before.Status), withoutCounts(after.Status)) {
		if left := countsEvery - now.Sub(last.(time.Time)); left > 0 {
			return left
		}
	}
	k.written.Store(after.UID, now)
	return 0
}

func (k *counts) forget(uid types.UID) { k.written.Delete(uid) }

func withoutCounts(status v1alpha1.LiveStashClusterStatus) v1alpha1.LiveStashClusterStatus {
	plain := *status.DeepCopy()
	plain.Stashes = 0
	for i := range plain.Pods {
		plain.Pods[i].Stashes = 0
	}
	return plain
}
