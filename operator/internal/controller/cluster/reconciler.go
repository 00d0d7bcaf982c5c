// Package cluster reconciles LiveStashClusters. Reconcile is a list of named steps, one file each.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Reconciler makes the cluster have what LiveStashClusters want.
type Reconciler struct {
	// Client reads from the cache, which holds only objects with render.ClusterLabel, and the metadata of Secrets.
	client.Client

	// Live reads from the API server. It is used for the user's own Secrets, whose values are never cached.
	Live client.Reader

	// Named watches the ConfigMaps and Secrets that users name.
	Named *named.Watcher

	// Recorder tells users what happened.
	Recorder recorder.EventRecorder

	// ClusterDomain is the DNS domain of the Kubernetes cluster, for example cluster.local.
	ClusterDomain string

	// AgentImage is the image that holds the agent: the operator's own.
	AgentImage string

	// Agents tells what the agents in the pods last said.
	Agents Agents

	// News are the LiveStashClusters whose agents have something else to say. Nil: there are none.
	News <-chan event.GenericEvent

	// Redis changes passwords in a Redis that runs, and which of two servers has the stashes.
	Redis Redis

	// RedisImage and RedisExporterImage are the images of the Redis that the operator runs.
	RedisImage, RedisExporterImage string

	// Namespace is the operator's own. Empty when it runs outside of the cluster.
	Namespace string

	// Readers are the namespaces that may read the metrics of fleets, and what their agents tell. render.AllNamespaces: anybody.
	Readers []string

	// AllowPrivileged lets the pods of all fleets have what is more than their namespace's: see fleet.StatefulSet.
	AllowPrivileged bool

	// Version is this operator's, as the fleets' status tells it.
	Version string

	// Upgrade is when pods get what another version of the operator makes of the same spec, for fleets that do not say so.
	Upgrade v1alpha1.UpgradePolicy

	// UpgradesAtOnce is how many fleets are upgraded at the same time, of those that are to be at once.
	UpgradesAtOnce int

	// SeesNodes is whether the operator may watch nodes. Without that, nobody takes pods off a node before they are evicted.
	SeesNodes bool

	// Clock tells the time by which certificates are made and renewed.
	Clock clock.PassiveClock

	// drains are the last words of pods, waits since when pods are waited for, services since when those of canaries serve.
	drains   drains
	waits    waits
	services waits
	// returns counts who comes back during rollouts.
	returns returns
	// contents are the digests of what users have their pods read.
	contents contents
	// redisWaits is since when servers of Redis are waited for, redisAccesses how the operator logs in to them.
	redisWaits    waits
	redisAccesses accesses
	// redisAbsent is since when the servers' StatefulSets have too few pods.
	redisAbsent waits
	// counts are when statuses were last written, turns whose turn it is to be upgraded.
	counts counts
	turns  turns
	// stacked are those to look at when a node has changed, because their pods may be spread otherwise.
	stacked stacked
	// mistakes are those of users, for the log.
	mistakes reconcile.Mistakes
}

// pass is one run of the steps for one LiveStashCluster.
type pass struct {
	reconcile.Pass

	cluster *v1alpha1.LiveStashCluster
	// seen is what there was before the first step, apart from the StatefulSet, which is as this pass wrote it.
	seen observation
	// before is what runs before a rollout, and what is to be done about it.
	before before
	// plan is what is to be done about the pods, told what it was made of.
	plan rollout.Plan
	told rollout.Seen
	// inputs is what the objects are rendered with. The steps before the rendering add to it.
	inputs  render.Inputs
	objects []client.Object
	// secrets are the values of the user's own Secrets that the fleet needs.
	secrets map[v1alpha1.SecretKeyReference][]byte
	// redis is the Redis that the pods use: the one that the status tells of, until this pass knows better.
	redis *v1alpha1.RedisStatus
	// volumeSize is the size of the managed Redis' volume. Nil: there is none.
	volumeSize *resource.Quantity
	// oldStorePods are the names of the pods that use another Redis than the fleet's, which must stay as long.
	oldStorePods []string
	// redisMoves is whether the stashes go over to another server of Redis, or have just gone.
	redisMoves bool
	// planned is whether the steps have come as far as the plan of a rollout: before that, no pod goes.
	planned bool
	// givenUp is what this pass leaves behind when it writes the StatefulSet of that name for another store, volumeGivenUp the volume that
	// it deletes. Empty: nothing.
	givenUp       map[string]string
	volumeGivenUp string
	// cookieMade is when the Secret with the cookie was made. Nil: that is not known.
	cookieMade *metav1.Time
	// keyBaseGivenUp is what this pass leaves behind when it writes the StatefulSet with another SECRET_KEY_BASE. Empty: nothing.
	keyBaseGivenUp string
	// oldPasswords is whether the managed Redis still takes a password that is no longer the fleet's.
	oldPasswords bool
	// podMonitor is the name of the PodMonitor that there is. Empty when there is none.
	podMonitor string
	// certificate is the name of the Certificate that cert-manager was asked for. Empty when there is none.
	certificate string
	// drained are the last words of pods that are gone, which the status is about to tell.
	drained []drained
	// upgrade is what is known of the templates of the fleet's pods. Nil: nothing yet.
	upgrade *upgrade
	// refusal is what the API server says when a pod is not made, for example a quota's words. Empty: nothing is known.
	refusal string
	// wroteStatefulSet is whether this pass has changed the StatefulSet.
	wroteStatefulSet bool
	// unwritten is whether something could not be written that has to be before a pod goes.
	unwritten bool
	// lacking is whether something is missing that a new pod needs, or may need.
	lacking bool
	// passwordWaits is whether Redis could not be told the fleet's new password.
	passwordWaits bool
	// unsure is whether a pod would go now if it were known for sure that nothing speaks against it.
	unsure bool
	// unfinished is a problem that does not hold up the steps after it. It is told when they are done.
	unfinished error
	// putOff is what of the spec waits until something else is done. It is told when there is no problem.
	putOff error
}

// postpone notes what does not hold up the steps after it.
func (p *pass) postpone(err error) {
	p.unfinished = reconcile.Worse(p.unfinished, inWordsOfSpec(p.cluster, err))
}

// steps is the whole of a reconcile, in order. A step that fails ends it. The status is written in any case.
func (r *Reconciler) steps() []reconcile.Step[*pass] {
	return []reconcile.Step[*pass]{
		{Name: "check paused", Run: r.checkPaused},
		{Name: "finish a rotation", Run: r.finishRotation},
		{Name: "watch what is named", Run: r.watchNamed},
		{Name: "resolve secrets", Run: r.resolveSecrets},
		{Name: "hold the cookie", Run: r.holdCookie},
		{Name: "hold SECRET_KEY_BASE", Run: r.holdSecretKeyBase},
		{Name: "hold TLS", Run: r.holdTLS},
		{Name: "resolve references", Run: r.resolveReferences},
		{Name: "guard stashes", Run: r.guardStashes},
		{Name: "ensure certificate of Redis", Run: r.ensureRedisCertificate},
		{Name: "prepare store", Run: r.prepareStore},
		{Name: "judge template", Run: r.judgeTemplate},
		{Name: "hand over Redis", Run: r.handOverRedis},
		{Name: "plan rollout", Run: r.planRollout},
		{Name: "lead users", Run: r.leadUsers},
		{Name: "explain refusals", Run: r.explainRefusals},
		{Name: "render", Run: r.render},
		{Name: "keep templates", Run: r.keepTemplates},
		{Name: "ensure certificates", Run: r.ensureCertificates},
		{Name: "dismiss pods", Run: r.dismissPods},
		{Name: "apply children", Run: r.applyChildren},
		{Name: "run before", Run: r.runBefore},
		{Name: "ensure operated Redis", Run: r.ensureOperatedRedis},
		{Name: "ensure PodMonitor", Run: r.ensurePodMonitor},
		{Name: "replace pods", Run: r.replacePods},
		{Name: "remove unwanted children", Run: r.removeUnwanted},
		{Name: "settle passwords", Run: r.settlePasswords},
	}
}

// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts;persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list
// +kubebuilder:rbac:groups=redis.redis.opstreelabs.in,resources=redis;redisreplications,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile runs the steps for one LiveStashCluster and writes its status. Deletion needs no step: the garbage
// collector removes what the LiveStashCluster owns.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.LiveStashCluster{}
	if err := r.Get(ctx, req.NamespacedName, cluster); err != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		r.turns.end(req.NamespacedName) // it may be a while until it is gone
		return ctrl.Result{}, nil
	}
	if err := r.takeBack(ctx, cluster, keepsakes(cluster)); err != nil {
		return ctrl.Result{}, err
	}
	seen, err := r.observe(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}

	p := r.newPass(cluster, seen)
	err = inWordsOfSpec(cluster, reconcile.Run(ctx, p, r.steps()))
	if err != nil {
		err = reconcile.Worse(err, r.freeUsers(ctx, p))
	}
	r.Agents.Track(req.NamespacedName, p.pace(), seen.targets())
	if err == nil {
		err = cmp.Or(p.unfinished, p.putOff)
	}
	r.mistakes.Note(ctx, req.NamespacedName, err, seen.now)
	return p.End(err, func(outcome error) error { return r.updateStatus(ctx, p, outcome) })
}

// forget drops all that is remembered of a fleet whose LiveStashCluster is gone.
func (r *Reconciler) forget(cluster types.NamespacedName) {
	r.Agents.Forget(cluster)
	r.Named.Watch(cluster, nil)
	r.waits.since(cluster, nil, time.Time{})
	r.services.since(cluster, nil, time.Time{})
	r.drains.take(cluster, time.Time{}, "")
	r.returns.forget(cluster)
	r.turns.end(cluster)
	r.stacked.note(cluster, false)
	r.redisWaits.since(cluster, nil, time.Time{})
	r.redisAbsent.since(cluster, nil, time.Time{})
	r.redisAccesses.forget(cluster)
	r.mistakes.Forget(cluster)
}

// newPass is a pass that knows what is seen, and what the status told last.
func (r *Reconciler) newPass(c *v1alpha1.LiveStashCluster, seen observation) *pass {
	return &pass{
		cluster: c, seen: seen, plan: rollout.Next(seen.rollout(c, c.DesiredReplicas())),
		redis: c.Status.Redis, podMonitor: c.Status.PodMonitor, certificate: c.Status.Certificate, secrets: map[v1alpha1.SecretKeyReference][]byte{},
		inputs: render.Inputs{
			ClusterDomain:      r.ClusterDomain,
			AgentImage:         r.AgentImage,
			RedisImage:         r.RedisImage,
			RedisExporterImage: r.RedisExporterImage,
			OperatorNamespace:  r.Namespace,
			Readers:            r.Readers,
			MovesPods:          r.SeesNodes,
			AllowPrivileged:    r.AllowPrivileged,
		},
	}
}

// pace is how often the agents are asked: often while somebody waits for them, and where a stash may get too large.
func (p *pass) pace() observe.Pace {
	switch {
	case p.waits():
		return observe.Rolling
	case store.For(p.cluster).LargestStash(p.cluster) > 0:
		return observe.Watching
	}
	return observe.Resting
}

// waits is whether the next thing may happen any second: a rollout goes on, a pod is about to go, or one has not been waited for long.
func (p *pass) waits() bool {
	if p.cluster.Spec.Paused {
		return false
	}
	if p.unsure {
		return true
	}
	for _, waited := range p.seen.waited {
		if waited < soon {
			return true
		}
	}
	return p.rolls()
}

// rolls is whether a rollout goes on.
func (p *pass) rolls() bool {
	rests := []rollout.Phase{rollout.Complete, rollout.Stuck, rollout.Paused, rollout.Withheld}
	return !p.cluster.Spec.Paused && !slices.Contains(rests, p.plan.Phase)
}

func (r *Reconciler) render(_ context.Context, p *pass) error {
	objects, err := fleet.Render(p.cluster, p.inputs)
	if err != nil {
		return invalidSpec(err)
	}
	if p.plan.Leave {
		objects = slices.DeleteFunc(objects, func(object client.Object) bool {
			set, is := object.(*appsv1.StatefulSet)
			return is && set.Name == p.cluster.Name
		})
	}
	p.objects = objects
	return nil
}

// invalidSpec is what a *render.SpecError tells the user. Any other error stays what it is.
func invalidSpec(err error) error {
	var invalid *render.SpecError
	if errors.As(err, &invalid) {
		return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: invalid.Error(), Watched: true}
	}
	return err
}
