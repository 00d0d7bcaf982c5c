package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// Agents tells what the agents in the pods last said, and is told which pods there are.
type Agents interface {
	Track(fleet types.NamespacedName, pace observe.Pace, targets []observe.Target)
	Answers(fleet types.NamespacedName) map[types.UID]observe.Answer
	Forget(fleet types.NamespacedName)
}

// observation is what is seen of a fleet before anything is done for it. It comes from the cache and costs no request.
type observation struct {
	// statefulSet is empty, with no UID, while there is none of the fleet's own.
	statefulSet *appsv1.StatefulSet
	// versions are the resource versions of the StatefulSets of the fleet and its store, from before anything else was seen, by name.
	versions map[string]string
	// members are that StatefulSet's pods, names their names, ready those of the pods that serve.
	members      []member
	names, ready map[string]bool
	// agents is how many of those that serve have one: each one's node should see all of the others'.
	agents int
	// beforeJob is the Job that runs before a rollout, beforePods are its pods. Nil: there is none of the fleet's own.
	beforeJob  *batchv1.Job
	beforePods []corev1.Pod
	// revision is that of the only pods that the client Service leads to. Empty: it leads to all that are ready.
	revision string
	// prepared are the digests of the templates that need no run of spec.rollout.before.
	prepared []string
	// redisTrouble says what is wrong with the Redis that Kubernetes runs for the fleet; empty when nothing is.
	redisTrouble string
	// waited is for how long what is awaited has been waited for: see awaited.
	waited map[string]time.Duration
	// served is since when pods of a canary have been seen to serve: see onTrial.
	served map[string]time.Time
	now    time.Time
	placement
}

// observe looks at everything that a pass looks at.
func (r *Reconciler) observe(ctx context.Context, c *v1alpha1.LiveStashCluster) (observation, error) {
	versions, err := r.versions(ctx, c)
	if err != nil {
		return observation{}, err
	}
	pods, err := r.pods(ctx, c)
	if err != nil {
		return observation{}, err
	}
	seen, err := r.observeMembers(ctx, r.Client, c, pods)
	if err != nil {
		return seen, err
	}
	seen.versions = versions
	if err := r.observeNodes(ctx, c, &seen); err != nil {
		return seen, err
	}
	if err := r.observeBefore(ctx, c, &seen); err != nil {
		return seen, err
	}
	if seen.revision, err = r.leadsTo(ctx, c); err != nil {
		return seen, err
	}
	key := client.ObjectKeyFromObject(c)
	seen.waited = r.waits.since(key, seen.awaited(c), seen.now)
	seen.served = r.services.begun(key, seen.onTrial(c), seen.now)
	seen.redisTrouble, err = r.redisTrouble(ctx, c)
	if err != nil {
		return seen, err
	}
	return seen, nil
}

// versions are the resource versions of the StatefulSets that a pass may write, by their names, apply.Absent of one that is not there. A
// pass may be written by an operator that stood still and that no longer leads: it must not put back what the one that leads has changed.
func (r *Reconciler) versions(ctx context.Context, c *v1alpha1.LiveStashCluster) (map[string]string, error) {
	versions := map[string]string{}
	for _, name := range append(redis.StatefulSets(c), c.Name) {
		set := &appsv1.StatefulSet{}
		err := r.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, set, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking up StatefulSet %s: %w", name, err)
		}
		versions[name] = cmp.Or(set.ResourceVersion, apply.Absent)
	}
	return versions, nil
}

// observeMembers looks at the StatefulSet, as the reader has it, and at those of the pods that it made.
func (r *Reconciler) observeMembers(ctx context.Context, reader client.Reader, c *v1alpha1.LiveStashCluster, pods []corev1.Pod) (observation, error) {
	set := &appsv1.StatefulSet{}
	err := reader.Get(ctx, client.ObjectKeyFromObject(c), set)
	if client.IgnoreNotFound(err) != nil {
		return observation{}, fmt.Errorf("looking up the StatefulSet: %w", err)
	}
	if err != nil || !metav1.IsControlledBy(set, c) {
		return newObservation(leftWith(pods), nil, r.Clock.Now()), nil
	}
	return newObservation(set, membersOf(pods, set, r.Agents.Answers(client.ObjectKeyFromObject(c))), r.Clock.Now()), nil
}

// leftWith is a StatefulSet that is not there. It has the lowest ordinal of the pods that `kubectl delete statefulset --cascade=orphan` has left, so that
// the one that is made anew takes them all back, and none has to go.
func leftWith(pods []corev1.Pod) *appsv1.StatefulSet {
	lowest := int32(math.MaxInt32)
	for i := range pods {
		pod := &pods[i]
		if number := ordinal(pod.Name); number >= 0 && metav1.GetControllerOf(pod) == nil && pod.DeletionTimestamp.IsZero() {
			lowest = min(lowest, number)
		}
	}
	set := &appsv1.StatefulSet{}
	if lowest == 1 { // where a rollout may have left them: others are nobody's that it has made
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: lowest}
	}
	return set
}

// newObservation is what is seen of a StatefulSet and its pods.
func newObservation(set *appsv1.StatefulSet, members []member, now time.Time) observation {
	seen := observation{statefulSet: set, members: members, names: map[string]bool{}, ready: map[string]bool{}, now: now}
	for i := range members {
		m := &members[i]
		serves := podReady(m.Pod) && !m.terminating()
		seen.names[m.Name], seen.ready[m.Name] = true, serves
		if serves && m.agentPort != 0 {
			seen.agents++
		}
	}
	return seen
}

// awaited are the pods that cannot keep users, by their wait, those of the Job that do not get on, and those that are not there and should be, by their name.
func (o *observation) awaited(c *v1alpha1.LiveStashCluster) []string {
	var awaited []string
	for i := range o.members {
		if m := &o.members[i]; o.unable(c, m) != "" {
			awaited = append(awaited, m.wait())
		}
	}
	for i := range o.beforePods {
		if pod := &o.beforePods[i]; podTrouble(pod) != "" {
			awaited = append(awaited, string(pod.UID))
		}
	}
	return append(awaited, o.absent(c.Name)...)
}

// firstUnable says which pod cannot keep users, and why; empty when all can that are there.
func (o *observation) firstUnable(c *v1alpha1.LiveStashCluster) string {
	for i := range o.members {
		if why := o.unable(c, &o.members[i]); why != "" {
			return o.members[i].Name + " " + why
		}
	}
	return ""
}

// absent are the names of the pods that the StatefulSet should have and has not.
func (o *observation) absent(fleetName string) []string {
	var absent []string
	for place := range o.replicas() {
		if name := fmt.Sprintf("%s-%d", fleetName, o.start()+place); !o.names[name] {
			absent = append(absent, name)
		}
	}
	return absent
}

// longestAbsent is for how long a pod that should be there has been missed. 0: none is.
func (o *observation) longestAbsent(fleetName string) time.Duration {
	var longest time.Duration
	for _, name := range o.absent(fleetName) {
		longest = max(longest, o.waited[name], 1)
	}
	return longest
}

// turn is after how long time alone changes what is thought of a pod: it has been waited for long enough, or its node has had its time
// to say that it stopped. 0: never. All else that can happen to a pod is told by a watch, or by its agent.
func (o *observation) turn() time.Duration {
	var left []time.Duration
	for _, waited := range o.waited {
		left = append(left, tellAfter-waited, soon-waited, patience-waited)
	}
	for i := range o.members {
		if m := &o.members[i]; m.terminating() {
			left = append(left, m.mayStopFor()-o.waited[m.wait()])
		}
	}
	left = slices.DeleteFunc(left, func(one time.Duration) bool { return one < 0 })
	if len(left) == 0 {
		return 0
	}
	return slices.Min(left) + time.Millisecond // a moment over it
}

// heard is whether every agent whose pod serves has been asked. After a restart of the operator, none has: what was told before
// stands until then.
func (o *observation) heard() bool {
	for i := range o.members {
		if m := &o.members[i]; m.agentPort != 0 && o.ready[m.Name] && m.answer.At.IsZero() && m.answer.Err == nil {
			return false
		}
	}
	return true
}

// replicas is how many pods the StatefulSet is to have.
func (o *observation) replicas() int32 {
	if o.statefulSet.Spec.Replicas == nil {
		return 0
	}
	return *o.statefulSet.Spec.Replicas
}

// start is the lowest ordinal that the StatefulSet is to have.
func (o *observation) start() int32 { return render.StartOf(o.statefulSet) }

// settled is whether the StatefulSet controller has acted on the StatefulSet as it is.
func (o *observation) settled() bool {
	set := o.statefulSet
	return set.UID != "" && set.Generation == set.Status.ObservedGeneration
}

// heldPorts are those that pods listen on, old templates' and new.
func (o *observation) heldPorts() render.Ports {
	var held render.Ports
	for i := range o.members {
		pod := o.members[i].Pod
		held.HTTP = appendPort(held.HTTP, portOf(pod, fleet.HTTPPort))
		held.Agent = appendPort(held.Agent, portOf(pod, fleet.AgentPort))
		held.Distribution = appendPort(held.Distribution, portOf(pod, fleet.DistributionPort))
	}
	return held
}

func appendPort(ports []int32, port int32) []int32 {
	if port == 0 || slices.Contains(ports, port) {
		return ports
	}
	return append(ports, port)
}

// targets are the pods that have an agent and an address.
func (o *observation) targets() []observe.Target {
	var targets []observe.Target
	for i := range o.members {
		if m := &o.members[i]; m.agentPort != 0 && m.Status.PodIP != "" {
			targets = append(targets, observe.Target{UID: m.UID, Pod: m.Name, IP: m.Status.PodIP, Port: m.agentPort, Serves: podReady(m.Pod)})
		}
	}
	return targets
}

// trouble says why one of the pods does not get on, and for how long such a pod has been waited for. Empty when all do, but for the one that
// a rollout goes on without.
func (p *pass) trouble() (trouble string, waited time.Duration) {
	for i := range p.seen.members {
		m := &p.seen.members[i]
		if one := podTrouble(m.Pod); one != "" && (!p.plan.Forgoes || !m.roomless()) {
			trouble, waited = cmp.Or(trouble, one), max(waited, p.seen.waited[m.wait()])
		}
	}
	if trouble != "" {
		return trouble, waited
	}
	return firstTrouble(p.seen.beforePods), slices.Max(append(slices.Collect(maps.Values(p.seen.waited)), 0))
}

// waits remembers since when something is waited for. What is forgotten, as when the operator restarts, is waited for anew.
type waits struct {
	mutex sync.Mutex
	of    map[types.NamespacedName]map[string]time.Time
}

// since is for how long each of these has been waited for. All others of that fleet are forgotten.
func (w *waits) since(fleet types.NamespacedName, awaited []string, now time.Time) map[string]time.Duration {
	var waited map[string]time.Duration
	for name, began := range w.begun(fleet, awaited, now) {
		if waited == nil {
			waited = map[string]time.Duration{}
		}
		waited[name] = now.Sub(began)
	}
	return waited
}

// begun is since when each of these has been waited for. All others of that fleet are forgotten. The map is not changed any more.
func (w *waits) begun(fleet types.NamespacedName, awaited []string, now time.Time) map[string]time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(awaited) == 0 {
		delete(w.of, fleet)
		return nil
	}
	before, begun := w.of[fleet], map[string]time.Time{}
	for _, name := range awaited {
		began, known := before[name]
		if !known {
			began = now
		}
		begun[name] = began
	}
	if w.of == nil {
		w.of = map[types.NamespacedName]map[string]time.Time{}
	}
	w.of[fleet] = begun
	return begun
}

// drains keeps what gone pods said until a pass has told it.
type drains struct {
	mutex sync.Mutex
	of    map[types.NamespacedName][]drained
}

func (d *drains) add(cluster types.NamespacedName, more ...drained) {
	if len(more) == 0 {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.of == nil {
		d.of = map[types.NamespacedName][]drained{}
	}
	d.of[cluster] = append(d.of[cluster], more...)
}

// take are those of the pods that were made since the LiveStashCluster was, because one of the same name may have been deleted before, and
// those of the StatefulSet that it has, which it may have taken over.
func (d *drains) take(cluster types.NamespacedName, since time.Time, set types.UID) []drained {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	taken := d.of[cluster]
	delete(d.of, cluster)
	return slices.DeleteFunc(taken, func(one drained) bool { return one.made.Before(since) && (set == "" || one.set != set) })
}
