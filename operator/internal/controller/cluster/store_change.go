package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// guardStashes ends the pass before anything is written when the spec would leave a store with stashes behind, or delete a volume, and
// nobody has said that this is meant. Pods go on as they are.
func (r *Reconciler) guardStashes(ctx context.Context, p *pass) error {
	left := p.storeLeft()
	begins, err := r.beginsEmpty(ctx, p)
	if err != nil {
		return err
	}
	volume, err := r.volumeLeft(ctx, p.cluster)
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc([]string{left.lost, begins, volume}, func(what string) bool { return what == "" })
	if volume != "" || begins != "" {
		left.adapter = v1alpha1.AdapterRedis
	}
	switch {
	case len(lost) == 0:
		return nil
	case p.cluster.Spec.AcceptLossOf == left.adapter:
		p.givenUp = map[string]string{p.cluster.Name: left.lost, redis.Name(p.cluster): begins}
		p.volumeGivenUp = volume
		return nil
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonStoreChangeHeld,
		Message: fmt.Sprintf("the spec asks for another store, and stashes are not carried over. Lost would be %s. Nothing is changed until you set spec.acceptLossOf to %s, or take the change back",
			strings.Join(lost, ", and "), left.adapter),
		Watched: true,
	}
}

// storeLeft is the store that a change leaves behind, and what is in it.
type storeLeft struct {
	adapter v1alpha1.Adapter
	// lost is what is lost with it. Empty: nothing, or no change is asked for.
	lost string
}

// storeLeft is the store of the StatefulSet's template when another one is wanted. Going back to the store of pods that are still there
// is no change: that one has begun, and leaves less behind when it ends.
func (p *pass) storeLeft() storeLeft {
	template := &p.seen.statefulSet.Spec.Template
	used, found := store.Named(adapterOf(&template.Spec))
	if !found {
		return storeLeft{} // there is no StatefulSet yet
	}
	_, wanted := p.store()
	now, name := template.Annotations[fleet.StoreAnnotation], store.For(p.cluster).Name()
	if store.Of(used).Name() == name && now == wanted {
		return storeLeft{}
	}
	goesBack := func(m member) bool {
		return !m.updated && m.Annotations[fleet.StoreAnnotation] == wanted && (wanted != "" || m.answer.Status.Adapter == name)
	}
	if slices.ContainsFunc(p.seen.members, goesBack) {
		return storeLeft{}
	}
	return storeLeft{adapter: used, lost: p.stashesIn(used)}
}

// stashesIn says which are known to be in the store that the pods use, or may be. Empty: none.
func (p *pass) stashesIn(adapter v1alpha1.Adapter) string {
	serves := slices.ContainsFunc(p.seen.members, func(m member) bool { return p.seen.ready[m.Name] })
	running := p.cluster.Status.Redis
	switch used := store.Of(adapter); {
	case !used.Recovers():
		return ""
	case used.Home() != store.Elsewhere:
		return p.stashesInPods(adapter)
	case !used.Renewed(): // nothing but the browsers has them
		if serves {
			return fmt.Sprintf("the stashes that users' browsers hold (adapter %s)", adapter)
		}
	case running != nil && running.Mode != v1alpha1.RedisModeExternal && (len(p.seen.members) > 0 || p.seen.replicas() == 0):
		return stashesInRedis(running) + ", which is removed"
	case running != nil && serves:
		return stashesInRedis(running) + ", which stay there and are not found again"
	}
	return ""
}

// stashesInPods says what is in the memory of pods. One that serves and has no agent, or whose agent is silent, may hold any number.
func (p *pass) stashesInPods(adapter v1alpha1.Adapter) string {
	if stashes := max(p.cluster.Status.Stashes, p.seen.mostStashes()); stashes > 0 {
		return fmt.Sprintf("the %d stashes that the pods hold in memory (adapter %s)", stashes, adapter)
	}
	silent := func(m member) bool {
		return p.seen.ready[m.Name] && (m.agentPort == 0 || m.answer.At.IsZero() || m.answer.Err != nil)
	}
	if slices.ContainsFunc(p.seen.members, silent) {
		return fmt.Sprintf("the stashes that the pods hold in memory (adapter %s), which no agent has counted", adapter)
	}
	return ""
}

func stashesInRedis(running *v1alpha1.RedisStatus) string {
	all := "all stashes in the Redis at " + running.Address
	if running.Server != nil && running.Server.Stashes > 0 {
		all += fmt.Sprintf(" (%d when it was last asked)", running.Server.Stashes)
	}
	return all
}

// beginsEmpty says what is lost when a managed Redis that has had no volume gets one. Empty: it has not served yet, or is to get none.
func (r *Reconciler) beginsEmpty(ctx context.Context, p *pass) (string, error) {
	managed, running := store.ManagedRedis(p.cluster), p.cluster.Status.Redis
	if managed == nil || managed.Persistence == nil {
		return "", nil
	}
	if running == nil {
		var err error
		if running, err = r.redisTakenBack(ctx, p); err != nil {
			return "", err
		}
	}
	if running == nil || running.Server == nil {
		return "", nil
	}
	return stashesInRedis(running) + ", which begins again on an empty volume", nil
}

// redisTakenBack is what a status would tell of a Redis without a volume that serves and was left by an earlier LiveStashCluster, before
// this one has a status. Nil: there is none.
func (r *Reconciler) redisTakenBack(ctx context.Context, p *pass) (*v1alpha1.RedisStatus, error) {
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: redis.Name(p.cluster)}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("looking up StatefulSet %s: %w", redis.Name(p.cluster), err)
	}
	hasVolume := slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(volume corev1.Volume) bool { return volume.PersistentVolumeClaim != nil })
	if err != nil || !apply.Owns(p.cluster, set) || hasVolume || set.Status.ReadyReplicas == 0 {
		return nil, nil
	}
	address, _ := p.store()
	return &v1alpha1.RedisStatus{Address: address, Server: &v1alpha1.RedisServer{}}, nil
}

// mostStashes is the greatest number of stashes that a pod holds.
func (o *observation) mostStashes() int64 {
	var most int64
	for i := range o.members {
		most = max(most, o.members[i].answer.Status.Stashes)
	}
	return most
}

// adapterOf is LIVE_STASH_ADAPTER of a fleet's pods.
func adapterOf(pods *corev1.PodSpec) string {
	for _, container := range pods.Containers {
		for _, variable := range container.Env {
			if container.Name == fleet.AppContainer && variable.Name == "LIVE_STASH_ADAPTER" {
				return variable.Value
			}
		}
	}
	return ""
}

// volumeLeft says which volume the spec would delete. Empty: none.
func (r *Reconciler) volumeLeft(ctx context.Context, c *v1alpha1.LiveStashCluster) (string, error) {
	managed := store.ManagedRedis(c)
	if c.Status.Redis == nil || managed != nil && managed.Persistence != nil {
		return "", nil
	}
	volume := &corev1.PersistentVolumeClaim{}
	err := r.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: redis.DataName(c)}, volume)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("looking up the volume of Redis: %w", err)
	}
	if err != nil || !apply.Owns(c, volume) || !volume.DeletionTimestamp.IsZero() {
		return "", nil
	}
	return fmt.Sprintf("the volume of the PersistentVolumeClaim %s with all that is on it", volume.Name), nil
}

// tellGivenUp says what is left behind, or deleted, with an object at the moment at which it is. Empty: nothing.
func (r *Reconciler) tellGivenUp(c *v1alpha1.LiveStashCluster, with client.Object, what string) {
	if what != "" {
		r.Recorder.Eventf(c, with, corev1.EventTypeWarning, v1alpha1.ReasonStashesLost, "ChangeStore",
			"the store changes, and spec.acceptLossOf is %s: given up are %s", c.Spec.AcceptLossOf, what)
	}
}
