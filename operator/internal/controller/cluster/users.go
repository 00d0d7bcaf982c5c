package cluster

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
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
	if err != nil || !metav1.IsControlledBy(service, c) {
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
	return nil
}

// aim is the revision that all pods are to have.
func (o *observation) aim(back bool) string {
	if back {
		return o.statefulSet.Status.CurrentRevision
	}
	return o.statefulSet.Status.UpdateRevision
}

// crowded says why pods of the revision are to be sent no more users than the others. Empty: they may get all who connect. When they
// get no more than others, they must be well below the limit to get all again, so that the Service does not change to and fro.
func (o *observation) crowded(c *v1alpha1.LiveStashCluster, desired int32, revision string) string {
	factor, err := strconv.ParseFloat(c.Spec.Rollout.MaxLoadFactor, 64)
	if err != nil {
		factor = defaultLoadFactor
	}
	if factor <= 1 {
		return "spec.rollout.maxLoadFactor is 1"
	}
	limit := factor
	if o.revision == "" {
		limit = (1 + factor) / 2
	}
	var all, most int64
	var busiest string
	for i := range o.members {
		m := &o.members[i]
		sockets := m.answer.Status.Sockets
		switch {
		case !o.ready[m.Name] && !m.terminating(), m.answer.Err == nil && m.answer.At.IsZero():
			continue
		case m.answer.Err == nil && sockets != nil:
			all += *sockets
		case !m.terminating():
			return m.Name + " does not tell how many connections it has"
		}
		if sockets != nil && !m.terminating() && m.revision() == revision && *sockets > most {
			most, busiest = *sockets, m.Name
		}
	}
	share := float64(all) / float64(max(1, desired))
	if most < fewConnections || float64(most) <= limit*share {
		return ""
	}
	return fmt.Sprintf("%s has %d connections, %.1f times its share, and spec.rollout.maxLoadFactor is %g", busiest, most, float64(most)/share, factor)
}
