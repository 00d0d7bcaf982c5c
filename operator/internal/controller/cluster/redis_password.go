package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// A new password of the managed Redis goes this way, so that whoever starts or connects anew can log in at any time:
//
//  1. Redis is told to take the new one too, and its file of users gets both.
//  2. The Secret that pods read gets the new one, which rolls the fleet.
//  3. When the fleet has rolled, Redis forgets the old one.

// accessAnnotation is on both Secrets while they hold the same passwords of the operator and the exporter: the UID of the Secret that
// these were made for. A Secret that was lost is made again of the other one, and no server needs to be replaced.
const accessAnnotation = "livestash.dev/redis-access"

// usersDueAnnotation is on the Secret with Redis' users while they have more than one password: when the old ones may go at the
// earliest, as RFC 3339.
const usersDueAnnotation = "livestash.dev/old-passwords-until"

// keepOldPassword is longer than a kubelet takes to bring a changed Secret into a pod: a Redis container that restarts before
// that reads the users of before.
const keepOldPassword = 3 * time.Minute

// ensureManagedLogin does the first two steps.
func (r *Reconciler) ensureManagedLogin(ctx context.Context, p *pass, login redisLogin, found *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	c := p.cluster
	users, err := r.ownSecret(ctx, c, store.RedisAccessName(c))
	if err != nil {
		return nil, err
	}
	if users != nil {
		p.inputs.RedisAccessUID = accessOf(users)
		p.oldPasswords = users.Annotations[usersDueAnnotation] != ""
		kept := found != nil && found.Annotations[accessAnnotation] == accessOf(users)
		if kept && login.isIn(found) && users.Annotations[passwordAnnotation] == found.Annotations[passwordAnnotation] {
			return found, nil
		}
	}

	before, err := r.readSecret(ctx, c, store.RedisSecretName(c))
	if err != nil {
		return nil, err
	}
	password := login.choose(before)
	access, err := r.admit(ctx, p, before, password)
	if err != nil {
		return nil, err
	}
	if len(access.Fleet) > 1 {
		if err := r.tellRedis(ctx, p, access); err != nil {
			p.postpone(err)
			p.passwordWaits = true
			p.DueIn(lookAgain)
			if before.UID != "" {
				return &metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}, nil
			}
			p.lacking = true // there is no old password to go on with
		}
	}
	return r.writeLogin(ctx, p, login, before, password, &access)
}

// accessOf is for which Secret the passwords in this one were made.
func accessOf(users client.Object) string {
	return cmp.Or(users.GetAnnotations()[accessAnnotation], string(users.GetUID()))
}

// admit puts the password's digest into the Secret with Redis' users. One that was lost is made again of what the fleet's Secret has
// kept of it.
func (r *Reconciler) admit(ctx context.Context, p *pass, login *corev1.Secret, password string) (redis.Access, error) {
	c, hash := p.cluster, redis.PasswordHash(password)
	before, err := r.readSecret(ctx, c, store.RedisAccessName(c))
	if err != nil {
		return redis.Access{}, err
	}
	access := redis.ReadAccess(before)
	kept, isKept := redis.Kept(login)
	isKept = isKept && before.UID == ""
	switch {
	case isKept:
		access = kept
		access.Fleet = []string{redis.PasswordHash(string(login.Data[redis.PasswordKey]))} // which the pods have
	case before.UID == "":
		access = redis.NewAccess()
	}
	isNew := !slices.Contains(access.Fleet, hash)
	access.Fleet = slices.DeleteFunc(access.Fleet, func(old string) bool { return old == hash })
	access.Fleet = slices.Insert(access.Fleet, 0, hash)

	secret := redis.AccessSecret(c, access)
	secret.Annotations = map[string]string{passwordAnnotation: passwordDigest(password)}
	if isKept {
		secret.Annotations[accessAnnotation] = login.Annotations[accessAnnotation]
	}
	p.oldPasswords = len(access.Fleet) > 1
	if p.oldPasswords && isNew || isKept { // Redis may still take one that nobody knows any more
		secret.Annotations[usersDueAnnotation] = r.Clock.Now().Add(keepOldPassword).UTC().Format(time.RFC3339)
	}
	if err := r.writeSecret(ctx, before, secret); err != nil {
		return access, err
	}
	if before.UID == "" {
		p.inputs.RedisAccessUID = accessOf(secret)
		return access, nil
	}
	p.inputs.RedisAccessUID = accessOf(before)
	return access, nil
}

// tellRedis tells a Redis that runs which passwords the fleet may have. One that does not run yet reads them when it starts.
func (r *Reconciler) tellRedis(ctx context.Context, p *pass, access redis.Access) error {
	c := p.cluster
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: redis.Name(c)}, set)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up StatefulSet %s: %w", redis.Name(c), err)
	}
	address, _ := redis.Store(c, p.inputs, nil)
	told := redisAccess{Access: access}
	if err := r.readAuthorities(ctx, p, &told); err != nil {
		return err
	}
	login := told.login(address)
	err = r.Redis.SetPasswords(ctx, login, redis.FleetUser, access.Fleet)
	if errors.Is(err, fencing.ErrExpired) {
		return err
	}
	if err != nil {
		return &reconcile.Problem{
			Reason:  v1alpha1.ReasonRedisPasswordWaits,
			Message: fmt.Sprintf("Redis could not be told the fleet's new password, and the fleet keeps the old one until then: %v", err),
			Watched: true,
		}
	}
	return nil
}

// settlePasswords does the last step.
func (r *Reconciler) settlePasswords(ctx context.Context, p *pass) error {
	if !p.oldPasswords || p.passwordWaits {
		return nil
	}
	c := p.cluster
	rolled := p.hasRolled()
	if !rolled && meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStoreReady) {
		return nil // the StatefulSet's next change brings the next pass
	}
	before, err := r.readSecret(ctx, c, store.RedisAccessName(c))
	if err != nil {
		return err
	}
	access := redis.ReadAccess(before)
	if wait := timeIn(before.Annotations, usersDueAnnotation).Sub(r.Clock.Now()); rolled && wait > 0 {
		p.DueIn(wait)
		return nil
	}
	forgets := len(access.Fleet) > 1
	if rolled {
		access.Fleet = access.Fleet[:min(1, len(access.Fleet))]
	}
	// While the fleet rolls, Redis is told again: one that has restarted meanwhile may have read the users of before.
	if err := r.tellRedis(ctx, p, access); err != nil {
		p.postpone(err)
		p.DueIn(lookAgain)
		return nil
	}
	if !rolled {
		return nil
	}
	secret := redis.AccessSecret(c, access)
	secret.Annotations = map[string]string{usersDueAnnotation: ""}
	if err := r.writeSecret(ctx, before, secret); err != nil {
		return err
	}
	if forgets {
		r.Recorder.Eventf(c, nil, corev1.EventTypeNormal, v1alpha1.ReasonRedisPasswordChanged, "Rotate",
			"Redis takes only the new password now: every pod of the fleet has it")
	}
	return nil
}

// hasRolled is whether every pod of the fleet has the template of this pass.
func (p *pass) hasRolled() bool {
	set := p.seen.statefulSet
	status := set.Status
	return set.Spec.Template.Annotations[fleet.SecretsDigestAnnotation] == p.inputs.SecretsDigest &&
		set.Generation == status.ObservedGeneration &&
		status.CurrentRevision == status.UpdateRevision &&
		status.UpdatedReplicas == status.Replicas
}
