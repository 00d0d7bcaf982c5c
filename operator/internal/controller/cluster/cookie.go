package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Nodes with two cookies do not talk to each other, so none could hand over to the next. Another cookie is therefore another key or
// another Secret, and pods with the new one are told the old one too, until no pod has that any more: see livestash_agent_cookie.

// generatedValue is what the StatefulSet notes of a value that the operator made.
const generatedValue = "generated"

// finishRotation has a fleet go on with the second cookie when the spec asks for a third one before every pod has the second: pods with the
// third would know nothing of those with the first.
func (r *Reconciler) finishRotation(ctx context.Context, p *pass) error {
	before := p.seen.statefulSet.Annotations[fleet.CookieAnnotation]
	has, previous := fleet.CookiesOf(&p.seen.statefulSet.Spec.Template.Spec)
	wanted := fleet.CookieRef(p.cluster)
	backOrThere := has == nil || *has == wanted || previous != nil && *previous == wanted && p.changes(*has)
	if before == "" || backOrThere || !p.hasPods() || !p.cluster.AgentEnabled() || p.unbegun(previous) || !p.changes(*has) && !p.rotates() {
		return nil
	}
	_, source := cookieNote(p)
	p.putOff = &reconcile.Problem{Reason: v1alpha1.ReasonCookieWaits, Watched: true, Message: fmt.Sprintf(
		"the Erlang cookie is to be %s, and the change to the one before it, which is in the key %s of Secret %s, comes first: the next one begins a minute after that", source, has.Key, has.Name)}
	generated := strings.HasPrefix(before, generatedValue)
	fleet.SetCookie(p.cluster, *has, generated)
	if !generated {
		return nil
	}
	return r.takeBack(ctx, p.cluster, []keepsake{keptSecret(p.cluster, has.Name, true)})
}

// unbegun is whether nothing has come yet of the rotation from that cookie: every pod has that one, and none is made with another. It may
// never come to anything, as when its template was rolled back.
func (p *pass) unbegun(previous *v1alpha1.SecretKeyReference) bool {
	set := p.seen.statefulSet
	holds := p.seen.settled() && set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && set.Status.UpdatedReplicas == 0
	return previous != nil && holds && !p.changes(*previous)
}

// changes is whether there are pods with another cookie than that one.
func (p *pass) changes(cookie v1alpha1.SecretKeyReference) bool {
	return slices.ContainsFunc(p.seen.members, func(m member) bool { return !hasCookie(m, cookie) })
}

// holdCookie lets a fleet that runs change its cookie in that way, and refuses any other.
func (r *Reconciler) holdCookie(ctx context.Context, p *pass) error {
	note, source := cookieNote(p)
	p.inputs.Cookie = note
	before := p.seen.statefulSet.Annotations[fleet.CookieAnnotation]
	has, previous := fleet.CookiesOf(&p.seen.statefulSet.Spec.Template.Spec)
	wanted := fleet.CookieRef(p.cluster)
	if has == nil || *has == wanted {
		p.inputs.PreviousCookie = cmp.Or(previous, p.previousTold(wanted))
		if before == note {
			return nil
		}
	}
	needs := store.For(p.cluster).Home() != store.Elsewhere
	switch {
	case before == "" || has == nil || !p.hasPods():
		return nil
	case *has == wanted:
		return cookieHeld(needs, "the Erlang cookie is now %s, and the pods run with another: nodes with two cookies do not talk to each other, so a rollout would lose "+
			"all stashes (adapter %s). Nothing is changed until you put the old cookie back. To change it, put the new one under another key or into another Secret and name that, "+
			"or, if the stashes may go, set spec.replicas to 0 until the pods are gone", source, p.cluster.Spec.Adapter)
	case !p.cluster.AgentEnabled():
		return cookieHeld(needs, "the Erlang cookie is to be %s, and the pods run with another: without the agent, nodes with two cookies do not talk to each other, so a rollout would lose "+
			"all stashes (adapter %s). Nothing is changed until you put the old cookie back, set spec.agent.enabled to true, or, if the stashes may go, set spec.replicas to 0 until the pods are gone",
			source, p.cluster.Spec.Adapter)
	case previous != nil && *previous == wanted && p.changes(*has): // the way back: those with the other cookie know this one, until all have the other
	case p.unbegun(previous):
		has = previous
	default:
		if err := r.checkPreviousCookie(ctx, p, *has, before); err != nil {
			return err
		}
	}
	p.inputs.PreviousCookie = has
	return nil
}

// previousTold is what the status says of the cookie before that one, where somebody has deleted the StatefulSet without its pods.
func (p *pass) previousTold(cookie v1alpha1.SecretKeyReference) *v1alpha1.SecretKeyReference {
	if said := p.cluster.Status.Cookie; p.seen.statefulSet.UID == "" && said != nil && said.SecretRef == cookie {
		return said.Previous
	}
	return nil
}

// hasPods is whether there are pods, and are to be some.
func (p *pass) hasPods() bool { return len(p.seen.members) > 0 && p.cluster.DesiredReplicas() > 0 }

// settleCookie is more than agents need to find out that every pod has the new cookie, and to go over to it.
const settleCookie = time.Minute

// rotates is whether a rotation is not over, or agents may not know yet that it is.
func (p *pass) rotates() bool {
	said := p.cluster.Status.Cookie
	if said == nil || said.RotationStarted == nil {
		return false
	}
	if said.RotationFinished == nil {
		return true
	}
	left := settleCookie - p.seen.now.Sub(said.RotationFinished.Time)
	if left > 0 {
		p.DueIn(left)
	}
	return left > 0
}

// changesCookie is whether a rotation begins or is not over. Two pods that boot at the same time would find each other before their agents do,
// and nobody else: so until then pods are added one by one.
func (p *pass) changesCookie() bool {
	has, _ := fleet.CookiesOf(&p.seen.statefulSet.Spec.Template.Spec)
	return p.inputs.PreviousCookie != nil && has != nil && (p.rotates() || p.changes(*has) || *has != fleet.CookieRef(p.cluster))
}

// checkPreviousCookie refuses a rotation when the pods' own cookie is no longer where it was: new pods could not be told.
func (r *Reconciler) checkPreviousCookie(ctx context.Context, p *pass, has v1alpha1.SecretKeyReference, note string) error {
	if has.Name == fleet.SecretName(p.cluster) || note == generatedNote(has.Name) {
		return nil // it cannot be changed
	}
	value, err := r.secretValue(ctx, p.cluster.Namespace, has)
	if err != nil || digestNote(value) == note {
		return err
	}
	return cookieHeld(true, "the Erlang cookie of the pods is no longer in the key %s of Secret %s, so new pods could not be told: put it back there, and leave it until status.cookie.previous is gone",
		has.Key, has.Name)
}

// cookieHeld is the problem, if it is one.
func cookieHeld(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return &reconcile.Problem{Reason: v1alpha1.ReasonCookieChanged, Message: fmt.Sprintf(format, args...), Watched: true}
}

// hasCookie is whether the pod was made with the cookie that is there.
func hasCookie(m member, ref v1alpha1.SecretKeyReference) bool {
	cookie, _ := fleet.CookiesOf(&m.Spec)
	return cookie != nil && *cookie == ref
}

// cookieNote is what the StatefulSet notes of the cookie, and where that comes from.
func cookieNote(p *pass) (note, source string) {
	ref := p.cluster.Spec.Clustering.Cookie.Ref()
	if ref == nil && fleet.NeedsGeneratedCookie(p.cluster) {
		return generatedNote(fleet.CookieSecretName(p.cluster)), "another generated one (spec.clustering.cookieGeneration)"
	}
	if ref == nil {
		return generatedValue, "a generated one (spec.clustering.cookie)"
	}
	return digestNote(p.secrets[*ref]), fmt.Sprintf("the one in the key %s of Secret %s", ref.Key, ref.Name)
}

func generatedNote(secret string) string { return generatedValue + "/" + secret }

// digestNote is what is noted of a user's own cookie. Two bytes of a digest tell a change, and are of no use to who guesses.
func digestNote(cookie []byte) string { return render.Digest("cookie " + string(cookie))[:4] }

// tellCookie is what the status says of the cookie, of which it said before. Nil: there are no pods yet.
func (p *pass) tellCookie(before *v1alpha1.CookieStatus) *v1alpha1.CookieStatus {
	set := p.seen.statefulSet
	cookie, previous := fleet.CookiesOf(&set.Spec.Template.Spec)
	if cookie == nil {
		return nil
	}
	now := &v1alpha1.CookieStatus{SecretRef: *cookie}
	switch {
	case before == nil:
	case before.SecretRef == *cookie:
		now.Made, now.RotationStarted, now.RotationFinished = before.Made, before.RotationStarted, before.RotationFinished
	default:
		now.RotationStarted = ptr.To(seconds(p.seen.now))
	}
	if p.cookieMade != nil && fleet.CookieRef(p.cluster) == *cookie {
		now.Made = p.cookieMade
	}
	now.Previous = p.otherCookie(*cookie)
	if now.Previous != nil && now.RotationStarted == nil {
		now.RotationStarted = ptr.To(seconds(p.seen.now)) // it was begun by a LiveStashCluster that is gone
	}
	if now.RotationStarted == nil || now.RotationFinished != nil {
		return now
	}
	// Until the new revision is noted as the current one, a pod that comes back in mode Hold has the old cookie.
	if now.Previous == nil && hasRolledOut(set) && set.Status.CurrentRevision == set.Status.UpdateRevision {
		now.RotationFinished = ptr.To(seconds(p.seen.now))
		p.DueIn(settleCookie) // the next rotation may wait for that, and a status that is written brings no pass
		return now
	}
	now.Previous = cmp.Or(now.Previous, previous)
	return now
}

// otherCookie is another one than that, which pods have. Nil: none has.
func (p *pass) otherCookie(cookie v1alpha1.SecretKeyReference) *v1alpha1.SecretKeyReference {
	for _, m := range p.seen.members {
		if other, _ := fleet.CookiesOf(&m.Spec); other != nil && *other != cookie {
			return other
		}
	}
	return nil
}

// noteCookie notes when the Secret with the cookie was made.
func (p *pass) noteCookie(secret *metav1.ObjectMeta) {
	if secret.Name == fleet.CookieRef(p.cluster).Name && !secret.CreationTimestamp.IsZero() {
		p.cookieMade = ptr.To(secret.CreationTimestamp)
	}
}

// tellRotation says when a rotation begins and ends.
func (r *Reconciler) tellRotation(before, now *v1alpha1.LiveStashCluster) {
	was, is := before.Status.Cookie, now.Status.Cookie
	if was == nil || is == nil {
		return
	}
	if was.SecretRef != is.SecretRef {
		from := ptr.Deref(is.Previous, was.SecretRef)
		r.Recorder.Eventf(now, nil, corev1.EventTypeNormal, v1alpha1.ReasonCookieRotating, "Rotate",
			"Pods are replaced one by one by those with the Erlang cookie of Secret %s, which can talk to those with the one of Secret %s", is.SecretRef.Name, from.Name)
	}
	if was.RotationFinished == nil && is.RotationFinished != nil {
		r.Recorder.Eventf(now, nil, corev1.EventTypeNormal, v1alpha1.ReasonCookieRotated, "Rotate",
			"Every pod has the Erlang cookie of Secret %s: within seconds, the one before it opens nothing any more", is.SecretRef.Name)
	}
}
