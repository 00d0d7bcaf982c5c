package cluster

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// Redis changes passwords in a Redis that runs, and which of two servers has the stashes.
type Redis interface {
	SetPasswords(ctx context.Context, login redisadmin.Login, user string, hashes []string) error
	Look(ctx context.Context, login redisadmin.Login) (succession.Says, error)
	SetPrimary(ctx context.Context, login redisadmin.Login, name string) error
	Follow(ctx context.Context, login, primary redisadmin.Login, password string) error
	FailOver(ctx context.Context, login redisadmin.Login) error
	Abort(ctx context.Context, login redisadmin.Login) error
	Promote(ctx context.Context, login redisadmin.Login) error
	Renew(ctx context.Context, login redisadmin.Login, file string, want []byte) (bool, error)
}

// lookAgain is how soon something is looked up again that is missing and cannot be watched.
const lookAgain = 10 * time.Second

// What the Secret with the URL of Redis says of itself, so that a pass over a fleet with nothing due does not read it.
const (
	// urlAnnotation is the URL with another password.
	urlAnnotation = "livestash.dev/url"
	// passwordAnnotation is a digest of the password.
	passwordAnnotation = "livestash.dev/password"
)

// prepareStore sees to it that the store admits the fleet before pods are told how to log in, and that pods with another
// store are gone before there are new ones.
func (r *Reconciler) prepareStore(ctx context.Context, p *pass) error {
	c := p.cluster
	if err := r.checkStorage(ctx, p); err != nil {
		return err
	}
	if err := r.ensureRedisLogin(ctx, p); err != nil {
		return err
	}
	address, digest := p.store()
	p.oldStorePods = p.seen.usersOfAnotherStore(digest)
	p.inputs.StoreDigest = digest
	if len(p.oldStorePods) > 0 {
		p.DueIn(time.Second)
		return nil // the status tells of the old store until the last pod that uses it is gone
	}
	p.redis = redisStatus(c, address)
	if p.redis != nil {
		p.redis.VolumeSize = p.volumeSize
	}
	return nil
}

// store is the address of the Redis that is wanted, and the digest that tells it from others. Both are empty with other adapters.
func (p *pass) store() (address, digest string) {
	var url []byte
	if external := store.ExternalRedis(p.cluster); external != nil && external.URLSecretRef != nil {
		url = p.secrets[*external.URLSecretRef]
	}
	return redis.Store(p.cluster, p.inputs, url)
}

// storeChanging is whether no pod is made because pods with another store are still there. Other adapters do not find stashes
// of Redis, old or new: with them, pods may go over one by one.
func (p *pass) storeChanging() bool { return len(p.oldStorePods) > 0 && p.inputs.StoreDigest != "" }

// usersOfAnotherStore are the pods that use another Redis than that one. One whose node does not answer is not waited for.
func (o *observation) usersOfAnotherStore(digest string) []string {
	var names []string
	for i := range o.members {
		m := &o.members[i]
		if used := m.Annotations[fleet.StoreAnnotation]; used != "" && used != digest && !o.lost(m) {
			names = append(names, m.Name)
		}
	}
	return names
}

// checkStorage refuses a volume that nothing would provide, and a size that nothing would. It asks only until the volume is there, with
// that size.
func (r *Reconciler) checkStorage(ctx context.Context, p *pass) error {
	var persistence *v1alpha1.RedisPersistence
	field := "spec.redis.managed.persistence"
	var madeAlready client.Object = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: redis.DataName(p.cluster)}}
	if managed := store.ManagedRedis(p.cluster); managed != nil {
		persistence = managed.Persistence
	}
	if operated := store.OperatedRedis(p.cluster); operated != nil {
		persistence = operated.Persistence
		field = "spec.redis.operator.persistence"
		madeAlready = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: redis.OperatedName(p.cluster)}}
	}
	if persistence == nil {
		return nil
	}
	err := r.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: madeAlready.GetName()}, madeAlready)
	if claim, is := madeAlready.(*corev1.PersistentVolumeClaim); is && err == nil {
		return r.sizeVolume(ctx, p, claim)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	trouble, err := r.storageTrouble(ctx, persistence)
	if err != nil || trouble == "" {
		return err
	}
	p.DueIn(lookAgain)
	return &reconcile.Problem{Reason: v1alpha1.ReasonStorageClassMissing, Message: field + " " + trouble, Watched: true}
}

// storageTrouble says why there will be no volume. An operator that may not read StorageClasses, because it has rights in some
// namespaces only, says nothing.
func (r *Reconciler) storageTrouble(ctx context.Context, persistence *v1alpha1.RedisPersistence) (string, error) {
	if persistence.StorageClassName != nil {
		class := &storagev1.StorageClass{}
		err := r.Live.Get(ctx, types.NamespacedName{Name: *persistence.StorageClassName}, class)
		if apierrors.IsNotFound(err) {
			return fmt.Sprintf("names the StorageClass %s, which does not exist: see `kubectl get storageclass` for those that do", *persistence.StorageClassName), nil
		}
		return "", ignoreForbidden(err)
	}
	classes := &storagev1.StorageClassList{}
	err := r.Live.List(ctx, classes)
	if err != nil {
		return "", ignoreForbidden(err)
	}
	for i := range classes.Items {
		if classes.Items[i].Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return "", nil
		}
	}
	return "needs a StorageClass, and this cluster has no default one: name one in storageClassName, or remove persistence", nil
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// ensureRedisLogin sees to it that the Secret is there that pods take the URL of Redis from, unless it is the user's own.
func (r *Reconciler) ensureRedisLogin(ctx context.Context, p *pass) error {
	c := p.cluster
	var own *v1alpha1.SecretKeyReference
	generate := true
	switch {
	case store.ManagedRedis(c) != nil:
		own = store.ManagedRedis(c).Password.Ref()
	case store.OperatedRedis(c) != nil:
	case store.ExternalRedis(c) != nil && store.ExternalRedis(c).URLSecretRef == nil:
		own, generate = store.ExternalRedis(c).PasswordSecretRef, false
	default:
		return nil
	}
	login := redisLogin{url: redis.URL(c, p.inputs, "password"), generate: generate && own == nil}
	if own != nil {
		login.password = string(p.secrets[*own])
	}
	found, err := r.ownSecret(ctx, c, store.RedisSecretName(c))
	if err != nil {
		return err
	}
	if store.ManagedRedis(c) != nil {
		found, err = r.ensureManagedLogin(ctx, p, login, found)
	} else {
		found, err = r.ensureLogin(ctx, p, login, found)
	}
	if err != nil {
		return err
	}
	p.inputs.SecretsDigest = render.Digest(p.inputs.SecretsDigest + found.Annotations[urlAnnotation] + found.Annotations[passwordAnnotation])
	return nil
}

// redisLogin is how the fleet is to log in to Redis.
type redisLogin struct {
	// url is the URL with another password, which tells a change of it without telling the password.
	url string
	// password is the user's own; empty when it is generated, or when there is none.
	password string
	// generate is whether the operator makes the password.
	generate bool
}

// isIn is whether the Secret holds what is wanted.
func (l redisLogin) isIn(secret *metav1.PartialObjectMetadata) bool {
	if secret == nil || secret.Annotations[urlAnnotation] != l.url {
		return false
	}
	digest := secret.Annotations[passwordAnnotation]
	if l.generate {
		return digest != ""
	}
	return digest == passwordDigest(l.password)
}

// passwordDigest tells a change of the password.
func passwordDigest(password string) string { return render.Digest("livestash " + password) }

// ensureLogin writes the Secret with the URL when it does not say what is wanted, and returns what it says.
func (r *Reconciler) ensureLogin(ctx context.Context, p *pass, login redisLogin, found *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
	if login.isIn(found) {
		return found, nil
	}
	if running := p.cluster.Status.Redis; found == nil && login.generate && running != nil && running.Mode == v1alpha1.RedisModeOperator {
		return nil, &reconcile.Problem{
			Reason: v1alpha1.ReasonSecretMissing,
			Message: fmt.Sprintf("Secret %s with the password of Redis is gone, and redis-operator gives a Redis that runs no other: restore the Secret, or go over to spec.redis.managed, by which the stashes are lost",
				store.RedisSecretName(p.cluster)),
			Watched: true,
		}
	}
	before, err := r.readSecret(ctx, p.cluster, store.RedisSecretName(p.cluster))
	if err != nil {
		return nil, err
	}
	return r.writeLogin(ctx, p, login, before, login.choose(before), nil)
}

// choose is the password to use: the user's own, the one that was generated before, or a new one.
func (l redisLogin) choose(before *corev1.Secret) string {
	if !l.generate {
		return l.password
	}
	if generated := string(before.Data[redis.PasswordKey]); generated != "" {
		return generated
	}
	return redis.NewPassword()
}

// writeLogin writes the Secret with the URL. It keeps the operator's access to the Redis that this operator runs; nil with another one.
func (r *Reconciler) writeLogin(ctx context.Context, p *pass, login redisLogin, before *corev1.Secret, password string, access *redis.Access) (*metav1.PartialObjectMetadata, error) {
	secret := redis.Secret(p.cluster, p.inputs, password)
	secret.Annotations = map[string]string{urlAnnotation: login.url, passwordAnnotation: passwordDigest(password)}
	if access != nil {
		access.Keep(secret)
		secret.Annotations[accessAnnotation] = p.inputs.RedisAccessUID
	}
	if err := r.writeSecret(ctx, before, secret); err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta}, nil
}

// ensureOperatedRedis asks redis-operator for Redis. Without it the fleet's pods are made all the same, and wait.
func (r *Reconciler) ensureOperatedRedis(ctx context.Context, p *pass) error {
	wanted := redis.Operated(p.cluster)
	if wanted == nil {
		return nil
	}
	_, err := r.ensureOfOthersKind(ctx, p, wanted, &reconcile.Problem{
		Reason: v1alpha1.ReasonRedisOperatorMissing,
		Message: fmt.Sprintf("spec.redis.operator needs redis-operator, and this cluster does not serve %s %s: install redis-operator, or set spec.redis.managed",
			wanted.GroupVersionKind().GroupVersion(), wanted.GetKind()),
		Watched: true,
	})
	return err
}

// removeOperatedRedis deletes what redis-operator was asked for when another store is in use.
func (r *Reconciler) removeOperatedRedis(ctx context.Context, p *pass) error {
	c := p.cluster
	if store.OperatedRedis(c) != nil {
		return nil
	}
	left, err := r.leavesOperatedRedis(ctx, c)
	if err != nil || !left {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{redis.StandaloneKind, redis.ReplicationKind} {
		if _, err := r.removeOfOthersKind(ctx, c, kind, redis.OperatedName(c)); err != nil {
			return err
		}
	}
	return nil
}

// leavesOperatedRedis is whether there may be something that redis-operator was asked for. Its own objects are in no cache. The status may tell
// of another store already, from a pass that did not get as far as here; then the StatefulSet that redis-operator has made of it tells.
func (r *Reconciler) leavesOperatedRedis(ctx context.Context, c *v1alpha1.LiveStashCluster) (bool, error) {
	if c.Status.Redis != nil && c.Status.Redis.Mode == v1alpha1.RedisModeOperator {
		return true, nil
	}
	err := r.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: redis.OperatedName(c)}, &appsv1.StatefulSet{})
	return err == nil, client.IgnoreNotFound(err)
}

// redisServers says how many of the servers are ready that Kubernetes runs for the fleet's store. Empty when all are, and
// when somebody else runs them.
func (r *Reconciler) redisServers(ctx context.Context, c *v1alpha1.LiveStashCluster) (string, error) {
	for _, name := range redis.StatefulSets(c) {
		set := &appsv1.StatefulSet{}
		err := r.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, set)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("looking up StatefulSet %s: %w", name, err)
		}
		want := ptr.Deref(set.Spec.Replicas, 1)
		if store.ManagedRedis(c) != nil {
			want = 1 // a second one is there to take over
		}
		if err != nil || set.Status.ReadyReplicas < want {
			return fmt.Sprintf("StatefulSet %s has %d of %d pods ready", name, set.Status.ReadyReplicas, want), nil
		}
	}
	return "", nil
}
