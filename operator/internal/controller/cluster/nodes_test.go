package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

var nodeNumber atomic.Int32

// newNode is a node that is ready and on which no other test has pods. Its label pool is its name.
func newNode(t *testing.T, pool string) *corev1.Node {
	t.Helper()
	name := fmt.Sprintf("%s-%d", pool, nodeNumber.Add(1))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	suite.Must(t, api.Create(t.Context(), node))
	t.Cleanup(func() { _ = api.Delete(context.Background(), node) })
	node.Spec.Taints = nil // The API server says that it is not ready.
	suite.Must(t, api.Update(t.Context(), node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), node))
	return node
}

// cordon is `kubectl cordon`, or uncordon.
func cordon(t *testing.T, node *corev1.Node, cordoned bool) {
	t.Helper()
	before := node.DeepCopy()
	node.Spec.Unschedulable = cordoned
	suite.Must(t, api.Patch(t.Context(), node, client.MergeFrom(before)))
}

// inPool lets the fleet's pods run on the nodes of a pool only.
func inPool(t *testing.T, pool string) func(*v1alpha1.LiveStashClusterSpec) {
	t.Helper()
	override := &v1alpha1.PodSpecOverride{}
	suite.Must(t, override.UnmarshalJSON(fmt.Appendf(nil, `{"nodeSelector":{"pool":%q}}`, pool)))
	return func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: override}
	}
}

// placedAgain waits until nothing is told of nodes any more.
func placedAgain(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil {
			return err
		}
		if found := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionPlaced); found != nil {
			return fmt.Errorf("condition %+v", found)
		}
		return nil
	})
}

// Pods leave a cordoned node one at a time, with the template that they have, and no rollout is told of.
func TestPodsLeaveACordonedNode(t *testing.T) {
	node, other := newNode(t, "leaves"), newNode(t, "leaves")
	cluster, pods := fleetOn(t, 3, node.Name, inPool(t, "leaves"))
	cordon(t, node, true)
	for number := 2; number >= 0; number-- {
		name := pods[number].Name
		stops(t, cluster, name)
		conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonLeavingNode, name+" is stopping")
		conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonLeavingNode, node.Name+" is cordoned")
		looks(t, cluster, "while "+name+" stops")
		gone(t, pods[number], heldTen)
		back := fleetPodOn(t, cluster, number, "a", other.Name)
		acted(t, cluster, "a", "a")
		looks(t, cluster, "while "+name+" starts")
		serves(t, back, wellAmong(3, name))
		acted(t, cluster, "a", "a")
	}
	placedAgain(t, cluster)
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	if len(cluster.Status.Rollouts) > 0 || cluster.Status.Revision != "a" {
		t.Errorf("a rollout is told of: %+v", cluster.Status)
	}
}

// The eviction of the only pod is refused until the operator has taken it away itself: a second one has its users then.
func TestTheOnlyPodLeavesACordonedNode(t *testing.T) {
	node, other := newNode(t, "only"), newNode(t, "only")
	cluster, pods := fleetOn(t, 1, node.Name, inPool(t, "only"))
	budget := await(t, cluster.Namespace, "shop", &policyv1.PodDisruptionBudget{})
	if got := budget.Spec.MaxUnavailable.String(); got != "0" {
		t.Errorf("the budget lets evictions take %s pods", got)
	}
	cordon(t, node, true)
	replicasAre(t, cluster, 2)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonSurging, "shop-0 has to leave its node")
	acted(t, cluster, "a", "a")
	looks(t, cluster, "before there is a second pod")
	second := fleetPodOn(t, cluster, 1, "a", other.Name)
	serves(t, second, wellAmong(2, "shop-1"))
	serves(t, pods[0], wellAmong(2, "shop-0"))
	acted(t, cluster, "a", "a")
	stops(t, cluster, "shop-0")
	gone(t, pods[0], heldTen)
	first := fleetPodOn(t, cluster, 0, "a", other.Name)
	acted(t, cluster, "a", "a")
	looks(t, cluster, "while shop-0 starts")
	serves(t, first, wellAmong(2, "shop-0"))
	acted(t, cluster, "a", "a")
	replicasAre(t, cluster, 1)
	suite.Must(t, api.Delete(t.Context(), second))
	gone(t, second, heldTen)
	acted(t, cluster, "a", "a")
	placedAgain(t, cluster)
}

// Kubernetes spreads pods when it places them. When a machine is lost and another takes its place they are not spread any more, and it is
// said, once the fleet is at rest. Nothing else than the node tells of it.
func TestPodsThatAreNotSpreadAreToldOf(t *testing.T) {
	node := newNode(t, "spread")
	cluster, _ := fleetOn(t, 2, node.Name, inPool(t, "spread"))
	placedAgain(t, cluster)
	other := newNode(t, "spread")
	notSpread := func() {
		t.Helper()
		conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonNotSpread, "2 of 2 pods are on "+node.Name+" and 0 on "+other.Name)
	}
	notSpread()
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)

	later(t, cluster, 0)
	costsNothing(t, "pods that are not spread", func() { looks(t, cluster, "with pods that are not spread") })
	cordon(t, other, true)
	placedAgain(t, cluster)
	cordon(t, other, false)
	notSpread()
	suite.Must(t, api.Delete(t.Context(), other))
	placedAgain(t, cluster)
}

// The cache lists nodes in another order each time. The sentence stays the same, or each look at the fleet would write the status.
func TestOneNodeIsToldOfWhenPodsAreNotSpread(t *testing.T) {
	var nodes []corev1.Node
	for _, name := range []string{"full", "c", "a", "b", "d", "two"} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
	}
	nodes[2].Status.Conditions[0].Status = corev1.ConditionUnknown // a
	perNode := map[string]int{"full": 4, "c": 1, "a": 1, "b": 1, "d": 1, "two": 2}
	seen := &observation{statefulSet: &appsv1.StatefulSet{}}
	for range len(nodes) {
		nodes = append(nodes[1:], nodes[0])
		if told := seen.notSpread(perNode, nodes); !strings.Contains(told, "4 of 0 pods are on full and 1 on b,") {
			t.Errorf("with %s first: %s", nodes[0].Name, told)
		}
	}
	perNode["full"] = 2
	if told := seen.notSpread(perNode, nodes); told != "" {
		t.Errorf("with one pod more: %s", told)
	}
}

// Without another node that would take them, pods stay where they are, and it is said. One is enough.
func TestPodsStayWithoutAnotherNode(t *testing.T) {
	node, other := newNode(t, "stays"), newNode(t, "stays")
	elsewhere := newNode(t, "elsewhere")
	cordon(t, other, true)
	cluster, _ := fleetOn(t, 2, node.Name, inPool(t, "stays"))
	cordon(t, node, true)
	conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoOtherNode, "uncordon one")
	looks(t, cluster, "without another node")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)

	later(t, cluster, 0)
	costsNothing(t, "a node that the pods may not run on", func() {
		cordon(t, elsewhere, true)
		cordon(t, elsewhere, false)
		time.Sleep(lookAtSpread + time.Second)
		looks(t, cluster, "when a node is uncordoned that the pods may not run on")
	})
	cordon(t, node, false)
	placedAgain(t, cluster)
	cordon(t, node, true)
	conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonNoOtherNode, "uncordon one")
	cordon(t, other, false)
	stops(t, cluster, "shop-1")
}

// The pod that was to take the users over finds no room: nobody goes, and after an uncordon all is as before.
func TestPodsStayWhenTheOtherNodeIsFull(t *testing.T) {
	node, _ := newNode(t, "full"), newNode(t, "full")
	cluster, _ := fleetOn(t, 1, node.Name, inPool(t, "full"))
	cordon(t, node, true)
	replicasAre(t, cluster, 2)
	second := fleetPodOn(t, cluster, 1, "a", "")
	second.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available: Insufficient memory",
	}}
	suite.Must(t, api.Status().Update(t.Context(), second))
	acted(t, cluster, "a", "a")
	conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonLeavingNode, "Insufficient memory")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRolloutStuck)
	looks(t, cluster, "while the second pod is on no node")
	cordon(t, node, false)
	replicasAre(t, cluster, 1)
	placedAgain(t, cluster)
}

// A change of store that is held holds the move up too, and it is said.
func TestPodsStayWhileTheStoreIsHeld(t *testing.T) {
	node, _ := newNode(t, "held"), newNode(t, "held")
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		inPool(t, "held")(spec)
		spec.Replicas = ptr.To[int32](1)
	})
	pod, status := fleetPodOn(t, cluster, 0, "a", node.Name), wellAmong(1, "shop-0")
	status.Adapter, status.Stashes = "ets", 40
	serves(t, pod, status)
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterMnesia })
	held(t, cluster, "the 40 stashes")
	cordon(t, node, true)
	conditionSays(t, cluster, v1alpha1.ConditionPlaced, v1alpha1.ReasonStoreChangeHeld, "as long as ReconcileSucceeded is False")
}

// nodeReader answers every list with that error.
type nodeReader struct {
	client.Reader
	err error
}

func (r nodeReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return r.err
}

func TestWhoMaySeeNodes(t *testing.T) {
	errBroken := errors.New("no API server")
	for name, c := range map[string]struct {
		err  error
		sees bool
		want error
	}{
		"with a ClusterRole": {sees: true},
		"with Roles alone":   {err: apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)},
		"nobody knows":       {err: errBroken, want: errBroken},
	} {
		if sees, err := CanSeeNodes(t.Context(), nodeReader{err: c.err}); sees != c.sees || !errors.Is(err, c.want) {
			t.Errorf("%s: %t, %v", name, sees, err)
		}
	}
}

// What is not read of nodes changes every few seconds.
func TestWhatIsNewsOfANode(t *testing.T) {
	before := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"pool": "a"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {func(node *corev1.Node) {
			node.ResourceVersion, node.Status.Conditions[0].LastHeartbeatTime = "2", metav1.Now()
		}, false},
		"cordoned":      {func(node *corev1.Node) { node.Spec.Unschedulable = true }, true},
		"not ready":     {func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"another taint": {func(node *corev1.Node) { node.Spec.Taints[0].Key = "gpu" }, true},
		"another label": {func(node *corev1.Node) { node.Labels["pool"] = "b" }, true},
	} {
		after := before.DeepCopy()
		c.change(after)
		if got := nodeNewsChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s is news: %t, want %t", name, got, c.want)
		}
	}
}

func TestWhichNodesAreEmptied(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) corev1.NodeSpec {
		return corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: effect}}}
	}
	for name, c := range map[string]struct {
		spec corev1.NodeSpec
		want string
	}{
		"a node":                  {},
		"a cordoned one":          {corev1.NodeSpec{Unschedulable: true}, "is cordoned"},
		"one that is scaled":      {taint("ToBeDeletedByClusterAutoscaler", corev1.TaintEffectNoSchedule), "has the taint ToBeDeletedByClusterAutoscaler"},
		"one that may be scaled":  {taint("DeletionCandidateOfClusterAutoscaler", corev1.TaintEffectPreferNoSchedule), ""},
		"one of Karpenter":        {taint("karpenter.sh/disrupted", corev1.TaintEffectNoSchedule), "has the taint karpenter.sh/disrupted"},
		"one that pods may go to": {taint("karpenter.sh/disrupted", corev1.TaintEffectPreferNoSchedule), ""},
		"one for others":          {taint("team", corev1.TaintEffectNoSchedule), ""},
	} {
		if got := whyEmptied(&corev1.Node{Spec: c.spec}); got != c.want {
			t.Errorf("%s %s, want %q", name, got, c.want)
		}
	}
}

func TestWhichNodesTakeAPod(t *testing.T) {
	affinity := func(expressions ...corev1.NodeSelectorRequirement) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: expressions}}},
		}}}
	}
	zone := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "zone", Operator: operator, Values: values}
	}
	for name, c := range map[string]struct {
		change   func(*corev1.Node)
		template corev1.PodSpec
		want     bool
	}{
		"any":                        {want: true},
		"a cordoned one":             {change: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"one that is not ready":      {change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }},
		"of the label":               {template: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}, want: true},
		"of another label":           {template: corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}},
		"in the zones":               {template: affinity(zone(corev1.NodeSelectorOpIn, "a", "b")), want: true},
		"in other zones":             {template: affinity(zone(corev1.NodeSelectorOpNotIn, "a"))},
		"an expression of nobody's":  {template: affinity(zone("Near", "a")), want: true},
		"tainted":                    {change: tainted(corev1.TaintEffectNoSchedule)},
		"tainted a little":           {change: tainted(corev1.TaintEffectPreferNoSchedule), want: true},
		"tainted, which is no harm":  {change: tainted(corev1.TaintEffectNoExecute), template: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}}, want: true},
		"tainted, and wanted by all": {change: tainted(corev1.TaintEffectNoExecute), template: affinity(zone(corev1.NodeSelectorOpExists))},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if c.change != nil {
				c.change(node)
			}
			slim, err := slimNode(node.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			got := [2]bool{takes(node, &c.template), takes(slim.(*corev1.Node), &c.template)}
			if diff := cmp.Diff([2]bool{c.want, c.want}, got); diff != "" {
				t.Errorf("takes the pod, whole and slim (-want +got):\n%s", diff)
			}
		})
	}
}

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: effect}} }
}
