// Package cluster reconciles LiveStashClusters. Reconcile is a list of named steps, one file each.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/fleet"
)

// fieldOwner is the one field manager of everything that the operator writes.
const fieldOwner = apply.FieldOwner

// Reconciler makes the cluster have what LiveStashClusters want.
type Reconciler struct {
	// Client reads from the cache, which holds only objects with fleet.ClusterLabel, and the metadata of Secrets.
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
	cluster *v1alpha1.LiveStashCluster
	inputs  fleet.Inputs
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
	// again is when the next pass is due though nothing has changed. Zero: never.
	again time.Duration
}

// dueIn sees to it that the next pass comes no later than in that time.
func (p *pass) dueIn(after time.Duration) {
	if after > 0 && (p.again == 0 || after < p.again) {
		p.again = after
	}
}

// postpone notes what does not hold up the steps after it: the first trouble, unless it would hide one that calls for a retry.
func (p *pass) postpone(err error) {
	if p.unfinished == nil || healsByItself(p.unfinished) && !healsByItself(err) {
		p.unfinished = err
	}
}

type step struct {
	name string
	run  func(context.Context, *pass) error
}

// steps is the whole of a reconcile, in order. A step that fails ends it. The status is written in any case.
func (r *Reconciler) steps() []step {
	return []step{
		{"check paused", r.checkPaused},
		{"resolve secrets", r.resolveSecrets},
		{"prepare store", r.prepareStore},
		{"render", r.render},
		{"ensure certificates", r.ensureCertificates},
		{"apply children", r.applyChildren},
		{"ensure operated Redis", r.ensureOperatedRedis},
		{"ensure PodMonitor", r.ensurePodMonitor},
		{"remove unwanted children", r.removeUnwanted},
		{"settle passwords", r.settlePasswords},
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

	p := &pass{cluster: cluster, podMonitor: cluster.Status.PodMonitor, inputs: fleet.Inputs{
		ClusterDomain:      r.ClusterDomain,
		AgentImage:         r.AgentImage,
		RedisImage:         r.RedisImage,
		RedisExporterImage: r.RedisExporterImage,
		OperatorNamespace:  r.Namespace,
	}}
	err := r.run(ctx, p)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // the LiveStashCluster goes with its namespace
	}
	if isTransient(err) {
		return ctrl.Result{}, err
	}
	if taken := (*apply.ConflictError)(nil); errors.As(err, &taken) {
		p.dueIn(apply.ConflictRetry)
	}
	if statusErr := r.updateStatus(ctx, p, err); statusErr != nil {
		return ctrl.Result{}, errors.Join(err, statusErr)
	}
	if err != nil && !healsByItself(err) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

func (r *Reconciler) run(ctx context.Context, p *pass) error {
	for _, step := range r.steps() {
		if err := step.run(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return p.unfinished
}

func (r *Reconciler) render(_ context.Context, p *pass) error {
	objects, err := fleet.Render(p.cluster, p.inputs)
	var invalid *fleet.SpecError
	if errors.As(err, &invalid) {
		return &problem{reason: v1alpha1.ReasonInvalidSpec, message: invalid.Error(), watched: true}
	}
	p.objects = objects
	return err
}

// isTransient is whether a cache that lags behind explains the error: the next try will do, and no user needs to know.
func isTransient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
