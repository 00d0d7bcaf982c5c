package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// Of a hundred fleets that ask again and again, all at once, one has its turn, and another one only when that one's has ended.
func TestTurnsOfAHundredFleets(t *testing.T) {
	const fleets = 100
	var all turns
	var held []types.NamespacedName
	for range fleets {
		var mutex sync.Mutex
		var asking sync.WaitGroup
		var taken []types.NamespacedName
		for number := range fleets {
			fleet := types.NamespacedName{Namespace: "web", Name: fmt.Sprintf("shop-%d", number)}
			if slices.Contains(held, fleet) {
				continue // it is up to date
			}
			asking.Go(func() {
				others, mine := all.take(fleet, 1, nil)
				mutex.Lock()
				defer mutex.Unlock()
				if mine {
					taken = append(taken, fleet)
				} else if len(others) != 1 {
					t.Errorf("%v are in the way of %s", others, fleet)
				}
			})
		}
		asking.Wait()
		if len(taken) != 1 {
			t.Fatalf("%v have their turn after %d fleets", taken, len(held))
		}
		held = append(held, taken[0])
		all.end(taken[0])
		if waiting := all.wake(); len(waiting) != fleets-len(held) {
			t.Fatalf("%d are woken, want the %d that are left", len(waiting), fleets-len(held))
		}
	}
}

// One whose new pod never gets ready keeps its turn: all others wait, keep their pods and name it. They go on when it is Ready.
func TestUpgradeOfAFleetThatNeverGetsReady(t *testing.T) {
	clusters, operator := installed("1", nil).fleetsOf(t, 6), immediate(1)
	bad, others := clusters[0], clusters[1:]
	operator.operate(t, bad)
	isUpToDate(t, bad, v1alpha1.ReasonUpgrading)
	old := &corev1.Pod{}
	old.Namespace, old.Name = bad.Namespace, "shop-0"
	gone(t, old, "")
	pod := fleetPod(t, bad, 0, "b")
	pod.Status = waiting("ImagePullBackOff")
	suite.Must(t, api.Status().Update(t.Context(), pod))
	acted(t, bad, "a", "b")
	t.Cleanup(func() { operatorTime.Ahead.Add(-int64(2 * soon)) })
	operator.operate(t, bad)
	operatorTime.Ahead.Add(int64(2 * soon))
	suite.Eventually(t, func() error {
		operator.operate(t, bad)
		if found := meta.FindStatusCondition(bad.Status.Conditions, v1alpha1.ConditionStalled); found == nil || !strings.Contains(found.Message, "shop-0") {
			return fmt.Errorf("condition Stalled is %+v", found)
		}
		isKnown(t, bad, &v1alpha1.LiveStashCluster{})
		return nil
	})
	operator.operate(t, others...)
	for _, cluster := range others {
		isUpToDate(t, cluster, v1alpha1.ReasonUpgradeHeldUp, "a fleet of another namespace is stalled")
		eventSays(t, cluster.Namespace, v1alpha1.ReasonUpgradeHeldUp, "a fleet of another namespace is stalled")
	}
	if now := upgrading(t, clusters); len(now) != 1 || renewed(t, clusters) != 1 {
		t.Fatalf("%d fleets are upgraded at once, and %d have the new template", len(now), renewed(t, clusters))
	}

	rollsTo(t, bad, "b")
	suite.Eventually(t, func() error {
		operator.operate(t, clusters...)
		if now := upgrading(t, clusters); len(now) != 1 || now[0].Namespace == bad.Namespace {
			return fmt.Errorf("%d fleets are being upgraded, the bad one is %+v", len(now), bad.Status.Conditions)
		}
		return nil
	})
	noTurnsAreLeft(t, clusters)
}

// noTurnsAreLeft removes the fleets: turns are those of all fleets, also of other tests'.
func noTurnsAreLeft(t *testing.T, clusters []*v1alpha1.LiveStashCluster) {
	t.Helper()
	for _, cluster := range clusters {
		suite.Must(t, api.Delete(t.Context(), fleetSet(t, cluster)))
	}
	suite.Eventually(t, func() error {
		left := &appsv1.StatefulSetList{}
		err := underTest.List(t.Context(), left, client.MatchingFields{upgradingIndex: "yes"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d StatefulSets are still known as being upgraded", len(left.Items))
		}
		return err
	})
}
