package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// holdSecretKeyBase ends the pass before anything is written when SECRET_KEY_BASE is another than the fleet's and nobody has said that
// what it costs is meant. Phoenix knows one at a time, so there is no way from one to the other that costs nothing.
func (r *Reconciler) holdSecretKeyBase(_ context.Context, p *pass) error {
	c := p.cluster
	note, source := keyBaseNote(p)
	p.inputs.SecretKeyBase = note
	before := p.seen.statefulSet.Annotations[fleet.SecretKeyBaseAnnotation]
	if before == "" || before == note {
		return nil
	}
	cost := "every cookie and token that is signed with the one before, so that users are logged out"
	if store.For(c).Recovers() {
		cost = fmt.Sprintf("all stashes (adapter %s), which nobody can read or find without the one before, and %s", c.Spec.Adapter, cost)
	}
	if c.Spec.AcceptLossOf == c.Spec.Adapter {
		p.keyBaseGivenUp = cost
		return nil
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonSecretKeyBaseChanged,
		Message: fmt.Sprintf("SECRET_KEY_BASE is now %s. Lost would be %s. Nothing is changed until you set spec.acceptLossOf to %s, or take the change back",
			source, cost, c.Spec.Adapter),
		Watched: true,
	}
}

// keyBaseNote is what the StatefulSet notes of SECRET_KEY_BASE, and where that comes from.
func keyBaseNote(p *pass) (note, source string) {
	ref := p.cluster.Spec.SecretKeyBase.Ref()
	if ref != nil {
		return render.Digest("key base " + string(p.secrets[*ref]))[:4], fmt.Sprintf("another one, in the key %s of Secret %s", ref.Key, ref.Name)
	}
	if fleet.NeedsGeneratedSecretKeyBase(p.cluster) {
		return generatedNote(fleet.SecretKeyBaseSecretName(p.cluster)), "another generated one (spec.secretKeyBaseGeneration)"
	}
	return generatedValue, "a generated one (spec.secretKeyBase)"
}

// tellKeyBaseGivenUp says what another SECRET_KEY_BASE costs, at the moment at which it does.
func (r *Reconciler) tellKeyBaseGivenUp(p *pass) {
	if p.keyBaseGivenUp != "" {
		r.Recorder.Eventf(p.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReasonStashesLost, "ChangeSecretKeyBase",
			"SECRET_KEY_BASE changes, and spec.acceptLossOf is %s: given up are %s", p.cluster.Spec.AcceptLossOf, p.keyBaseGivenUp)
	}
}
