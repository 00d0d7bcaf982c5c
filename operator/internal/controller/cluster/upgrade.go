package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/kept"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

const (
	// upgradingAnnotation is on the StatefulSets of a fleet whose pods are replaced because the operator is another version: since when,
	// as RFC 3339. It holds the fleet's turn, whatever becomes of the operator.
	upgradingAnnotation = "livestash.dev/upgrading"
	// lookForTurn is how often a fleet that waits for its turn looks who holds it up. That a turn has ended is told at once.
	lookForTurn = time.Minute
	// restartedAnnotation is what `kubectl rollout restart` writes into a template.
	restartedAnnotation = "kubectl.kubernetes.io/restartedAt"
	// unknownVersion is that of an operator that left no notes.
	unknownVersion = "unknown"
)

// upgrade is what a pass knows about the templates of the fleet's pods.
type upgrade struct {
	// operator is this one's version, version that of the operator that made the fleet's template, redisVersion that of its Redis'.
	operator, version, redisVersion string
	// kept says which pods keep a template that this operator would render otherwise.
	kept []string
	// since is when the operator began to replace the pods because it is another version. Zero: it does not.
	since time.Time
	// waits is whether it waits for its turn. heldUp says which fleet that has one does not get on, and why; empty: all do.
	waits  bool
	heldUp string
}

// operator is this one, as the StatefulSets that it renders name it.
func (r *Reconciler) operator() kept.Operator {
	parts := []string{r.Version, r.AgentImage, r.RedisImage, r.RedisExporterImage, r.ClusterDomain}
	return kept.Operator{Version: r.Version, Identity: render.Digest(strings.Join(parts, "\n"))}
}

// podSet is a StatefulSet that is wanted, the one that there is, and what both are made of.
type podSet struct {
	wanted, live *appsv1.StatefulSet
	fresh        kept.Wanted
	// note is what the live one's annotations say, had what they or it itself are made of.
	note kept.Note
	had  kept.Rendering
	// noted is the note to make when the pods keep what they have; keeps is whether they may.
	noted kept.Note
	keeps bool
}

// keepTemplates has pods keep the templates that another version of the operator made, until their next rollout of their own, or their
// turn to be upgraded.
func (r *Reconciler) keepTemplates(ctx context.Context, p *pass) error {
	sets, err := r.podSets(ctx, p)
	if err != nil {
		return err
	}
	p.upgrade = &upgrade{operator: r.Version, since: upgradingSince(sets)}
	behind := slices.ContainsFunc(sets, func(s *podSet) bool { return s.keeps })
	if behind && r.upgrades(p.cluster) {
		if err := r.takeTurn(ctx, p); err != nil {
			return err
		}
	}
	if !p.upgrade.since.IsZero() && r.upgrades(p.cluster) {
		renew(sets)
	}
	if p.upgrade.since.IsZero() || p.upgraded(sets) {
		p.upgrade.since = time.Time{}
		r.turns.end(client.ObjectKeyFromObject(p.cluster))
	}
	if !p.upgrade.since.IsZero() && p.plan.Phase == rollout.Complete {
		p.DueIn(lookAtRollout) // that the status says Ready is no event
	}
	for _, set := range sets {
		if err := p.settle(set); err != nil {
			return err
		}
	}
	return nil
}

// podSets are the wanted StatefulSets.
func (r *Reconciler) podSets(ctx context.Context, p *pass) ([]*podSet, error) {
	var sets []*podSet
	for _, object := range p.objects {
		wanted, ok := object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		set := &podSet{wanted: wanted, live: p.seen.statefulSet, fresh: kept.Want(r.operator(), p.cluster, wanted.Spec.Template, p.objects)}
		if wanted.Name != p.cluster.Name {
			set.live = &appsv1.StatefulSet{}
			err := r.Get(ctx, client.ObjectKeyFromObject(wanted), set.live)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("looking up StatefulSet %s: %w", wanted.Name, err)
			}
		}
		if err := r.compare(ctx, p, set); err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// compare finds out whether the pods may keep what they have.
func (r *Reconciler) compare(ctx context.Context, p *pass, set *podSet) error {
	if set.live.UID == "" || !metav1.IsControlledBy(set.live, p.cluster) {
		return nil
	}
	set.note = kept.Read(set.live.Annotations)
	if set.note.Digest == set.fresh.Digest {
		return nil
	}
	if had := set.note.Rendering(set.live.Annotations); had != nil {
		set.had = *had
	} else if err := r.adopt(ctx, p, set); err != nil {
		return err
	}
	set.noted, set.keeps = set.fresh.Keeps(set.note, set.had)
	if set.wanted.Name == p.cluster.Name && p.seen.deserted() {
		set.keeps = false // there is no pod that could keep anything
	}
	return nil
}

// adopt takes what the StatefulSet has for what was rendered, because its annotations do not tell: an operator made it that left no
// notes. What that one has acted on is in the status.
func (r *Reconciler) adopt(ctx context.Context, p *pass, set *podSet) error {
	asWanted, err := apply.Covers(&set.live.Spec.Template, &set.fresh.Rendering.Template)
	if err != nil {
		return err
	}
	if asWanted {
		set.note.Digest = set.fresh.Digest
		return nil
	}
	var files []client.Object
	for name := range set.fresh.Rendering.Files {
		config := &corev1.ConfigMap{}
		err := r.Get(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: name}, config)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("looking up ConfigMap %s: %w", name, err)
		}
		files = append(files, config)
	}
	template := set.live.Spec.Template.DeepCopy()
	delete(template.Annotations, restartedAnnotation) // it stays kubectl's
	set.had = kept.Of(*template, files)
	set.note.Digest = set.had.Digest()
	if set.note.By != "" {
		return nil // the rendering was too large to be noted, or somebody has changed it
	}
	set.note.Version = unknownVersion
	acted := meta.FindStatusCondition(p.cluster.Status.Conditions, v1alpha1.ConditionReconcileSucceeded)
	if acted != nil && acted.Status == metav1.ConditionTrue {
		set.note.Generation = acted.ObservedGeneration
	}
	return nil
}

// upgrades is whether the fleet's pods are replaced because the operator is another version.
func (r *Reconciler) upgrades(c *v1alpha1.LiveStashCluster) bool {
	policy := c.Spec.Upgrade
	if policy == "" {
		policy = r.Upgrade
	}
	return policy == v1alpha1.UpgradeImmediately
}

// renew lets the pods have what this operator renders.
func renew(sets []*podSet) {
	for _, set := range sets {
		set.keeps = false
	}
}

// settle gives a wanted StatefulSet its template, and the notes of it.
func (p *pass) settle(set *podSet) error {
	rendering, note := set.fresh.Rendering, set.fresh.Note()
	if set.keeps {
		rendering, note = set.had, set.noted
		p.upgrade.kept = append(p.upgrade.kept, fmt.Sprintf("StatefulSet %s keeps what operator %s made", set.wanted.Name, note.Version))
		set.wanted.Spec.Template = rendering.Template
		p.keepFiles(rendering.Files)
	}
	annotations, err := note.Annotations(rendering, set.live.Annotations)
	if err != nil {
		return err
	}
	switch {
	case !p.upgrade.since.IsZero():
		annotations[upgradingAnnotation] = p.upgrade.since.UTC().Format(time.RFC3339)
	case set.live.Annotations[upgradingAnnotation] != "":
		annotations[upgradingAnnotation] = "" // else it would stay if somebody else has written it
	}
	set.wanted.Annotations = render.Merged(set.wanted.Annotations, annotations)
	if set.wanted.Name == p.cluster.Name {
		p.upgrade.version = note.Version
		return nil
	}
	p.upgrade.redisVersion = note.Version
	return nil
}

// keepFiles has ConfigMaps hold what pods were made with.
func (p *pass) keepFiles(files map[string]map[string]string) {
	for name, data := range files {
		at := slices.IndexFunc(p.objects, func(object client.Object) bool {
			config, ok := object.(*corev1.ConfigMap)
			return ok && config.Name == name
		})
		if at >= 0 {
			p.objects[at].(*corev1.ConfigMap).Data = data
			continue
		}
		config := &corev1.ConfigMap{TypeMeta: render.ConfigMapType, ObjectMeta: render.ObjectMeta(p.cluster, name), Data: data}
		config.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(p.cluster)}
		p.objects = slices.Insert(p.objects, 0, client.Object(config))
	}
}

// upgradingSince is since when the StatefulSets say that they are upgraded. Zero: they are not.
func upgradingSince(sets []*podSet) time.Time {
	for _, set := range sets {
		if since := timeIn(set.live.Annotations, upgradingAnnotation); !since.IsZero() {
			return since
		}
	}
	return time.Time{}
}

// deserted is whether there are no pods, and are to be none.
func (o *observation) deserted() bool {
	return o.statefulSet.UID != "" && o.replicas() == 0 && len(o.members) == 0
}

// upgraded is whether every pod has what this operator renders, and the fleet is Ready with it. What the status says is of the last
// pass, and may be of a time before the pods were replaced.
func (p *pass) upgraded(sets []*podSet) bool {
	if p.seen.deserted() {
		return true // nobody is touched any more
	}
	for _, set := range sets {
		if asWanted := set.keeps || set.note.Digest == set.fresh.Digest; !asWanted || !hasRolledOut(set.live) {
			return false
		}
	}
	ready := meta.FindStatusCondition(p.cluster.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == p.cluster.Generation &&
		p.plan.Phase == rollout.Complete && len(p.seen.waited) == 0
}

// hasRolledOut is whether all pods have the StatefulSet's template, and are ready.
func hasRolledOut(set *appsv1.StatefulSet) bool {
	replicas, status := ptr.Deref(set.Spec.Replicas, 1), set.Status
	// With OnDelete nobody notes the new revision as the current one, before Kubernetes 1.37.
	noted := status.CurrentRevision == status.UpdateRevision || set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	return set.Generation == status.ObservedGeneration && noted &&
		status.UpdatedReplicas == replicas && status.ReadyReplicas == replicas && status.Replicas == replicas
}

// upToDate: the pods are as this operator makes them.
func upToDate(u *upgrade) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse}
	kept := few(u.kept)
	switch {
	case !u.since.IsZero():
		condition.Reason = v1alpha1.ReasonUpgrading
		condition.Message = fmt.Sprintf("since %s pods are being replaced by those that operator %s makes", u.since.UTC().Format(time.RFC3339), u.operator)
	case u.heldUp != "":
		condition.Reason = v1alpha1.ReasonUpgradeHeldUp
		condition.Message = fmt.Sprintf("%s until it is this fleet's turn, which is held up: %s", kept, u.heldUp)
	case u.waits:
		condition.Reason, condition.Message = v1alpha1.ReasonWaitingForTurn, kept+" until it is this fleet's turn to be upgraded"
	case len(u.kept) > 0:
		condition.Reason = v1alpha1.ReasonTemplateKept
		condition.Message = fmt.Sprintf("%s until its next rollout of its own; spec.upgrade: Immediately brings what operator %s makes", kept, u.operator)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonTemplateCurrent
		condition.Message = fmt.Sprintf("the pods are as operator %s makes them", u.operator)
	}
	return condition
}

// tell puts into the status what the pass knows of the templates. When it has not come so far, what was told stands.
func (u *upgrade) tell(status *v1alpha1.LiveStashClusterStatus, c *v1alpha1.LiveStashCluster) {
	if u == nil {
		return
	}
	status.OperatorVersion, status.UpgradeStarted = u.version, nil
	if !u.since.IsZero() {
		status.UpgradeStarted = ptr.To(seconds(u.since))
	}
	if status.Redis != nil {
		status.Redis = status.Redis.DeepCopy()
		status.Redis.OperatorVersion = u.redisVersion
	}
	setConditions(&status.Conditions, c, []metav1.Condition{upToDate(u)})
}
