package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// countsEvery is how often a status is written of which only the numbers of stashes and returns have changed: they always do.
	countsEvery = time.Minute
	// detailsEvery is how often one is written of which only pods, numbers, reasons and messages have changed, but no condition from
	// True to False or back, or else a fleet would be written for every step of every pod.
	detailsEvery = 5 * time.Second
	// newFor is for how long a fleet is new, and firstDetails is detailsEvery of new ones: their pods come one by one, and nobody has
	// anything to lose yet.
	newFor, firstDetails = 30 * time.Second, 15 * time.Second
)

// counts remembers when the status of each LiveStashCluster was last written.
type counts struct{ written sync.Map }

// wait is for how long a status is to wait because nothing in it has changed that is told at once. 0: it is to be written, if at
// all.
func (k *counts) wait(before, after *v1alpha1.LiveStashCluster, now time.Time) time.Duration {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return 0
	}
	last, known := k.written.Load(after.UID)
	if known {
		if left := pause(before, after, now) - now.Sub(last.(time.Time)); left > 0 {
			return left
		}
	}
	k.written.Store(after.UID, now)
	return 0
}

// pause is how long lies between two writes of a status with such changes.
func pause(before, after *v1alpha1.LiveStashCluster, now time.Time) time.Duration {
	switch {
	case equality.Semantic.DeepEqual(withoutCounts(before.Status), withoutCounts(after.Status)):
		return countsEvery
	case !equality.Semantic.DeepEqual(withoutDetails(before.Status), withoutDetails(after.Status)):
		return 0
	case now.Sub(after.CreationTimestamp.Time) < newFor:
		return firstDetails
	}
	return detailsEvery
}

func (k *counts) forget(uid types.UID) { k.written.Delete(uid) }

func withoutCounts(status v1alpha1.LiveStashClusterStatus) v1alpha1.LiveStashClusterStatus {
	plain := *status.DeepCopy()
	plain.Stashes, plain.LargestStash = 0, lastingStash(status.LargestStash)
	if plain.Redis != nil && plain.Redis.Server != nil {
		plain.Redis.Server.Stashes = 0
	}
	for i := range plain.Pods {
		plain.Pods[i].Stashes = 0
	}
	withoutReturns(plain.Rollouts)
	return plain
}

func withoutDetails(status v1alpha1.LiveStashClusterStatus) v1alpha1.LiveStashClusterStatus {
	plain := *status.DeepCopy()
	withoutReturns(plain.Rollouts)
	plain.Stashes, plain.Pods, plain.Revision, plain.LargestStash = 0, nil, "", lastingStash(status.LargestStash)
	plain.Replicas, plain.ReadyReplicas, plain.UpdatedReplicas, plain.PodsReady = 0, 0, 0, ""
	for i := range plain.Conditions {
		condition := &plain.Conditions[i]
		condition.Message = ""
		if condition.Type != v1alpha1.ConditionStashesFit { // its reason is a warning that is told at once
			condition.Reason = ""
		}
	}
	return plain
}

// lastingStash is the largest stash when it does not grow any more. Nil while it may.
func lastingStash(largest *v1alpha1.LargestStash) *v1alpha1.LargestStash {
	if largest == nil || largest.PodGone == nil {
		return nil
	}
	return largest
}

// withoutReturns leaves of the returns of rollouts only whether they are a loss.
func withoutReturns(rollouts []v1alpha1.RolloutStatus) {
	for i := range rollouts {
		rollout := &rollouts[i]
		lost := lostReturns(rollout) > 0
		rollout.Returned, rollout.NotRecovered = 0, 0
		if lost {
			rollout.NotRecovered = 1
		}
	}
}
