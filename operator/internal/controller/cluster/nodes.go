package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

// emptying are the taints with which those who scale clusters say, before they evict anybody, that a node is to go: the Cluster
// Autoscaler, Karpenter of today and before. `kubectl cordon` sets a field, and the first of these follows.
var emptying = []string{corev1.TaintNodeUnschedulable, "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}

// CanSeeNodes is whether the operator may see nodes. With rights in some namespaces only it may not, because nodes are in none.
func CanSeeNodes(ctx context.Context, live client.Reader) (bool, error) {
	err := live.List(ctx, &corev1.NodeList{}, client.Limit(1))
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil, err
}

// slimNode drops from a node what the operator does not read.
func slimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	slim := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			slim.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return slim, nil
}

// whyEmptied says why the node is to be emptied, as the rest of a sentence. Empty: it is not.
func whyEmptied(node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "is cordoned"
	}
	for _, taint := range node.Spec.Taints {
		if slices.Contains(emptying, taint.Key) && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return "has the taint " + taint.Key
		}
	}
	return ""
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// emptyingNodes indexes the nodes that are to be emptied.
func emptyingNodes(object client.Object) []string {
	return []string{strconv.FormatBool(whyEmptied(object.(*corev1.Node)) != "")}
}

func indexNodes(indexer client.FieldIndexer) error {
	byNode := func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }
	if err := indexer.IndexField(context.Background(), &corev1.Pod{}, podNodeIndex, byNode); err != nil {
		return err
	}
	return indexer.IndexField(context.Background(), &corev1.Node{}, emptiedIndex, emptyingNodes)
}

// nodeNewsChanged lets through what matters to the pods of fleets: which nodes are to be emptied, and which take pods.
func nodeNewsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return nodeReady(before) != nodeReady(after) || !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !maps.Equal(before.Labels, after.Labels)
	}}
}

// fleetsOf are the LiveStashClusters that look at their pods when a node has changed: those with a pod on it when it is to be emptied.
// When it is not, it may be the one that the pods of other nodes wait for.
func (r *Reconciler) fleetsOf(ctx context.Context, object client.Object) []ctrl.Request {
	nodes := &corev1.NodeList{}
	if node := object.(*corev1.Node); whyEmptied(node) != "" {
		nodes.Items = []corev1.Node{*node}
	} else if err := r.List(ctx, nodes, client.MatchingFields{emptiedIndex: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the nodes that are to be emptied")
		return nil
	}
	var requests []ctrl.Request
	for i := range nodes.Items {
		pods := &corev1.PodList{}
		if err := r.List(ctx, pods, client.MatchingFields{podNodeIndex: nodes.Items[i].Name}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the pods of a node", "node", nodes.Items[i].Name)
			return nil
		}
		for j := range pods.Items {
			requests = append(requests, clusterOf(ctx, &pods.Items[j])...)
		}
	}
	return requests
}

// stacked are the LiveStashClusters that are to be spread and of which a node has two pods or more. When another node comes or goes, it
// may be that they are not spread any more, or are again.
type stacked struct {
	mutex  sync.Mutex
	fleets map[types.NamespacedName]bool
}

// note notes whether it is one of them.
func (s *stacked) note(fleet types.NamespacedName, is bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !is {
		delete(s.fleets, fleet)
		return
	}
	if s.fleets == nil {
		s.fleets = map[types.NamespacedName]bool{}
	}
	s.fleets[fleet] = true
}

func (s *stacked) requests() []ctrl.Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	requests := make([]ctrl.Request, 0, len(s.fleets))
	for fleet := range s.fleets {
		requests = append(requests, ctrl.Request{NamespacedName: fleet})
	}
	return requests
}

// lookAtSpread is how long after a node has changed stacked LiveStashClusters look again: machines come and go in dozens, and each
// change more in that time brings no further pass.
const lookAtSpread = 5 * time.Second

// rouseStacked has the stacked LiveStashClusters look again when a node has changed: after all others, because nobody waits for it.
func (r *Reconciler) rouseStacked() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	look := func(q queue) {
		requests := r.stacked.requests()
		if behind, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
			behind.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority), After: lookAtSpread}, requests...)
			return
		}
		for _, request := range requests {
			q.AddAfter(request, lookAtSpread)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { look(q) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { look(q) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { look(q) },
	}
}

// placement is where pods are that should be elsewhere.
type placement struct {
	// emptied is why nodes on which the fleet has pods are to be emptied, by the nodes' names.
	emptied map[string]string
	// full says why the pods cannot go to another node. Empty: they can.
	full string
	// uneven says which node has more of the pods than it must. Empty: they are spread as evenly as the nodes allow.
	uneven string
}

// observeNodes looks for pods on nodes that are to be emptied. It asks the cache only.
func (r *Reconciler) observeNodes(ctx context.Context, c *v1alpha1.LiveStashCluster, seen *observation) error {
	if !r.SeesNodes {
		return nil
	}
	template := &seen.statefulSet.Spec.Template.Spec
	spreads := len(template.TopologySpreadConstraints) > 0
	perNode := seen.perNode()
	_, most := fullest(perNode)
	// Before the nodes are looked at: of one that comes afterwards this LiveStashCluster is told.
	r.stacked.note(client.ObjectKeyFromObject(c), spreads && most > 1)
	if len(perNode) == 0 {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := r.List(ctx, nodes, client.MatchingFields{emptiedIndex: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the nodes that are to be emptied: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if !comesBack(node, template) && slices.ContainsFunc(seen.members, func(m member) bool { return m.Spec.NodeName == node.Name }) {
			if seen.emptied == nil {
				seen.emptied = map[string]string{}
			}
			seen.emptied[node.Name] = whyEmptied(node)
		}
	}
	if len(seen.emptied) == 0 && most < 2 {
		return nil
	}
	all := &corev1.NodeList{}
	if err := r.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if spreads {
		seen.uneven = seen.notSpread(perNode, all.Items)
	}
	if len(seen.emptied) > 0 && !slices.ContainsFunc(all.Items, func(node corev1.Node) bool { return takes(&node, template) }) {
		seen.full = "no other node is ready, not cordoned, and one that the pod's node selector, affinity and tolerations let it run on: add such a node, or uncordon one"
	}
	return nil
}

// perNode counts the fleet's pods by the nodes that they are on.
func (o *observation) perNode() map[string]int {
	count := map[string]int{}
	for i := range o.members {
		if node := o.members[i].Spec.NodeName; node != "" {
			count[node]++
		}
	}
	return count
}

// fullest is the node with the most pods, by name where there are several.
func fullest(perNode map[string]int) (name string, pods int) {
	for node, n := range perNode {
		if n > pods || n == pods && node < name {
			name, pods = node, n
		}
	}
	return name, pods
}

// notSpread is what is wrong when the fullest node has two pods more than another one that would take some: the emptiest of these is told
// of, the first by name. Kubernetes looks at the spread when it places a pod, and never again.
func (o *observation) notSpread(perNode map[string]int, nodes []corev1.Node) string {
	full, most := fullest(perNode)
	empty, least := "", most-1
	for i := range nodes {
		name := nodes[i].Name
		better := perNode[name] < least || perNode[name] == least && empty != "" && name < empty
		if better && takes(&nodes[i], &o.statefulSet.Spec.Template.Spec) {
			empty, least = name, perNode[name]
		}
	}
	if empty == "" {
		return ""
	}
	return fmt.Sprintf("%d of %d pods are on %s and %d on %s, so that one lost machine takes more of them than it must: "+
		"a rollout spreads them, and so does kubectl livestash restart, if %[5]s has room", most, len(o.members), full, least, empty)
}

// comesBack is whether a pod would, to the node that it has left, and be taken off it again, for ever.
func comesBack(node *corev1.Node, template *corev1.PodSpec) bool {
	return fleet.StaysOnCordoned(template) || !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return slices.Contains(emptying, taint.Key) && !fleet.Tolerates(template, &taint)
	})
}

// takes is whether a pod of the template could run on the node, as far as the node alone tells. Whether it has room is not looked at.
func takes(node *corev1.Node, template *corev1.PodSpec) bool {
	if whyEmptied(node) != "" || !nodeReady(node) || !labels.SelectorFromSet(template.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !fleet.Tolerates(template, &taint) {
			return false
		}
	}
	if template.Affinity == nil || template.Affinity.NodeAffinity == nil {
		return true
	}
	required := template.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required == nil || slices.ContainsFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return matches(term.MatchExpressions, node.Labels) && matches(term.MatchFields, map[string]string{metav1.ObjectNameField: node.Name})
	})
}

// matches is whether a node's labels, or fields, are as all of the expressions ask for. One that cannot be read is the scheduler's to
// refuse.
func matches(expressions []corev1.NodeSelectorRequirement, has map[string]string) bool {
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
		corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
	}
	for _, expression := range expressions {
		requirement, err := labels.NewRequirement(expression.Key, operators[expression.Operator], expression.Values)
		if err == nil && !requirement.Matches(labels.Set(has)) {
			return false
		}
	}
	return true
}

// misplaced names the first pod that is on a node which is to be emptied, and says why. Both are empty when none is.
func (o *observation) misplaced() (pod, why string) {
	for i := range o.members {
		if m := &o.members[i]; o.emptied[m.Spec.NodeName] != "" && !o.lost(m) {
			return m.Name, fmt.Sprintf("%s %s", m.Spec.NodeName, o.emptied[m.Spec.NodeName])
		}
	}
	return "", ""
}

// moves is whether pods are leaving nodes, or the one that takes their users over is being made.
func (p *pass) moves() bool {
	pod, _ := p.seen.misplaced()
	outdated := slices.ContainsFunc(p.seen.members, func(m member) bool { return !m.updated })
	return p.plan.Phase == rollout.Moving || p.plan.Phase == rollout.Surging && pod != "" && !outdated
}

// placed: no pod is on a node that is to be emptied, and of a fleet at rest no node has more than its share. It has no reason when that
// is so: nothing is told of it then.
func placed(p *pass, outcome error) metav1.Condition {
	pod, why := p.seen.misplaced()
	if pod == "" && p.seen.uneven != "" && p.seen.settled() && p.plan.Phase == rollout.Complete {
		return metav1.Condition{
			Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSpread, Message: p.seen.uneven,
		}
	}
	if pod == "" {
		return metav1.Condition{}
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonLeavingNode}
	doing := fmt.Sprintf("%s has to leave its node: %s", pod, why)
	switch {
	case !p.planned && outcome != nil:
		condition.Reason, _ = reconcile.ReasonAndMessage(outcome)
		condition.Message = doing + "; it stays as long as ReconcileSucceeded is False"
	case p.seen.full != "":
		condition.Reason, condition.Message = v1alpha1.ReasonNoOtherNode, fmt.Sprintf("%s; it stays, because %s", doing, p.seen.full)
	case p.plan.Phase == rollout.Complete:
		condition.Message = doing
	default:
		condition.Message = because(doing, p.plan.Waiting)
	}
	return condition
}
