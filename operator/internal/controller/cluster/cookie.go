package cluster

import (
	"context"
	"fmt"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// generatedCookie is what the StatefulSet notes of a cookie that the operator made.
const generatedCookie = "generated"

// holdCookie refuses another cookie than the one that pods run with, when they hold stashes: nodes with two cookies do not talk to each
// other, so none could hand over to the next.
func (r *Reconciler) holdCookie(_ context.Context, p *pass) error {
	now, source := cookieNote(p)
	p.inputs.Cookie = now
	before := p.seen.statefulSet.Annotations[fleet.CookieAnnotation]
	if before == "" || before == now || len(p.seen.members) == 0 || p.cluster.DesiredReplicas() == 0 || store.For(p.cluster).Home() == store.Elsewhere {
		return nil
	}
	return &reconcile.Problem{
		Reason: v1alpha1.ReasonCookieChanged,
		Message: fmt.Sprintf("the Erlang cookie is now %s, and the pods run with another: nodes with two cookies do not talk to each other, so a rollout would lose "+
			"all stashes (adapter %s). Nothing is changed until you put the old cookie back, or, if the stashes may go, set spec.replicas to 0 until the pods are gone",
			source, p.cluster.Spec.Adapter),
		Watched: true,
	}
}

// cookieNote is what the StatefulSet notes of the cookie, and where that comes from. Two bytes of a digest tell a change, and are
// of no use to who guesses.
func cookieNote(p *pass) (note, source string) {
	ref := p.cluster.Spec.Clustering.Cookie.Ref()
	if ref == nil {
		return generatedCookie, "a generated one (spec.clustering.cookie)"
	}
	return render.Digest("cookie " + string(p.secrets[*ref]))[:4], fmt.Sprintf("the one in the key %s of Secret %s", ref.Key, ref.Name)
}
