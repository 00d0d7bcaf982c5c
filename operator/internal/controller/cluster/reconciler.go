// Package cluster reconciles LiveStashClusters. Reconcile is a list of named steps, one file each.
package cluster

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// Reconciler makes the cluster have what LiveStashClusters want.
type Reconciler struct {
	// Client reads from the cache, which holds only objects with render.ClusterLabel, and the metadata of Secrets.
	client.Client

	// Live reads from the API server. It is used for the user's own Secrets, whose values are never cached.
	Live client.Reader

	// Recorder tells users what happened.
	Recorder recorder.EventRecorder

	// ClusterDomain is the DNS domain of the Kubernetes cluster, for example cluster.local.
	ClusterDomain string

	// AgentImage is the image that holds the agent: the operator's own.
	AgentImage string

	// Agents asks the agents in the pods.
	Agents Agents

	// Redis changes passwords in a Redis that runs.
	Redis Redis

	// RedisImage and RedisExporterImage are the images of the Redis that the operator runs.
	RedisImage, RedisExporterImage string

	// Namespace is the operator's own. Empty when it runs outside of the cluster.
	Namespace string

	// Clock tells the time by which certificates are made and renewed.
	Clock clock.PassiveClock

	// drains are the last words of pods.
	drains drains
}

// pass is one run of the steps for one LiveStashCluster.
type pass struct {
	reconcile.Pass

	cluster *v1alpha1.LiveStashCluster
	inputs  render.Inputs
	objects []client.Object
	// secrets are the values of the user's own Secrets that the fleet needs.
	secrets map[v1alpha1.SecretKeyReference][]byte
	// store is what the pods keep stashes in. Nil until that is known.
	store *storeInUse
	// oldPasswords is whether the managed Redis still takes a password that is no longer the fleet's.
	oldPasswords bool
	// podMonitor is the name of the PodMonitor that there is. Empty when there is none.
	podMonitor string
	// unfinished is a problem that does not hold up the steps after it. It is told when they are done.
	unfinished error
	// statefulSet is what the API server answered when this pass applied it; nil when it was as wanted.
	statefulSet *appsv1.StatefulSet
}

// postpone notes what does not hold up the steps after it.
func (p *pass) postpone(err error) { p.unfinished = reconcile.Worse(p.unfinished, err) }

// steps is the whole of a reconcile, in order. A step that fails ends it. The status is written in any case.
func (r *Reconciler) steps() []reconcile.Step[*pass] {
	return []reconcile.Step[*pass]{
		{Name: "check paused", Run: r.checkPaused},
		{Name: "resolve secrets", Run: r.resolveSecrets},
		{Name: "prepare store", Run: r.prepareStore},
		{Name: "render", Run: r.render},
		{Name: "ensure certificates", Run: r.ensureCertificates},
		{Name: "apply children", Run: r.applyChildren},
		{Name: "ensure operated Redis", Run: r.ensureOperatedRedis},
		{Name: "ensure PodMonitor", Run: r.ensurePodMonitor},
		{Name: "remove unwanted children", Run: r.removeUnwanted},
		{Name: "settle passwords", Run: r.settlePasswords},
	}
}

// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=livestash.dev,resources=livestashclusters/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts;persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list
// +kubebuilder:rbac:groups=redis.redis.opstreelabs.in,resources=redis;redisreplications,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile runs the steps for one LiveStashCluster and writes its status. Deletion needs no step: the garbage
// collector removes what the LiveStashCluster owns.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.LiveStashCluster{}
	if err := r.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}

	p := &pass{cluster: cluster, podMonitor: cluster.Status.PodMonitor, inputs: render.Inputs{
		ClusterDomain:      r.ClusterDomain,
		AgentImage:         r.AgentImage,
		RedisImage:         r.RedisImage,
		RedisExporterImage: r.RedisExporterImage,
		OperatorNamespace:  r.Namespace,
	}}
	err := reconcile.Run(ctx, p, r.steps())
	if err == nil {
		err = p.unfinished
	}
	return p.End(err, func(outcome error) error { return r.updateStatus(ctx, p, outcome) })
}

func (r *Reconciler) render(_ context.Context, p *pass) error {
	objects, err := fleet.Render(p.cluster, p.inputs)
	var invalid *render.SpecError
	if errors.As(err, &invalid) {
		return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: invalid.Error(), Watched: true}
	}
	p.objects = objects
	return err
}
