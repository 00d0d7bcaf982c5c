package cluster

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// missingFor is after how long it is looked up why a pod is not made.
const missingFor = 3 * time.Second

// explainRefusals finds out what the API server says when a pod is not made, for example a quota's words: one of the fleet, of its Redis,
// or of the Job that runs before a rollout. Only events tell that, and they are looked for only while a pod is missing.
func (r *Reconciler) explainRefusals(ctx context.Context, p *pass) error {
	if absent := p.seen.longestAbsent(p.cluster.Name); absent >= missingFor && p.seen.settled() && !p.plan.Forgoes {
		if err := r.explain(ctx, p, "StatefulSet", p.seen.statefulSet, absent); err != nil {
			return err
		}
	}
	if job := p.seen.beforeJob; job != nil && len(p.seen.beforePods) == 0 && finished(job) == "" {
		if err := r.explain(ctx, p, "Job", job, p.seen.now.Sub(job.CreationTimestamp.Time)); err != nil {
			return err
		}
	}
	return r.explainRedis(ctx, p)
}

// explainRedis does that for the servers that Kubernetes runs for the fleet's store.
func (r *Reconciler) explainRedis(ctx context.Context, p *pass) error {
	var short []string
	sets := map[string]*appsv1.StatefulSet{}
	for _, name := range redis.StatefulSets(p.cluster) {
		set := &appsv1.StatefulSet{}
		err := r.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: name}, set)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("looking up StatefulSet %s: %w", name, err)
		}
		if err == nil && set.Generation == set.Status.ObservedGeneration && set.Status.Replicas < ptr.Deref(set.Spec.Replicas, 1) {
			short, sets[name] = append(short, name), set
		}
	}
	for name, absent := range r.redisAbsent.since(client.ObjectKeyFromObject(p.cluster), short, p.seen.now) {
		if err := r.explain(ctx, p, "StatefulSet", sets[name], absent); err != nil {
			return err
		}
	}
	return nil
}

// explain notes what the API server said last, if anything, of a pod that the object should have had for that long and has not.
func (r *Reconciler) explain(ctx context.Context, p *pass, kind string, object client.Object, absent time.Duration) error {
	if absent < missingFor {
		p.DueIn(missingFor - absent)
		return nil
	}
	p.DueIn(lookAgain)
	said, err := reconcile.RefusedPod(ctx, r.Live, object.GetNamespace(), kind, p.seen.now.Add(-absent-missingFor), object.GetUID())
	if p.refusal == "" {
		p.refusal = said
	}
	return err
}
