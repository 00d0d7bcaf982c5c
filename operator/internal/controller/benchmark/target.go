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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// payloadVariable tells the workloads how much to stash.
const payloadVariable = "STASH_PAYLOAD_KEYS"

// onPageVariable says whether its page shows what it stashes.
const onPageVariable = "STASH_PAYLOAD_ON_PAGE"

// checkRuns refuses a spec.runDeadline that no run can keep, and a spec.parallelism with which a runner would have too many users. The API
// refuses what it can see; here are presets, scale and the steps of a search, too.
func (r *Reconciler) checkRuns(_ context.Context, p *pass) error {
	if p.benchmark.Status.StartedAt != nil {
		return nil
	}
	for _, run := range p.runs {
		if run.Deadline < run.Duration+loadtest.LeastSlack {
			return r.giveUp(p, fmt.Sprintf("Run %s lasts %s, and spec.runDeadline of %s leaves no time for its fleet and its runners to start: set it to %s at least, or remove it.",
				run.Name, run.Duration, run.Deadline, run.Duration+loadtest.LeastSlack))
		}
	}
	largest := slices.MaxFunc(p.runs, func(a, b loadtest.Run) int { return cmp.Compare(a.LeastRunners(), b.LeastRunners()) })
	if need := largest.LeastRunners(); largest.Runners < need {
		return r.giveUp(p, fmt.Sprintf("Run %s needs %d runners, because each has file descriptors for 19,500 users or connections, and spec.parallelism is %d: set it to that, or remove it.",
			largest.Name, need, largest.Runners))
	}
	return nil
}

// tryTemplate asks the API server for the runners and for each variant's fleet before anything is started: what it refuses would be refused
// hours later otherwise.
func (r *Reconciler) tryTemplate(ctx context.Context, p *pass) error {
	if p.benchmark.Status.StartedAt != nil {
		return nil
	}
	if err := r.tryRunners(ctx, p); err != nil {
		return err
	}
	if p.benchmark.Spec.Proxy != nil {
		if err := r.tryProxy(ctx, p, p.runs[0]); err != nil {
			return err
		}
	}
	if p.benchmark.Spec.Target.Template == nil {
		return nil
	}
	tried := map[string]bool{}
	for _, run := range p.runs {
		if tried[run.Variant] {
			continue
		}
		tried[run.Variant] = true
		if run.Server != nil {
			if err := r.tryServer(ctx, p, run); err != nil {
				return err
			}
			continue
		}
		if err := r.tryFleet(ctx, p, run); err != nil {
			return err
		}
	}
	return nil
}

// tryRunners asks for the Job of the first run without making it, also where k6-operator is to make one: that tells nobody when it cannot.
func (r *Reconciler) tryRunners(ctx context.Context, p *pass) error {
	test := testOf(p)
	test.Name, test.Image = cmp.Or(test.Name, p.benchmark.Name), cmp.Or(test.Image, r.RunnerImage)
	problem, err := r.checkScript(ctx, test)
	if err != nil {
		return err
	}
	if problem == "" {
		err = r.Create(ctx, r.Job.Object(test), client.DryRunAll)
		problem = refusal(err)
	}
	if problem != "" {
		return r.giveUp(p, problem)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("trying the runners: %w", err)
	}
	return nil
}

// tryFleet asks for the fleet of a run without making it.
func (r *Reconciler) tryFleet(ctx context.Context, p *pass, run loadtest.Run) error {
	wanted, err := freshFleet(p.benchmark, run)
	if err != nil {
		return err
	}
	err = r.Create(ctx, wanted, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	if sentence := refusal(err); sentence != "" {
		return r.giveUp(p, fmt.Sprintf("target.template makes no LiveStashCluster with %s: %s", run.Compared(), sentence))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("trying the template with %s: %w", run.Compared(), err)
	}
	// The answer has the defaults.
	agent, said, _ := unstructured.NestedBool(wanted.Object, "spec", "agent", "enabled")
	if p.benchmark.Spec.Thresholds.MinCollections != nil && said && !agent {
		return r.giveUp(p, fmt.Sprintf("thresholds.minCollections is asked of the agents of the fleet, and spec.agent.enabled is false with %s: remove one of them.", run.Compared()))
	}
	return nil
}

// refusal is the API server's sentence about an object that it does not take. Empty for other errors, and for none.
func refusal(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err) {
		return ""
	}
	return status.Status().Message
}

// freshFleet is the LiveStashCluster of a run.
func freshFleet(b *v1alpha1.LiveStashBenchmark, run loadtest.Run) (*unstructured.Unstructured, error) {
	spec, err := fieldsOf(b.Spec.Target.Template.Spec)
	if err != nil {
		return nil, fmt.Errorf("reading target.template: %w", err)
	}
	if run.Patch != nil {
		patch, err := fieldsOf(run.Patch)
		if err != nil {
			return nil, fmt.Errorf("reading the patch of variant %s: %w", run.Variant, err)
		}
		merge(spec, patch)
	}
	spec["adapter"] = string(run.Adapter)
	if run.TTL > 0 {
		spec["ttl"] = run.TTL.String()
	}
	for _, field := range store.Unread(run.Adapter) {
		delete(spec, field) // it is said once for all runs, and read by one adapter
	}
	delete(spec, "whenDeleted") // nothing of a run outlives it
	if !loadtest.Stashless(b.Spec.Scenario) {
		keys, onPage := loadtest.Payload(&b.Spec)
		env, _ := spec["env"].([]any)
		spec["env"] = append(env,
			map[string]any{"name": payloadVariable, "value": fmt.Sprint(keys)},
			map[string]any{"name": onPageVariable, "value": strings.ToLower(string(onPage))})
	}

	wanted := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	wanted.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LiveStashCluster"))
	wanted.SetNamespace(b.Namespace)
	wanted.SetName(run.Name)
	wanted.SetLabels(labelsOf(b))
	wanted.SetOwnerReferences([]metav1.OwnerReference{ownerReference(b)})
	return wanted, nil
}

// fieldsOf is a part of a spec as the user wrote it.
func fieldsOf(part any) (map[string]any, error) {
	text, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	return fields, json.Unmarshal(text, &fields)
}

// merge puts the fields of a patch in the place of those that are there: objects field by field, env by name, other lists as a whole.
func merge(fields, patch map[string]any) {
	for name, value := range patch {
		object, isObject := value.(map[string]any)
		there, wasObject := fields[name].(map[string]any)
		switch {
		case isObject && wasObject:
			merge(there, object)
		case name == "env":
			fields[name] = mergedEnv(fields[name], value)
		default:
			fields[name] = value
		}
	}
}

// mergedEnv are environment variables with those of a patch, which take the place of others of their names.
func mergedEnv(env, patch any) any {
	all, _ := env.([]any)
	more, _ := patch.([]any)
	nameOf := func(variable any) any {
		fields, _ := variable.(map[string]any)
		return fields["name"]
	}
	merged := slices.Clone(all)
	for _, variable := range more {
		place := slices.IndexFunc(merged, func(other any) bool { return nameOf(other) == nameOf(variable) })
		if place < 0 {
			merged = append(merged, variable)
			continue
		}
		merged[place] = variable
	}
	return merged
}

// labelsOf are on everything that the benchmark makes.
func labelsOf(b *v1alpha1.LiveStashBenchmark) map[string]string {
	return map[string]string{
		runner.BenchmarkLabel:          b.Name,
		"app.kubernetes.io/part-of":    "livestash",
		"app.kubernetes.io/managed-by": "livestash-operator",
	}
}

func ownerReference(b *v1alpha1.LiveStashBenchmark) metav1.OwnerReference {
	return *metav1.NewControllerRef(b, v1alpha1.GroupVersion.WithKind("LiveStashBenchmark"))
}

// findTarget finds the servers of the run, or makes them, and what stands in front of them, and waits until they are ready.
func (r *Reconciler) findTarget(ctx context.Context, p *pass) error {
	reason, serves, err := r.findServers(ctx, p)
	if err == nil && p.benchmark.Spec.Proxy != nil {
		reason, serves, err = r.findProxy(ctx, p)
	}
	if err == nil && serves != "" {
		r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionTrue, reason, serves)
	}
	return err
}

// findServers returns why the target is taken for ready; nothing of a run that is under way: what happens to its servers then is measured.
func (r *Reconciler) findServers(ctx context.Context, p *pass) (reason, serves string, err error) {
	target := p.benchmark.Spec.Target
	if target.URL != "" {
		p.bases = []string{target.URL}
		return reasonBelieved, "the URL is believed; the runners look whether it gives the page", nil
	}
	if p.run.Server != nil {
		return r.findServer(ctx, p)
	}
	if err := r.findCluster(ctx, p); err != nil || p.seen.Made {
		return "", "", err
	}
	if problem := mismatch(p); problem != "" {
		return "", "", r.end(ctx, p, loadtest.Errored(problem))
	}
	if missing := unready(p.cluster); missing != "" {
		r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionFalse, reasonStarting, missing)
		return "", "", p.wait("%s: waiting for LiveStashCluster %s: %s", p.row.Name, p.cluster.Name, missing)
	}
	return reasonServes, fmt.Sprintf("LiveStashCluster %s is available, clustered, and its store is ready", p.cluster.Name), nil
}

func (r *Reconciler) findCluster(ctx context.Context, p *pass) error {
	reference := p.benchmark.Spec.Target.ClusterRef
	cluster := &v1alpha1.LiveStashCluster{}
	name := p.row.Name
	if reference != nil {
		name = reference.Name
	}
	err := r.Get(ctx, client.ObjectKey{Namespace: p.benchmark.Namespace, Name: name}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking up LiveStashCluster %s: %w", name, err)
	}
	found := err == nil
	if missing := missingTarget(p, cluster, name, found); missing != "" {
		r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionFalse, reasonMissing, missing)
		if p.seen.Made {
			return r.end(ctx, p, loadtest.Errored(missing))
		}
		return p.wait("%s: %s", p.row.Name, missing)
	}
	switch {
	case !found && p.seen.Over():
		return nil
	case !found:
		return r.makeFleet(ctx, p)
	case reference == nil && !metav1.IsControlledBy(cluster, p.benchmark):
		return r.end(ctx, p, loadtest.Errored(fmt.Sprintf(
			"LiveStashCluster %s exists and does not belong to this benchmark: delete it, or give the LiveStashBenchmark another name.", name)))
	}
	p.cluster = cluster
	p.bases, err = r.addresses(ctx, p)
	return err
}

// addresses are those of the fleet: of its Service, or of its pods, which do not count from 0 after a rollout with a surge that stays.
func (r *Reconciler) addresses(ctx context.Context, p *pass) ([]string, error) {
	inputs := render.Inputs{ClusterDomain: r.ClusterDomain}
	if p.benchmark.Spec.Routing == v1alpha1.RoutingService {
		return []string{fleet.ServiceURL(p.cluster, inputs)}, nil
	}
	set, err := r.setOf(ctx, p.cluster)
	if err != nil {
		return nil, err
	}
	if set != nil {
		inputs.Start = render.StartOf(set)
	}
	return fleet.PodURLs(p.cluster, inputs), nil
}

// missingTarget says why there is no fleet that could be measured: none of that name, or one that is told to go, which may take long. Empty:
// there is one, or the benchmark makes it.
func missingTarget(p *pass, cluster *v1alpha1.LiveStashCluster, name string, found bool) string {
	leaves := found && !cluster.DeletionTimestamp.IsZero()
	isOwn := p.benchmark.Spec.Target.ClusterRef == nil
	switch {
	case found && !leaves, p.seen.Over():
		return ""
	case p.seen.Made:
		return fmt.Sprintf("LiveStashCluster %s was deleted while the run went on.", name)
	case leaves && isOwn:
		return fmt.Sprintf("a LiveStashCluster %s is there and is being deleted", name)
	case leaves:
		return fmt.Sprintf("LiveStashCluster %s is being deleted: make it again", name)
	case isOwn:
		return ""
	}
	return fmt.Sprintf("There is no LiveStashCluster %s in namespace %s: make it, or make a new LiveStashBenchmark with another spec.target.clusterRef.name",
		name, p.benchmark.Namespace)
}

func (r *Reconciler) makeFleet(ctx context.Context, p *pass) error {
	wanted, err := freshFleet(p.benchmark, *p.run)
	if err != nil {
		return err
	}
	err = r.Create(ctx, wanted, apply.FieldOwner)
	if sentence := refusal(err); sentence != "" {
		return r.end(ctx, p, loadtest.Errored(sentence))
	}
	if err != nil {
		return fmt.Errorf("creating LiveStashCluster %s: %w", wanted.GetName(), err)
	}
	r.setCondition(p, v1alpha1.ConditionTargetReady, metav1.ConditionFalse, reasonStarting, "the fleet was asked for")
	return p.wait("%s: its fleet is being made", p.row.Name)
}

// mismatch says why a fleet that exists cannot be the target of the run.
func mismatch(p *pass) string {
	c := p.cluster
	ttl := time.Duration(c.TTLSeconds()) * time.Second
	if c.Spec.Adapter == p.run.Adapter && (ttl == p.run.TTL || loadtest.Stashless(p.run.Scenario)) {
		return ""
	}
	return fmt.Sprintf("LiveStashCluster %s has adapter %s and a TTL of %s, and the run wants %s and %s: change spec.matrix, or set target.template.",
		c.Name, c.Spec.Adapter, ttl, p.run.Adapter, p.run.TTL)
}

// unready says what a fleet lacks; empty when it serves, every node sees every other and the store answers.
func unready(c *v1alpha1.LiveStashCluster) string {
	if c.Status.ObservedGeneration != c.Generation {
		return "the operator has not looked at it yet"
	}
	for _, kind := range []string{v1alpha1.ConditionReconcileSucceeded, v1alpha1.ConditionAvailable, v1alpha1.ConditionClustered, v1alpha1.ConditionStoreReady} {
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		switch {
		case condition == nil:
			return kind + " is not known yet"
		case condition.Status == metav1.ConditionTrue, condition.Reason == v1alpha1.ReasonAgentDisabled:
		default:
			return fmt.Sprintf("%s is %s: %s", kind, condition.Status, condition.Message) + hindrance(c)
		}
	}
	// Available allows for one pod that is away.
	if progressing := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing); progressing == nil || progressing.Status != metav1.ConditionFalse {
		return "not all pods are ready" + hindrance(c)
	}
	return ""
}

// hindrance says what holds the fleet's pods up, to be added to what it lacks. Empty: nothing, as far as is known.
func hindrance(c *v1alpha1.LiveStashCluster) string {
	progressing := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing == nil || !slices.Contains([]string{v1alpha1.ReasonPodFailing, v1alpha1.ReasonPodNotMade, v1alpha1.ReasonRolloutStuck}, progressing.Reason) {
		return ""
	}
	return "; " + progressing.Message
}
