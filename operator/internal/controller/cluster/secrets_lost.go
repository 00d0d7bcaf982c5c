package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Pods that run know the values of a generated Secret that is deleted. With others, new pods would not talk to those that run, nor read what
// those have signed. So no other Secret is made for a fleet until it is said that the values may be lost.

// lostSecrets are the generated Secrets that pods read and that are gone, each with the keys that they read.
func (r *Reconciler) lostSecrets(ctx context.Context, p *pass) (map[string][]string, error) {
	lost := map[string][]string{}
	for name, keys := range p.generatedInUse() {
		is, err := r.isLost(ctx, p.cluster, name)
		if err != nil {
			return nil, err
		}
		if is {
			lost[name] = keys
		}
	}
	return lost, nil
}

// generatedInUse are the generated Secrets that pods read, with the keys. New pods are told the previous cookie as long as there are pods with it.
func (p *pass) generatedInUse() map[string][]string {
	if !apply.Owns(p.cluster, p.seen.statefulSet) {
		return nil
	}
	pods := &p.seen.statefulSet.Spec.Template.Spec
	has, _ := fleet.CookiesOf(pods)
	rotating := has != nil && p.changes(*has)
	return fleet.GeneratedIn(p.cluster, pods, rotating)
}

func (r *Reconciler) isLost(ctx context.Context, c *v1alpha1.LiveStashCluster, name string) (bool, error) {
	known, err := r.secretMetadata(ctx, c.Namespace, name)
	if err != nil || known != nil {
		return false, err
	}
	live := &corev1.Secret{}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Secret %s: %w", name, err)
	case apply.Owns(c, live):
		return false, r.label(ctx, c, live)
	}
	return false, &reconcile.Problem{
		Reason:  v1alpha1.ReasonSecretLost,
		Message: fmt.Sprintf("Secret %s, which the pods need, is there without the labels by which the operator takes it back: `%s`", name, takeOver(c, name)),
	}
}

// givesUp is whether the values may be lost, and others may be made now.
func (p *pass) givesUp(lost map[string][]string) bool {
	return p.cluster.Spec.AcceptLossOf == p.cluster.Spec.Adapter && !p.splits(lost)
}

// splits is whether other values would part pods that have to hand over to each other.
func (p *pass) splits(lost map[string][]string) bool {
	if store.For(p.cluster).Home() == store.Elsewhere || len(p.seen.members) == 0 {
		return false
	}
	has, previous := fleet.CookiesOf(&p.seen.statefulSet.Spec.Template.Spec)
	return has != nil && lost[has.Name] != nil || previous != nil && lost[previous.Name] != nil
}

// tellLost says what to do.
func (p *pass) tellLost(lost map[string][]string) error {
	var what []string
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		what = append(what, fmt.Sprintf("Secret %s (%s)", name, strings.Join(slices.Sorted(slices.Values(lost[name])), ", ")))
	}
	giveUp := fmt.Sprintf("set spec.acceptLossOf to %s", p.cluster.Spec.Adapter)
	if p.splits(lost) {
		giveUp += ", and spec.replicas to 0 until the pods are gone"
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonSecretLost,
		Message: fmt.Sprintf("lost: %s. Pods run with the values, nothing is changed until they are back, and a pod that restarts waits for them. To lose nothing, make the Secret "+
			"again from a backup or from what a pod has, with the labels %s=%s and %s=%s. If all sessions may be lost, %s: then other values are generated",
			strings.Join(what, ", "), render.ClusterLabel, p.cluster.Name, render.ManagedByLabel, render.Operator, giveUp),
	}
}

// checkGenerated reads the generated Secrets before pods get other ones than they have: what somebody has put back may be empty.
func (r *Reconciler) checkGenerated(ctx context.Context, p *pass) error {
	if p.inputs.SecretsDigest == p.seen.statefulSet.Spec.Template.Annotations[fleet.SecretsDigestAnnotation] {
		return nil
	}
	for name, keys := range p.generatedInUse() {
		live := &corev1.Secret{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: name}, live)
		if apierrors.IsNotFound(err) {
			continue // it was given up, and no new pod reads it
		}
		if err != nil {
			return fmt.Errorf("reading Secret %s: %w", name, err)
		}
		for _, key := range keys {
			if len(live.Data[key]) == 0 {
				return &reconcile.Problem{
					Reason:  v1alpha1.ReasonSecretLost,
					Message: fmt.Sprintf("Secret %s has no value under the key %s, and pods run with one: delete it, and make it again with that value", name, key),
				}
			}
		}
	}
	return nil
}
