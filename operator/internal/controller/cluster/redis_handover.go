package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
	"github.com/livestash-dev/livestash/operator/internal/store"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

const (
	// mostTold is how many things servers are told in one pass.
	mostTold = 4
	// countRedis is how often a Redis without a volume is asked how many stashes it has.
	countRedis = time.Minute
	// succeeding is what the wait for the whole of a hand-over is remembered by, resting what the time without one is.
	succeeding, resting = "hand-over", "rest"
	// restash is for how long after a hand-over no pod of the fleet is taken. LiveStash acknowledges a stash also when Redis did not take
	// it, as in the half second in which connections are made anew, and stores it with the page's next one: until then nobody should have
	// to come back elsewhere.
	restash = 10 * time.Second
)

// errNoAddress is that a pod has not got its address yet.
var errNoAddress = errors.New("the pod has no address")

// redisAccess is what it takes to talk to the servers of one fleet.
type redisAccess struct {
	// of are the versions of the Secrets that it is from.
	of string
	redis.Access
	// authorities are those that a server's certificate is checked against, in PEM, and host is the name that it is for. Both are empty
	// without TLS.
	authorities, host string
}

// login is the operator's to a server.
func (a redisAccess) login(address string) redisadmin.Login {
	return redisadmin.Login{Address: address, User: redis.OperatorUser, Password: a.Operator, Authorities: a.authorities, Host: a.host}
}

// accesses remembers the operator's own passwords, which no cache holds, so that Redis can be asked without asking the API server, and
// when it was asked last.
type accesses struct{ of, asked sync.Map }

func (a *accesses) forget(fleet types.NamespacedName) {
	a.of.Delete(fleet)
	a.asked.Delete(fleet)
}

// redisCount is how many stashes a server said that it has, and when it was asked.
type redisCount struct {
	pod     types.UID
	at      time.Time
	stashes int64
}

// counted is what that server said last. What a status says may be older: it is not written each time.
func (a *accesses) counted(fleet types.NamespacedName, pod types.UID) (redisCount, bool) {
	last, known := a.asked.Load(fleet)
	if !known || last.(redisCount).pod != pod {
		return redisCount{}, false
	}
	return last.(redisCount), true
}

// handOverRedis gives a managed Redis without a volume the server that is wanted, by way of a second one that takes over all stashes.
func (r *Reconciler) handOverRedis(ctx context.Context, p *pass) error {
	managed := store.ManagedRedis(p.cluster)
	switch {
	case managed == nil:
		return nil
	case managed.Persistence != nil:
		return r.awaitRedis(ctx, p)
	}
	seen, pods, err := r.redisPlaces(ctx, p.cluster)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(p.cluster)
	if succession.AtRest(seen) {
		rested := r.redisWaits.since(key, []string{resting}, p.seen.now)[resting]
		p.redisMoves = seen.Exists && (rested < restash || !seen.Settled)
		p.place(succession.Next(seen))
		return r.countRedis(ctx, p, seen, pods[seen.Only])
	}

	p.DueIn(lookAtRollout)
	waited := r.redisWaits.since(key, redisAwaited(seen, pods), p.seen.now)
	seen.Moved = waited[moved(seen.Serves)]
	p.redisMoves = waited[succeeding] < soon // one that does not get on holds up nobody
	access, err := r.redisAccess(ctx, p)
	if err != nil {
		return err
	}
	step, err := r.succeed(ctx, p, access, seen, pods, waited)
	if err != nil {
		return err
	}
	p.place(step)
	if step.Hinders && waited[succeeding] > soon {
		p.postpone(&reconcile.Problem{
			Reason: v1alpha1.ReasonRedisHandOverWaits, Message: "the server of Redis is to be replaced, and its stashes are to go over to another one first: " + step.Waits, Watched: true,
		})
	}
	return r.remakeRedis(ctx, pods, step)
}

// awaitRedis notes that a Redis with a volume is being replaced, or was a moment ago: who is moved to another pod then finds nothing.
func (r *Reconciler) awaitRedis(ctx context.Context, p *pass) error {
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: redis.Name(p.cluster)}, set)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	doing, most := resting, restash
	if !hasRolledOut(set) {
		doing, most = succeeding, soon // one that does not get on holds up nobody
	}
	p.redisMoves = r.redisWaits.since(client.ObjectKeyFromObject(p.cluster), []string{doing}, p.seen.now)[doing] < most
	return nil
}

// place has the objects rendered as the step wants them.
func (p *pass) place(step succession.Step) {
	p.inputs.Redis = render.RedisPlaces{Serves: step.Serves, Both: step.Both, Only: step.Only}
}

// redisPlaces is what the cache has of the servers, and their pods.
func (r *Reconciler) redisPlaces(ctx context.Context, c *v1alpha1.LiveStashCluster) (succession.Seen, [2]*corev1.Pod, error) {
	var seen succession.Seen
	var places [2]*corev1.Pod
	name := types.NamespacedName{Namespace: c.Namespace, Name: redis.Name(c)}
	set, service := &appsv1.StatefulSet{}, &corev1.Service{}
	if err := r.Get(ctx, name, set); client.IgnoreNotFound(err) != nil {
		return seen, places, fmt.Errorf("looking up StatefulSet %s: %w", name.Name, err)
	}
	if err := r.Get(ctx, name, service); client.IgnoreNotFound(err) != nil {
		return seen, places, fmt.Errorf("looking up Service %s: %w", name.Name, err)
	}
	pods, err := r.podsOf(ctx, c, render.RedisComponent)
	if err != nil {
		return seen, places, err
	}
	seen.Exists, seen.Settled = metav1.IsControlledBy(set, c), set.Generation == set.Status.ObservedGeneration
	seen.Both = set.Spec.Replicas != nil && *set.Spec.Replicas > 1
	if render.StartOf(set) > 0 {
		seen.Only = 1
	}
	seen.Serves = seen.Only
	for place := range places {
		if service.Spec.Selector[appsv1.StatefulSetPodNameLabel] == redis.PodName(c, place) {
			seen.Serves = place
		}
		if !seen.Exists {
			seen.Only = seen.Serves // its pods may still be there, and are taken over
			continue
		}
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool {
			return pod.Name == redis.PodName(c, place) && metav1.IsControlledBy(&pod, set)
		})
		if i >= 0 {
			places[place] = &pods[i]
			seen.Servers[place] = redisServer(&pods[i], set.Status.UpdateRevision)
		}
	}
	return seen, places, nil
}

func redisServer(pod *corev1.Pod, wanted string) succession.Server {
	return succession.Server{
		Pod: pod.Name, UID: string(pod.UID), Host: pod.Status.PodIP, Ready: podReady(pod), Stopping: !pod.DeletionTimestamp.IsZero(),
		Outdated: wanted != "" && pod.Labels[appsv1.StatefulSetRevisionLabel] != wanted,
	}
}

// moved is what the time is remembered by since which the Service leads to a place.
func moved(place int) string { return "the Service leads to " + strconv.Itoa(place) }

// redisAwaited is what is waited for in a hand-over: for servers that do not run, too.
func redisAwaited(seen succession.Seen, pods [2]*corev1.Pod) []string {
	awaited := []string{succeeding, moved(seen.Serves)}
	for _, pod := range pods {
		if pod != nil && !podReady(pod) {
			awaited = append(awaited, string(pod.UID))
		}
	}
	return awaited
}

// redisAccess is what it takes to talk to the fleet's servers. It is read once.
func (r *Reconciler) redisAccess(ctx context.Context, p *pass) (redisAccess, error) {
	c, name := p.cluster, store.RedisAccessName(p.cluster)
	key := client.ObjectKeyFromObject(c)
	users, err := r.ownSecret(ctx, c, name)
	if err != nil {
		return redisAccess{}, err
	}
	certificate, err := r.redisCertificate(ctx, c)
	if err != nil {
		return redisAccess{}, err
	}
	known, is := r.redisAccesses.of.Load(key)
	if is && users != nil && known.(redisAccess).of == versions(users, certificate) {
		return known.(redisAccess), nil
	}
	secret, err := r.readSecret(ctx, c, name)
	if err != nil {
		return redisAccess{}, err
	}
	access := redisAccess{Access: redis.ReadAccess(secret)}
	if access.Operator == "" {
		return redisAccess{}, fmt.Errorf("secret %s has no password of the operator", name)
	}
	if err := r.readAuthorities(ctx, p, &access); err != nil {
		return redisAccess{}, err
	}
	access.of = versions(secret, certificate)
	r.redisAccesses.of.Store(key, access)
	return access, nil
}

// redisCertificate is what the cache knows of the Secret with the certificate of Redis. Nil without TLS, and until there is one.
func (r *Reconciler) redisCertificate(ctx context.Context, c *v1alpha1.LiveStashCluster) (*metav1.PartialObjectMetadata, error) {
	if !store.ManagedRedis(c).TLSEnabled() {
		return nil, nil
	}
	return r.ownSecret(ctx, c, store.RedisCertificateName(c))
}

// versions tell whether one of the Secrets has changed.
func versions(users client.Object, certificate *metav1.PartialObjectMetadata) string {
	if certificate == nil {
		return users.GetResourceVersion()
	}
	return users.GetResourceVersion() + " " + certificate.ResourceVersion
}

// readAuthorities reads how the certificate of Redis is checked. Without TLS there is nothing to read.
func (r *Reconciler) readAuthorities(ctx context.Context, p *pass, access *redisAccess) error {
	if !store.ManagedRedis(p.cluster).TLSEnabled() {
		return nil
	}
	name := store.RedisCertificateName(p.cluster)
	secret, err := r.readSecret(ctx, p.cluster, name)
	if err != nil {
		return err
	}
	access.authorities, access.host = string(tls.ReadCertificate(secret).Authorities), redis.Host(p.cluster, p.inputs)
	if access.authorities == "" {
		return fmt.Errorf("secret %s has no certificates to check that of Redis against", name)
	}
	return nil
}

func redisLoginTo(host string, access redisAccess) redisadmin.Login {
	return access.login(redis.Address(host))
}

// succeed tells the servers what is due, one thing after the other, and returns what remains to be done. It is an error when they may not be told.
func (r *Reconciler) succeed(
	ctx context.Context, p *pass, access redisAccess, seen succession.Seen, pods [2]*corev1.Pod, waited map[string]time.Duration,
) (step succession.Step, err error) {
	for range mostTold {
		if err := r.askRedis(ctx, access, &seen, pods, waited); err != nil {
			return step, err
		}
		step = succession.Next(seen)
		if step.Tell == succession.Nothing {
			break
		}
		err := r.tellServer(ctx, p, access, seen, step)
		if errors.Is(err, fencing.ErrExpired) {
			return step, err
		}
		if err != nil {
			step.Waits, step.Hinders = err.Error(), true
		}
		if step.Waits != "" {
			break
		}
	}
	return step, nil
}

// askRedis asks the servers about themselves, the first one twice when what they say cannot be at once. It is an error when this operator may not ask: that says nothing of them.
func (r *Reconciler) askRedis(ctx context.Context, access redisAccess, seen *succession.Seen, pods [2]*corev1.Pod, waited map[string]time.Duration) error {
	ask := func(place int) error {
		server := &seen.Servers[place]
		server.Says, server.Broken, server.Reads = nil, "", false
		if pods[place] == nil {
			return nil
		}
		var says succession.Says
		err := errNoAddress
		if server.Host != "" {
			says, err = r.Redis.Look(ctx, redisLoginTo(server.Host, access))
		}
		switch {
		case errors.Is(err, fencing.ErrExpired):
			return err
		case err == nil:
			server.Says = &says
		case redisadmin.Loading(err):
			server.Reads = true
		case redisadmin.Refused(err) && waited[succeeding] > soon:
			// Both Secrets were lost, and nobody will ever log in to it again.
			server.Broken = "pod " + server.Pod + " refuses the operator's password"
		case waited[server.UID] > soon:
			server.Broken = serverTrouble(pods[place])
		}
		return nil
	}
	for place := range seen.Servers {
		if err := ask(place); err != nil {
			return err
		}
	}
	if seen.Contradicts() {
		return ask(0)
	}
	return nil
}

// serverTrouble is why the server of a pod does not run. If only another container has trouble, it runs: it may be reading its file, or be slow.
func serverTrouble(pod *corev1.Pod) string {
	server := *pod
	server.Status.ContainerStatuses = nil
	if status := containerStatus(pod.Status.ContainerStatuses, redis.ServerContainer); status != nil {
		server.Status.ContainerStatuses = []corev1.ContainerStatus{*status}
	}
	return podTrouble(&server)
}

// tellServer does the one thing that a step has to tell.
func (r *Reconciler) tellServer(ctx context.Context, p *pass, access redisAccess, seen succession.Seen, step succession.Step) error {
	server, beside := seen.Servers[step.On], seen.Servers[1-step.On]
	login, other := redisLoginTo(server.Host, access), redisLoginTo(beside.Host, access)
	switch step.Tell {
	case succession.Nothing:
		return nil
	case succession.Crown:
		if err := r.Redis.SetPrimary(ctx, login, server.UID); err != nil {
			return err
		}
		if server.Says.Primary == "" {
			r.tellRedisLoss(p, server.Pod, types.UID(server.UID))
		}
		p.redisServes(server.Pod, types.UID(server.UID), server.Says.Stashes)
		return nil
	case succession.Follow:
		return r.Redis.Follow(ctx, login, other, replicationPassword(access, beside.UID))
	case succession.FailOver:
		return r.failOver(ctx, p, access, server, beside)
	case succession.Abort:
		return r.Redis.Abort(ctx, login)
	case succession.Promote:
		return r.Redis.Promote(ctx, login)
	}
	return nil
}

// failOver lets a server take the other one's place that has been told the fleet's passwords: its file of users may be older.
func (r *Reconciler) failOver(ctx context.Context, p *pass, access redisAccess, from, to succession.Server) error {
	if err := r.Redis.SetPasswords(ctx, redisLoginTo(to.Host, access), redis.FleetUser, access.Fleet); err != nil {
		return err
	}
	if err := r.Redis.FailOver(ctx, redisLoginTo(from.Host, access)); err != nil {
		return err
	}
	r.Recorder.Eventf(p.cluster, nil, corev1.EventTypeNormal, v1alpha1.ReasonRedisHandedOver, "HandOver",
		"%s has taken over the %d stashes of %s, which is no longer what is wanted: none is lost", to.Pod, from.Says.Stashes, from.Pod)
	return nil
}

// replicationPassword is what a server asks of one that copies its stashes: another one for each pod.
func replicationPassword(access redisAccess, uid string) string {
	mac := hmac.New(sha256.New, []byte(access.Operator))
	mac.Write([]byte("replication " + uid))
	return hex.EncodeToString(mac.Sum(nil))
}

// remakeRedis deletes the pod that is to be made anew.
func (r *Reconciler) remakeRedis(ctx context.Context, pods [2]*corev1.Pod, step succession.Step) error {
	for _, pod := range pods {
		if pod == nil || pod.Name != step.Delete {
			continue
		}
		if err := r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s, which is no longer what is wanted: %w", pod.Name, err)
		}
	}
	return nil
}

// countRedis asks the one server how many stashes it has, rouses it, and notices when it is another one that nobody has asked for.
func (r *Reconciler) countRedis(ctx context.Context, p *pass, seen succession.Seen, pod *corev1.Pod) error {
	if p.redis == nil || pod == nil || !podReady(pod) || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	stashes := int64(0)
	if was := p.redis.Server; was != nil && was.UID == pod.UID {
		stashes = was.Stashes
	} else if was != nil && was.Pod == pod.Name {
		r.tellRedisLoss(p, pod.Name, pod.UID)
	}
	fleet := client.ObjectKeyFromObject(p.cluster)
	if last, known := r.redisAccesses.counted(fleet, pod.UID); known && p.seen.now.Sub(last.at) < countRedis {
		p.redisServes(pod.Name, pod.UID, last.stashes)
		p.DueIn(countRedis - p.seen.now.Sub(last.at))
		return nil
	}
	p.DueIn(countRedis)
	access, err := r.redisAccess(ctx, p)
	if err != nil {
		return err
	}
	if says, err := r.Redis.Look(ctx, redisLoginTo(pod.Status.PodIP, access)); err == nil {
		stashes = says.Stashes
		// One that cannot be told now is told after the next look.
		if err := r.tellServer(ctx, p, access, seen, succession.Step{Tell: says.Rouse(), On: seen.Only}); errors.Is(err, fencing.ErrExpired) {
			return err
		}
	}
	r.redisAccesses.asked.Store(fleet, redisCount{pod: pod.UID, at: p.seen.now, stashes: stashes})
	p.redisServes(pod.Name, pod.UID, stashes)
	return nil
}

// redisServes notes for the status which server has the stashes.
func (p *pass) redisServes(pod string, uid types.UID, stashes int64) {
	if p.redis == nil {
		return
	}
	now := p.redis.DeepCopy()
	now.Server = &v1alpha1.RedisServer{Pod: pod, UID: uid, Stashes: stashes}
	p.redis = now
}

// tellRedisLoss says what was lost with the server that another one stands for now, empty.
func (r *Reconciler) tellRedisLoss(p *pass, pod string, uid types.UID) {
	if p.redis == nil || p.redis.Server == nil || p.redis.Server.UID == uid {
		return
	}
	was := p.redis.Server
	r.Recorder.Eventf(p.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReasonStashesLost, "Replace",
		"pod %s was gone without having been asked by the operator, and %s began empty: the %d stashes that Redis had when it was last asked are lost, but those that pages store again. "+
			"With spec.redis.managed.persistence they would be on a volume", was.Pod, pod, was.Stashes)
}
