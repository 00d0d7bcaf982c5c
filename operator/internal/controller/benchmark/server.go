package benchmark

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// serverStart is how long a server may take to be ready: one that takes longer never is, most often.
const serverStart = 5 * time.Minute

// serverOf is the server of a run.
func (r *Reconciler) serverOf(b *v1alpha1.LiveStashBenchmark, run loadtest.Run) (rival.Rival, error) {
	place, err := placeOf(b.Spec.Target.Template.Spec)
	return rival.Rival{
		Name: run.Name, Namespace: b.Namespace, Labels: labelsOf(b), Owner: ownerReference(b), Server: *run.Server, Place: place,
		UsageImage: r.UsageImage, RedisImage: r.RedisImage, ByPod: b.Spec.Routing != v1alpha1.RoutingService,
		OperatorNamespace: r.Namespace, ClusterDomain: r.ClusterDomain,
	}, err
}

// placeOf is where the pods of a template's fleets are, and how they are pulled. What it does not have as the API server would want it is
// told when a fleet is tried.
func placeOf(template v1alpha1.BenchmarkClusterSpec) (rival.Place, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return rival.Place{}, err
	}
	var spec struct {
		ImagePullPolicy  corev1.PullPolicy             `json:"imagePullPolicy"`
		ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets"`
		Resources        corev1.ResourceRequirements   `json:"resources"`
		PodTemplate      struct {
			Spec struct {
				NodeSelector map[string]string   `json:"nodeSelector"`
				Tolerations  []corev1.Toleration `json:"tolerations"`
			} `json:"spec"`
		} `json:"podTemplate"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return rival.Place{}, fmt.Errorf("reading target.template: %w", err)
	}
	return rival.Place{
		PullPolicy: spec.ImagePullPolicy, PullSecrets: spec.ImagePullSecrets, Resources: spec.Resources,
		NodeSelector: spec.PodTemplate.Spec.NodeSelector, Tolerations: spec.PodTemplate.Spec.Tolerations,
	}, nil
}

// proxyOf is what stands in front of the servers of a run.
func (r *Reconciler) proxyOf(b *v1alpha1.LiveStashBenchmark, run loadtest.Run, servers []string) (rival.Rival, error) {
	base := rival.Rival{Name: run.Name, Namespace: b.Namespace, Labels: labelsOf(b), Owner: ownerReference(b), ClusterDomain: r.ClusterDomain}
	if b.Spec.Target.Template != nil {
		place, err := placeOf(b.Spec.Target.Template.Spec)
		if err != nil {
			return base, err
		}
		base.Place = place
	}
	return rival.Proxy(base, *b.Spec.Proxy, servers), nil
}

// tryServer asks the API server for the server of a run, as tryTemplate does for fleets.
func (r *Reconciler) tryServer(ctx context.Context, p *pass, run loadtest.Run) error {
	wanted, err := r.serverOf(p.benchmark, run)
	return r.try(ctx, p, wanted, err, "server for "+run.Compared())
}

// tryProxy does the same for what stands in front of it.
func (r *Reconciler) tryProxy(ctx context.Context, p *pass, run loadtest.Run) error {
	wanted, err := r.proxyOf(p.benchmark, run, nil)
	return r.try(ctx, p, wanted, err, "proxy")
}

func (r *Reconciler) try(ctx context.Context, p *pass, wanted rival.Rival, err error, what string) error {
	if err != nil {
		return r.giveUp(p, fmt.Sprintf("There is no %s: %s", what, err))
	}
	for _, object := range wanted.Objects() {
		err := r.Create(ctx, object, client.DryRunAll)
		if sentence := refusal(err); sentence != "" {
			return r.giveUp(p, fmt.Sprintf("There is no %s: %s", what, sentence))
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("trying the %s: %w", what, err)
		}
	}
	return nil
}

// findServer makes the server of the run, and waits until all of its pods are ready.
func (r *Reconciler) findServer(ctx context.Context, p *pass) (reason, serves string, err error) {
	wanted, err := r.serverOf(p.benchmark, *p.run)
	if err != nil {
		return "", "", err
	}
	p.bases = wanted.URLs()
	p.server, serves, err = r.bringUp(ctx, p, wanted, "server")
	return reasonServes, serves, err
}

// findProxy does the same with the proxy in front of the servers, which it takes from the users.
func (r *Reconciler) findProxy(ctx context.Context, p *pass) (reason, serves string, err error) {
	wanted, err := r.proxyOf(p.benchmark, *p.run, p.bases)
	if err != nil {
		return "", "", err
	}
	p.bases = wanted.URLs()
	_, serves, err = r.bringUp(ctx, p, wanted, "proxy")
	return reasonServes, serves, err
}

// bringUp makes what is wanted, and waits until all of its pods are ready. Of a run that is under way it says nothing more: what happens to it then
// is measured.
func (r *Reconciler) bringUp(ctx context.Context, p *pass, wanted rival.Rival, what string) (set *appsv1.StatefulSet, serves string, err error) {
	set = &appsv1.StatefulSet{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: wanted.Namespace, Name: wanted.Name}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("looking up the %s %s: %w", what, wanted.Name, err)
	}
	isThere := err == nil && set.DeletionTimestamp.IsZero()
	switch {
	case p.seen.Over() && !isThere:
		return nil, "", nil
	case p.seen.Made && !isThere:
		return nil, "", r.end(ctx, p, loadtest.Errored(fmt.Sprintf("The %s %s was deleted while the run went on.", what, wanted.Name)))
	case p.seen.Made:
		return set, "", nil
	}
	if err := r.makeServer(ctx, p, wanted, what); err != nil {
		return nil, "", err
	}
	if !isThere {
		r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionFalse, reasonStarting, fmt.Sprintf("the %s was asked for", what))
		p.DueIn(time.Second)
		return nil, "", p.wait("%s: its %s is being made", p.row.Name, what)
	}
	serves, err = r.awaitServer(ctx, p, set, wanted, what)
	return set, serves, err
}

// makeServer makes what is wanted, unless it is there.
func (r *Reconciler) makeServer(ctx context.Context, p *pass, wanted rival.Rival, what string) error {
	_, err := r.applier().All(ctx, p.benchmark, wanted.Objects())
	var taken *apply.ConflictError
	switch sentence := refusal(err); {
	case errors.As(err, &taken):
		return r.end(ctx, p, loadtest.Errored(taken.Error()+"."))
	case sentence != "":
		return r.end(ctx, p, loadtest.Errored(sentence))
	case err != nil:
		return fmt.Errorf("making the %s %s: %w", what, wanted.Name, err)
	}
	return nil
}

// awaitServer waits until all pods are ready, and not for ever. It returns that they are, in words.
func (r *Reconciler) awaitServer(ctx context.Context, p *pass, set *appsv1.StatefulSet, wanted rival.Rival, what string) (serves string, err error) {
	pods, err := r.serverPods(ctx, set)
	if err != nil {
		return "", err
	}
	ready, hindrance := 0, ""
	for i := range pods {
		if serving(pods[i]) {
			ready++
		} else {
			hindrance = cmp.Or(hindrance, hindranceOf(&pods[i]))
		}
	}
	if ready == int(wanted.Server.Replicas) {
		r.starting.Delete(set.UID)
		return fmt.Sprintf("all pods of the %s %s are ready", what, set.Name), nil
	}
	waited := r.since(&r.starting, set.UID)
	if len(pods) < int(wanted.Server.Replicas) && waited >= refusedAfter && hindrance == "" {
		p.DueIn(lookAgain)
		if hindrance, err = reconcile.RefusedPod(ctx, r.Live, set.Namespace, "StatefulSet", time.Time{}, set.UID); err != nil {
			return "", err
		}
	}
	missing := fmt.Sprintf("%d of %d pods are ready", ready, wanted.Server.Replicas)
	if hindrance != "" {
		missing += "; " + hindrance
	}
	left := serverStart - waited
	if left <= 0 {
		r.starting.Delete(set.UID)
		told := ", which it is told as PORT"
		if len(wanted.Command) > 0 {
			told = ""
		}
		return "", r.end(ctx, p, loadtest.Errored(fmt.Sprintf("The %s of %s was not ready within %s: %s. It is ready when it listens on port %d%s.",
			what, p.run.Compared(), serverStart, missing, wanted.Server.Port, told)))
	}
	p.DueIn(min(left, lookAgain))
	r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionFalse, reasonStarting, missing)
	return "", p.wait("%s: waiting for the %s %s: %s", p.row.Name, what, set.Name, missing)
}

// hindranceOf says why a pod of a server is not ready. Empty: nobody knows yet.
func hindranceOf(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		if ended := cmp.Or(container.State.Terminated, container.LastTerminationState.Terminated); ended != nil {
			text := fmt.Sprintf("pod %s: container %s ended with exit code %d", pod.Name, container.Name, ended.ExitCode)
			if said := strings.TrimSpace(ended.Message); said != "" {
				text += ": " + loadtest.Short(runner.Sentence(said), longestSaid)
			}
			return text
		}
	}
	return runner.Trouble(pod)
}

// longestSaid is how much of a container's last words is told.
const longestSaid = 300

// serverPods are the pods that the server's own StatefulSet made, in the order of their names: anybody may give a pod a label.
func (r *Reconciler) serverPods(ctx context.Context, set *appsv1.StatefulSet) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.Tests.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels{rival.ServerLabel: set.Name}); err != nil {
		return nil, fmt.Errorf("listing the server's pods: %w", err)
	}
	own := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, set) })
	slices.SortFunc(own, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return own, nil
}

// askServer begins to ask what the pods of a server use.
func (r *Reconciler) askServer(ctx context.Context, set *appsv1.StatefulSet) (*round, error) {
	pods, err := r.serverPods(ctx, set)
	if err != nil {
		return nil, err
	}
	return r.ask(ctx, int(*set.Spec.Replicas), pods, func(ctx context.Context, address string) (agentclient.Metrics, error) {
		return r.Agents.Usage(ctx, address, rival.UsagePort)
	}), nil
}

// ownServers are what the server of the run, and what stands in front of it, are made of, as far as it is there and not somebody else's.
func (r *Reconciler) ownServers(ctx context.Context, p *pass) ([]client.Object, error) {
	var objects []client.Object
	if p.run.Server != nil {
		server, err := r.serverOf(p.benchmark, *p.run)
		if err != nil {
			return nil, err
		}
		objects = append(objects, server.Objects()...)
	}
	if p.benchmark.Spec.Proxy != nil {
		proxy, err := r.proxyOf(p.benchmark, *p.run, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, proxy.Objects()...)
	}
	var own []client.Object
	for _, object := range objects {
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking up %T %s: %w", object, object.GetName(), err)
		}
		if err == nil && metav1.IsControlledBy(object, p.benchmark) {
			own = append(own, object)
		}
	}
	return own, nil
}
