package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// upgradingIndex finds the StatefulSets with upgradingAnnotation.
const upgradingIndex = "upgrading"

// turns bounds how many fleets are upgraded at once. Whose turn it is, is written on the StatefulSets; what is here is only what the cache
// does not know yet.
type turns struct {
	mutex sync.Mutex
	// given are the fleets whose turn may not be written yet. The fleet keeps its turn when the write fails.
	given map[types.NamespacedName]bool
	// waiting are those that are to look again when a turn has ended.
	waiting map[types.NamespacedName]bool
}

// take gives the fleet a turn when fewer than most have one, of which written are those that are known to be written, and returns who else
// has one.
func (t *turns) take(fleet types.NamespacedName, most int, written []types.NamespacedName) (others []types.NamespacedName, taken bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	others = slices.DeleteFunc(slices.Clone(written), func(one types.NamespacedName) bool { return one == fleet })
	for one := range t.given {
		if one != fleet && !slices.Contains(others, one) {
			others = append(others, one)
		}
	}
	if t.given == nil {
		t.given, t.waiting = map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	}
	if t.given[fleet] || slices.Contains(written, fleet) || len(others) < most {
		t.given[fleet] = true
		delete(t.waiting, fleet)
		return others, true
	}
	t.waiting[fleet] = true
	return others, false
}

// end is for a fleet that has no turn any more, nor waits for one.
func (t *turns) end(fleet types.NamespacedName) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	delete(t.given, fleet)
}

// wake are the fleets that wait. They ask again.
func (t *turns) wake() []types.NamespacedName {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	waiting := make([]types.NamespacedName, 0, len(t.waiting))
	for fleet := range t.waiting {
		waiting = append(waiting, fleet)
	}
	clear(t.waiting)
	return waiting
}

// takeTurn notes since when the fleet is upgraded: from now on, if it is its turn. If it is not, it notes who holds that up.
func (r *Reconciler) takeTurn(ctx context.Context, p *pass) error {
	written := &appsv1.StatefulSetList{}
	// Not copied: they are only looked at.
	if err := r.List(ctx, written, client.MatchingFields{upgradingIndex: "yes"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the StatefulSets that are being upgraded: %w", err)
	}
	var fleets []types.NamespacedName
	for i := range written.Items {
		fleet := fleetOfSet(&written.Items[i])
		if slices.Contains(fleets, fleet) {
			continue
		}
		is, err := r.isUpgraded(ctx, fleet, &written.Items[i])
		if err != nil {
			return err
		}
		if is {
			fleets = append(fleets, fleet)
		}
	}
	others, taken := r.turns.take(client.ObjectKeyFromObject(p.cluster), r.UpgradesAtOnce, fleets)
	if !taken {
		p.upgrade.waits = true
		p.DueIn(lookForTurn)
		return r.findHoldUp(ctx, p, others)
	}
	if p.upgrade.since.IsZero() {
		p.upgrade.since = p.seen.now
	}
	return nil
}

// isUpgraded is whether that fleet is there to end its turn, and the StatefulSet is one that it looks at for that. Whoever may edit a
// namespace may make others there with our annotation, by which all fleets would wait for ever.
func (r *Reconciler) isUpgraded(ctx context.Context, name types.NamespacedName, set *appsv1.StatefulSet) (bool, error) {
	fleet := &v1alpha1.LiveStashCluster{}
	if err := r.Get(ctx, name, fleet); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("looking up the LiveStashCluster %s: %w", name, err)
		}
		return false, nil
	}
	known := set.Name == fleet.Name || set.Name == redis.Name(fleet) && store.ManagedRedis(fleet) != nil
	return known && fleet.DeletionTimestamp.IsZero() && apply.Owns(fleet, set), nil
}

// findHoldUp notes which of the fleets that are being upgraded does not get on by itself, and why. Of another namespace neither the name is
// told nor the message, which quotes what its pods say.
func (r *Reconciler) findHoldUp(ctx context.Context, p *pass, upgraded []types.NamespacedName) error {
	var held []string
	for _, name := range upgraded {
		other := &v1alpha1.LiveStashCluster{}
		if err := r.Get(ctx, name, other); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("looking up the LiveStashCluster %s: %w", name, err)
			}
			continue
		}
		stalled := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionStalled)
		isStalled := stalled != nil && stalled.Status == metav1.ConditionTrue
		switch stranger := name.Namespace != p.cluster.Namespace; {
		case other.Spec.Paused && stranger:
			held = append(held, "a fleet of another namespace is paused")
		case other.Spec.Paused:
			held = append(held, fmt.Sprintf("%s is paused", name))
		case isStalled && stranger:
			held = append(held, "a fleet of another namespace is stalled")
		case isStalled:
			held = append(held, fmt.Sprintf("%s is stalled: %s", name, stalled.Message))
		}
	}
	slices.Sort(held)
	p.upgrade.heldUp = few(slices.Compact(held))
	return nil
}

// fleetOfSet is the fleet that a StatefulSet belongs to.
func fleetOfSet(set client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: set.GetNamespace(), Name: set.GetLabels()[render.ClusterLabel]}
}

// beingUpgraded is the value of upgradingIndex.
func beingUpgraded(set client.Object) []string {
	if set.GetAnnotations()[upgradingAnnotation] == "" {
		return nil
	}
	return []string{"yes"}
}

// turnEnded has those who wait look again when a turn ends.
func (r *Reconciler) turnEnded() handler.EventHandler {
	wake := func(queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		for _, fleet := range r.turns.wake() {
			queue.Add(ctrl.Request{NamespacedName: fleet})
		}
	}
	return handler.Funcs{
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if beingUpgraded(e.ObjectOld) != nil && beingUpgraded(e.ObjectNew) == nil {
				wake(queue)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if beingUpgraded(e.Object) != nil {
				wake(queue)
			}
		},
	}
}
