package cluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// newsOf is how old the words of all other agents may be when a pod is taken that can keep users.
	newsOf = 3 * time.Second
	// settling is how long all others must have been ready when such a pod is taken: stores go on joining for a moment.
	settling = 5 * time.Second
	// lookAtRollout is how often a rollout that waits is looked at: what agents say is no event.
	lookAtRollout = time.Second
	// soon is how long a pod that cannot keep users is expected to be able any second.
	soon = time.Minute
)

// planRollout decides what is to be done about the pods: how many there are to be, and which one goes next.
func (r *Reconciler) planRollout(ctx context.Context, p *pass) error {
	p.planned = true
	seen := p.rollout(&p.seen)
	p.told, p.plan = seen, rollout.Next(seen)
	sure, err := r.sure(ctx, p)
	if err != nil {
		return err
	}
	if !sure {
		p.plan, p.unsure = p.plan.Wait(seen), true
	}
	p.inputs.Rejected = note(p.seen.statefulSet, p.seen.verdict(p.cluster, p.desired()))
	p.inputs.Replicas, p.inputs.Start, p.inputs.Replacing = p.plan.Replicas, p.plan.Start, p.plan.Mode == rollout.Replace
	p.inputs.HeldPorts = p.seen.heldPorts()
	absent := p.seen.longestAbsent(p.cluster.Name)
	if absent >= missingFor && p.seen.settled() && !p.plan.Forgoes {
		return nil // it is looked up why: see explainRefusals
	}
	if p.rolls() || p.unsure || absent > 0 {
		p.DueIn(lookAtRollout)
	}
	return nil
}

// desired is how many pods there should be.
func (p *pass) desired() int32 {
	if p.storeChanging() && p.before.withholds() == "" {
		return 0
	}
	return p.cluster.DesiredReplicas()
}

// rollout is what the engine is told of what was seen.
func (p *pass) rollout(seen *observation) rollout.Seen {
	told := seen.rollout(p.cluster, p.desired())
	told.Withheld, told.OneByOne = p.before.withholds(), p.changesCookie()
	return told
}

// rollout is what the engine is told.
func (o *observation) rollout(c *v1alpha1.LiveStashCluster, desired int32) rollout.Seen {
	seen := rollout.Seen{
		Desired:  desired,
		Replicas: o.replicas(), Start: o.start(),
		Exists:  o.statefulSet.UID != "",
		Settled: o.settled(),
		Current: o.statefulSet.Status.CurrentRevision == o.statefulSet.Status.UpdateRevision,
		Surge:   rollout.Surge(c.Spec.Rollout.Surge),
		Apart:   o.revision != "",
	}
	if c.Spec.Rollout.Paused {
		seen.Paused = "spec.rollout.paused is true: no pod is replaced until it is removed or set to false"
	}
	judged := o.verdict(c, desired)
	seen.Canary, seen.Trial, seen.Back = judged.canary, judged.trial, judged.rejected != ""
	if o.statefulSet.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		seen.Mode = rollout.Replace
	}
	updated := func(m *member) bool { return m.updated }
	if seen.Back {
		updated = func(m *member) bool { return m.revision() == o.statefulSet.Status.CurrentRevision }
	}
	seen.Refused = o.longestAbsent(c.Name) >= tellAfter
	seen.Crowded = o.crowded(c, desired, o.aim(seen.Back))
	// In mode Hold pods are made of the template before on purpose, unless the fleet goes back to that one.
	abandons := o.proven(updated) && (seen.Mode == rollout.Replace || seen.Back)
	for i := range o.members {
		m := &o.members[i]
		unable := o.unable(c, m)
		pod := rollout.Pod{
			Name: m.Name, Ordinal: m.ordinal, Updated: updated(m), Terminating: m.terminating(), Able: unable == "",
			Broken:  m.broken(),
			GivenUp: o.givenUp(m),
			Moves:   o.full == "" && o.emptied[m.Spec.NodeName] != "",
			NoRoom:  m.roomless(),
		}
		if unable != "" {
			pod.Why = m.Name + " " + unable
		}
		// A pod that waits for what its template promised, such as a Redis that takes its password, need not be waited for when
		// another template is wanted, unless that one has turned out to be no better.
		if pod.Broken == "" && abandons && !pod.Updated && !m.terminating() && m.unstarted() {
			pod.Broken = m.Name + " has not started, and its template is no longer the wanted one"
		}
		seen.Pods = append(seen.Pods, pod)
	}
	return seen
}

// proven is whether no pod that has the wanted template speaks against it.
func (o *observation) proven(updated func(*member) bool) bool {
	return !slices.ContainsFunc(o.members, func(m member) bool { return updated(&m) && (m.broken() != "" || o.givenUp(&m)) })
}

// givenUp is whether the pod is waited for no longer.
func (o *observation) givenUp(m *member) bool {
	return o.lost(m) || !m.terminating() && o.waited[m.wait()] > patience
}

// replacePods deletes the pods whose turn it is. The StatefulSet controller makes them anew.
func (r *Reconciler) replacePods(ctx context.Context, p *pass) error {
	if len(p.plan.Delete) == 0 || p.wroteStatefulSet || p.unwritten {
		return nil
	}
	for i := range p.seen.members {
		m := &p.seen.members[i]
		if !slices.Contains(p.plan.Delete, m.Name) {
			continue
		}
		err := r.Delete(ctx, m.Pod, client.Preconditions{UID: &m.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s, whose turn it is: %w", m.Name, err)
		}
	}
	return nil
}

// sure is whether a plan that takes a pod in which users may be is still the one to make: Redis stays where it is, every other agent
// has just spoken, and with what the API server has, which the cache may not know yet, the plan is the same.
func (r *Reconciler) sure(ctx context.Context, p *pass) (bool, error) {
	if p.plan.Takes == "" {
		return true, nil
	}
	if p.redisMoves {
		return false, nil
	}
	for i := range p.seen.members {
		m := &p.seen.members[i]
		if m.Name == p.plan.Takes || m.agentPort == 0 || p.seen.unable(p.cluster, m) != "" {
			continue
		}
		if p.seen.now.Sub(m.answer.At) > newsOf || m.justReady(p.seen.now) {
			return false, nil
		}
	}
	live := &corev1.PodList{}
	err := r.Live.List(ctx, live, client.InNamespace(p.cluster.Namespace), client.MatchingLabels(render.SelectorLabels(p.cluster)))
	if err != nil {
		return false, fmt.Errorf("reading the pods before one goes: %w", err)
	}
	now, err := r.observeMembers(ctx, r.Live, p.cluster, live.Items)
	if err != nil {
		return false, err
	}
	now.waited, now.served, now.placement, now.revision = p.seen.waited, p.seen.served, p.seen.placement, p.seen.revision
	return reflect.DeepEqual(rollout.Next(p.rollout(&now)), p.plan), nil
}

// losesStashes says why a rollout of the fleet costs stashes as it is configured. Empty: it does not.
func losesStashes(c *v1alpha1.LiveStashCluster) string {
	switch {
	case store.For(c).Home() == store.Elsewhere || c.DesiredReplicas() == 0:
		return ""
	case !c.AgentEnabled():
		return fmt.Sprintf("spec.agent.enabled is false: every pod that a rollout replaces loses the stashes that it holds (adapter %s): enable the agent", c.Spec.Adapter)
	case c.DesiredReplicas() == 1 && c.Spec.Rollout.Surge == v1alpha1.SurgeNever:
		return fmt.Sprintf("spec.replicas is 1 and spec.rollout.surge is Never: every rollout loses all stashes (adapter %s), because no other pod could take them: set surge to Stays or Auto, or replicas to 2", c.Spec.Adapter)
	}
	return ""
}

// outlivesStashes says why users come back from a rollout too late for their stashes, though none is lost. Empty: they do not.
func outlivesStashes(c *v1alpha1.LiveStashCluster) string {
	ttl, keepFor := time.Duration(c.TTLSeconds())*time.Second, ptr.Deref(c.Spec.Drain.KeepFor, metav1.Duration{}).Duration
	if adapter := store.For(c); adapter.Renewed() || ttl >= keepFor || c.DesiredReplicas() == 0 {
		return ""
	}
	return fmt.Sprintf("spec.ttl is %s: with adapter %s a stash ages from the moment it was made, in the browser, where nobody can renew or keep it: a rollout costs everybody the state "+
		"whose last stash is older, and those whose tab is hidden for longer: set ttl to as long as users may be away, at least to spec.drain.keepFor, which is %s", ttl, c.Spec.Adapter, keepFor)
}

// tellDrained makes an event of each pod that said how its drain ended. They name the pod: of several events that differ by their text
// alone, Kubernetes' client counts the others, and only the first one's text is told.
func (r *Reconciler) tellDrained(c *v1alpha1.LiveStashCluster, reports []drained) {
	for _, d := range reports {
		kind, rest := corev1.EventTypeNormal, ""
		if d.report.NotHandedOff > 0 {
			kind, rest = corev1.EventTypeWarning, fmt.Sprintf(", %d could not be: %s", d.report.NotHandedOff, d.report.Reason)
		}
		if d.report.OtherVersion > 0 {
			kind, rest = corev1.EventTypeWarning, fmt.Sprintf(", %d of them from another version of the application, whose "+
				"pages may refuse them (LiveStash's option version)%s", d.report.OtherVersion, rest)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: d.pod}}
		r.Recorder.Eventf(c, pod, kind, v1alpha1.ReasonPodDrained, "Drain", "%s had %d stashes: %d sockets closed, %d stashes handed over%s",
			d.pod, d.report.SessionsBefore, d.report.SocketsClosed, d.report.HandedOff, rest)
	}
}

// tellLoss says what ends with the last pod, when the stashes are in the pods.
func (r *Reconciler) tellLoss(c *v1alpha1.LiveStashCluster, because string) {
	if c.Status.Stashes == 0 || store.For(c).Home() == store.Elsewhere {
		return
	}
	r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, v1alpha1.ReasonStashesLost, "Stop",
		"%s: the %d stashes that its pods hold in memory (adapter %s) end with the last pod", because, c.Status.Stashes, c.Spec.Adapter)
}
