package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

const (
	// fewConnections are not too many for any pod, whatever its share is.
	fewConnections = 50
	// defaultLoadFactor is what the API server sets for spec.rollout.maxLoadFactor.
	defaultLoadFactor = 2
)

// leadsTo is the revision of the only pods that the client Service leads to. Empty: it leads to all that are ready.
func (r *Reconciler) leadsTo(ctx context.Context, c *v1alpha1.LiveStashCluster) (string, error) {
	service := &corev1.Service{}
	err := r.Get(ctx, client.ObjectKeyFromObject(c), service)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("looking up the Service: %w", err)
	}
	if err != nil || !metav1.IsControlledBy(service, c) && !isLeft(c, render.ServiceType.Kind, service) {
		return "", nil
	}
	return service.Spec.Selector[appsv1.StatefulSetRevisionLabel], nil
}

// leadUsers decides which pods the client Service leads to. It is written before a pod goes, whose drain waits until proxies know.
func (r *Reconciler) leadUsers(_ context.Context, p *pass) error {
	switch {
	case !p.seen.heard():
		p.inputs.Revision = p.seen.revision // as after a restart of the operator
	case p.plan.Apart && p.told.Settled:
		p.inputs.Revision = p.seen.aim(p.told.Back)
	case p.plan.Apart:
		p.inputs.Revision = p.seen.revision // which one is wanted is not known yet
	case p.seen.revision != "":
		alone := p.told
		alone.Crowded = ""
		if rollout.Next(alone).Apart {
			r.Recorder.Eventf(p.cluster, nil, corev1.EventTypeNormal, v1alpha1.ReasonUsersSpread, "Rollout",
				"users get to all ready pods again, and who gets to an old one is moved once more: %s", p.told.Crowded)
		}
	}
	if !p.seen.serves(p.inputs.Revision) {
		p.inputs.Revision = "" // they are never led to nobody
	}
	return nil
}

// awaitService waits until it is known where the client Service leads to now, if that has changed: the next pass may keep it.
func (r *Reconciler) awaitService(ctx context.Context, p *pass, applied client.Object) error {
	if applied.GetObjectKind().GroupVersionKind().Kind != "Service" || applied.GetName() != p.cluster.Name || p.inputs.Revision == p.seen.revision {
		return nil
	}
	return reconcile.Await(ctx, r.Client, applied, &corev1.Service{})
}

// serves is whether a pod of the revision is ready.
func (o *observation) serves(revision string) bool {
	return slices.ContainsFunc(o.members, func(m member) bool { return o.ready[m.Name] && m.revision() == revision })
}

// freeUsers has the client Service lead to all pods again when none of those that it leads to is ready. That is for a pass that has ended
// early, as with spec.paused: nothing else is changed then, and nobody else would let users in.
func (r *Reconciler) freeUsers(ctx context.Context, p *pass) error {
	if p.seen.revision == "" || p.seen.serves(p.seen.revision) {
		return nil
	}
	service := &corev1.Service{}
	service.Namespace, service.Name = p.cluster.Namespace, p.cluster.Name
	all := fmt.Appendf(nil, `{"spec":{"selector":{%q:null}}}`, appsv1.StatefulSetRevisionLabel)
	if err := r.Patch(ctx, service, client.RawPatch(types.MergePatchType, all), apply.FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("leading users to all pods: %w", err)
	}
	return nil
}

// aim is the revision that all pods are to have.
func (o *observation) aim(back bool) string {
	if back {
		return o.statefulSet.Status.CurrentRevision
	}
	return o.statefulSet.Status.UpdateRevision
}

// crowded says why pods of the revision are to be sent no more users than the others. Empty: they may get all who connect. While a pod
// stops, its users are on their way, and it stays as it was. When pods of the revision get no more than others, they must be well
// below the limit to get all again, so that the Service does not change to and fro.
func (o *observation) crowded(c *v1alpha1.LiveStashCluster, desired int32, revision string) string {
	factor, err := strconv.ParseFloat(c.Spec.Rollout.MaxLoadFactor, 64)
	if err != nil {
		factor = defaultLoadFactor
	}
	limit := factor
	if o.revision == "" {
		limit = (1 + factor) / 2
	}
	all, most, busiest := o.connections(revision)
	share := float64(all) / float64(max(1, desired))
	switch stops := o.stops(); {
	case factor <= 1:
		return "spec.rollout.maxLoadFactor is 1"
	case stops != "" && o.revision == "":
		return stops + " is stopping, and its users go to all pods"
	case stops != "":
		return ""
	case all < 0:
		return busiest + " does not tell how many connections it has"
	case most < fewConnections, float64(most) <= limit*share:
		return ""
	}
	return fmt.Sprintf("%s has %d connections, %.1f times its share, and spec.rollout.maxLoadFactor is %g", busiest, most, float64(most)/share, factor)
}

// stops is a pod that is being drained. Empty: there is none.
func (o *observation) stops() string {
	for i := range o.members {
		if m := &o.members[i]; m.terminating() && !o.lost(m) {
			return m.Name
		}
	}
	return ""
}

// connections are those of all pods that serve, and the most that one of the revision has: busiest. When one does not tell, all is -1, and
// busiest is that one.
func (o *observation) connections(revision string) (all, most int64, busiest string) {
	for i := range o.members {
		m := &o.members[i]
		unasked := m.agentPort != 0 && m.answer.Err == nil && m.answer.At.IsZero()
		if !o.ready[m.Name] || unasked {
			continue
		}
		if m.answer.Err != nil || m.answer.Status.Sockets == nil {
			return -1, 0, m.Name
		}
		sockets := *m.answer.Status.Sockets
		all += sockets
		if m.revision() == revision && sockets > most {
			most, busiest = sockets, m.Name
		}
	}
	return all, most, busiest
}
