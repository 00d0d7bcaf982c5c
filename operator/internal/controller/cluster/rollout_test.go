package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

// hasStrategy waits until the StatefulSet has the strategy and the number of replicas.
func hasStrategy(t *testing.T, cluster *v1alpha1.LiveStashCluster, strategy appsv1.StatefulSetUpdateStrategyType, replicas int32) {
	t.Helper()
	suite.Eventually(t, func() error {
		if set := fleetSet(t, cluster); set.Spec.UpdateStrategy.Type != strategy || *set.Spec.Replicas != replicas {
			return fmt.Errorf("the StatefulSet is %s with %d replicas, want %s with %d", set.Spec.UpdateStrategy.Type, *set.Spec.Replicas, strategy, replicas)
		}
		return nil
	})
}

// newImage changes the image, and waits until the StatefulSet has it.
func newImage(t *testing.T, cluster *v1alpha1.LiveStashCluster, image string) {
	t.Helper()
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Image = image })
	suite.Eventually(t, func() error {
		if got := fleetSet(t, cluster).Spec.Template.Spec.Containers[0].Image; got != image {
			return fmt.Errorf("the StatefulSet has the image %s", got)
		}
		return nil
	})
}

// replaced ends a pod that stops, and makes the one of revision b that takes its place. It does not serve yet.
func replaced(t *testing.T, cluster *v1alpha1.LiveStashCluster, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	gone(t, pod, heldTen)
	return fleetPod(t, cluster, int(ordinal(pod.Name)), "b")
}

const heldTen = `{"livestash":1,"sessionsBefore":10,"socketsClosed":10,"handedOff":4,"notHandedOff":1,"reason":"No peer took it."}`

func TestRolloutTakesOnePodAfterTheOther(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	// Whoever waits for Ready must not be told of the fleet as it was.
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRollingOut)
	looks(t, cluster, "before the StatefulSet controller has told which pods are outdated")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	looks(t, cluster, "before the StatefulSet controller knows that it is to use the new template")
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRollingOut)
	condition(t, cluster, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonRollingOut)

	acted(t, cluster, "a", "b")
	looks(t, cluster, "while shop-1 stops")
	second := replaced(t, cluster, pods[1])
	acted(t, cluster, "a", "b")
	looks(t, cluster, "while shop-1 starts")
	well := wellAmong(2, "shop-1")
	status := well
	status.Ready, status.Reason = false, "The store is not loaded."
	serves(t, second, status)
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonRollingOut, "1 of 2 pods have the new template; shop-1 says: The store is not loaded.")
	looks(t, cluster, "while the agent of shop-1 says that it is not ready")
	status = well
	status.Peers = agentclient.Peers{Expected: 1, Missing: 1, MissingNodes: []string{nodeName("shop-0")}}
	agents.say(second.Status.PodIP, status)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonRollingOut, "shop-1 does not see shop-0")
	looks(t, cluster, "while shop-1 does not see shop-0, whose stashes it is to take")

	agents.say(second.Status.PodIP, well)
	stops(t, cluster, "shop-0")
	first := replaced(t, cluster, pods[0])
	serves(t, first, wellAmong(2, "shop-0"))
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	acted(t, cluster, "b", "b")
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil || cluster.Status.Rollouts[0].Finished == nil {
			return fmt.Errorf("the rollout goes on: %+v, %w", cluster.Status, err)
		}
		return nil
	})
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	want := []v1alpha1.RolloutStatus{{From: "a", To: "b", Outcome: v1alpha1.RolloutComplete, PodsReported: 2, StashesBefore: 20, HandedOver: 8, Lost: 2}}
	if diff := cmp.Diff(want, cluster.Status.Rollouts, cmpopts.IgnoreFields(v1alpha1.RolloutStatus{}, "Started", "Finished")); diff != "" {
		t.Errorf("status.rollouts (-want +got):\n%s", diff)
	}
	if cluster.Status.Revision != "b" {
		t.Errorf("status.revision is %s", cluster.Status.Revision)
	}
}

// A fleet of one gets a second pod first, which an autoscaler does not see, and gives it back in the end.
func TestRolloutOfOnePod(t *testing.T) {
	cluster, pods := fleetAtRest(t, 1, nil)
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonSurging)
	looks(t, cluster, "before there is a second pod")

	second := fleetPod(t, cluster, 1, "b")
	acted(t, cluster, "a", "b")
	looks(t, cluster, "while the second pod starts")
	serves(t, second, wellAmong(2, "shop-1"))
	looks(t, cluster, "while the first pod does not see the second")
	serves(t, pods[0], wellAmong(2, "shop-0"))
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-0")
	suite.Must(t, get(t, cluster))
	if got := fleetSet(t, cluster).Status.Replicas; got != 2 || cluster.Status.Replicas != 1 {
		t.Errorf("the StatefulSet tells of %d pods, the LiveStashCluster of %d", got, cluster.Status.Replicas)
	}

	first := replaced(t, cluster, pods[0])
	acted(t, cluster, "a", "b")
	looks(t, cluster, "while shop-0 starts")
	serves(t, first, wellAmong(2, "shop-0"))
	acted(t, cluster, "a", "b")
	suite.Eventually(t, func() error {
		if got := *fleetSet(t, cluster).Spec.Replicas; got != 1 {
			return fmt.Errorf("%d replicas", got)
		}
		return nil
	})
	acted(t, cluster, "a", "b")
	gone(t, second, heldTen)
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 1)
	acted(t, cluster, "b", "b")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
}

// A template that does not work costs one pod, and mending it is enough.
func TestRolloutOfABrokenImage(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	newImage(t, cluster, "ghcr.io/acme/shop:missing")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
	broken := replaced(t, cluster, pods[1])
	broken.Status = waiting("ImagePullBackOff")
	suite.Must(t, api.Status().Update(t.Context(), broken))
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRolloutStuck)
	looks(t, cluster, "while the new template is broken")

	newImage(t, cluster, "ghcr.io/acme/shop:3")
	acted(t, cluster, "a", "c")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "c")
	stops(t, cluster, "shop-1")
}

func TestFewerPodsGoOneAtATime(t *testing.T) {
	cluster, pods := fleetAtRest(t, 5, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	for left := int32(4); left >= 2; left-- {
		hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, left)
		acted(t, cluster, "a", "a")
		looks(t, cluster, fmt.Sprintf("while pod %d does not know yet that it goes", left))
		suite.Must(t, api.Delete(t.Context(), pods[left]))
		acted(t, cluster, "a", "a")
		looks(t, cluster, fmt.Sprintf("while pod %d stops", left))
		gone(t, pods[left], heldTen)
		acted(t, cluster, "a", "a")
	}
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete)
	if got := *fleetSet(t, cluster).Spec.Replicas; got != 2 {
		t.Errorf("%d replicas", got)
	}
}

// The pod that was to go may have been replaced by another one meanwhile, and the template by another one in this pass.
func TestOnlyThePodThatWasSeenIsDeleted(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-1"}}
	pod.Spec = corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app", Image: "a"}}}
	suite.Must(t, api.Create(t.Context(), pod))
	cases := []struct {
		what    string
		uid     types.UID
		wrote   bool
		refused bool
		stops   []string
	}{
		{"one of the same name is there", "former", false, true, nil},
		{"the StatefulSet has just been written", pod.UID, true, false, nil},
		{"it is its turn", pod.UID, false, false, []string{"shop-1"}},
	}
	for _, c := range cases {
		p := &pass{cluster: cluster, seen: fleetOf(2, nil), plan: rollout.Plan{Delete: []string{"shop-1"}}, wroteStatefulSet: c.wrote}
		p.seen.members[1].Namespace, p.seen.members[1].UID = cluster.Namespace, c.uid
		if err := underTest.replacePods(t.Context(), p); apierrors.IsConflict(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: replacePods = %v", c.what, err)
		}
		if diff := cmp.Diff(c.stops, terminating(t, cluster)); diff != "" {
			t.Errorf("%s, pods that stop (-want +got):\n%s", c.what, diff)
		}
	}
}

// refusingWriter is an API server that does not take what is applied to objects of a kind.
type refusingWriter struct {
	client.Client
	kind string
}

func (w refusingWriter) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if of, is := object.(interface{ GetKind() string }); is && of.GetKind() == w.kind {
		return apierrors.NewInternalError(errors.New("refused"))
	}
	return w.Client.Apply(ctx, object, options...)
}

// A pod comes back with the template that the StatefulSet says, and may be the only one that users are led to.
func TestNoPodGoesBeforeWhatPrecedesItIsWritten(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-1"}}
	pod.Spec = corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app", Image: "a"}}}
	suite.Must(t, api.Create(t.Context(), pod))
	named := metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}
	objects := []client.Object{
		&corev1.Service{TypeMeta: render.ServiceType, ObjectMeta: named, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&appsv1.StatefulSet{TypeMeta: render.StatefulSetType, ObjectMeta: named},
	}
	for _, c := range []struct {
		kind, rejected, led, leads string
		stops                      []string
	}{
		{kind: "StatefulSet", rejected: "bad"},
		{kind: "Service", led: "new"},
		{kind: "StatefulSet", stops: []string{"shop-1"}},           // which says what it said
		{kind: "Service", stops: []string{"shop-1"}},               // users are led to all before and after
		{kind: "Service", leads: "new", stops: []string{"shop-1"}}, // they are led to all
	} {
		r := &Reconciler{Client: refusingWriter{underTest.Client, c.kind}, Live: underTest.Live}
		p := &pass{cluster: cluster, seen: fleetOf(2, nil), plan: rollout.Plan{Delete: []string{"shop-1"}}}
		p.seen.members[1].Namespace, p.seen.members[1].UID, p.seen.revision = cluster.Namespace, pod.UID, c.led
		p.inputs.Rejected, p.inputs.Revision = c.rejected, c.leads
		for _, object := range objects {
			if c.kind == object.GetObjectKind().GroupVersionKind().Kind {
				p.objects = []client.Object{object.DeepCopyObject().(client.Object)}
			}
		}
		suite.Must(t, r.applyChildren(t.Context(), p))
		if p.unfinished == nil {
			t.Errorf("%s: the failure is not told", c.kind)
		}
		suite.Must(t, r.replacePods(t.Context(), p))
		if diff := cmp.Diff(c.stops, terminating(t, cluster)); diff != "" {
			t.Errorf("%s, led to %q: pods that stop (-want +got):\n%s", c.kind, c.led, diff)
		}
	}
}

// laggingCache is a cache that has heard nothing new of pods.
type laggingCache struct {
	client.Client
	pods corev1.PodList
}

func (c laggingCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if pods, ok := list.(*corev1.PodList); ok {
		c.pods.DeepCopyInto(pods)
		return nil
	}
	return c.Client.List(ctx, list, options...)
}

// Another pod has been told to stop, and the cache has not heard of it.
func TestSureLooksBehindTheCache(t *testing.T) {
	cluster, pods := fleetAtRest(t, 3, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	set := fleetSet(t, cluster)
	set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	suite.Must(t, api.Update(t.Context(), set))
	acted(t, cluster, "a", "b")

	behind := laggingCache{Client: underTest.Client}
	lagging := &Reconciler{Client: &behind, Live: underTest.Live, Agents: underTest.Agents, Clock: underTest.Clock}
	plan := func() (*pass, error) {
		seen, err := lagging.observe(t.Context(), cluster)
		if err != nil {
			return nil, err
		}
		// A fleet that is paused has its agents asked twice a minute, and a plan is made on fresh answers.
		underTest.Agents.Track(client.ObjectKeyFromObject(cluster), observe.Rolling, seen.targets())
		p := lagging.newPass(cluster, seen)
		return p, lagging.planRollout(t.Context(), p)
	}
	suite.Eventually(t, func() error {
		suite.Must(t, underTest.List(t.Context(), &behind.pods, client.InNamespace(cluster.Namespace)))
		p, err := plan()
		if err == nil && !cmp.Equal(p.plan.Delete, []string{"shop-2"}) {
			err = fmt.Errorf("the plan is %+v", p.plan)
		}
		return err
	})

	suite.Must(t, api.Delete(t.Context(), pods[0]))
	p, err := plan()
	suite.Must(t, err)
	if planned := rollout.Next(p.seen.rollout(cluster, 3)); !cmp.Equal(planned.Delete, []string{"shop-2"}) {
		t.Fatalf("the cache knows already, the plan is %+v", planned)
	}
	if len(p.plan.Delete) > 0 || p.plan.Takes != "" || p.plan.Waiting == "" {
		t.Errorf("shop-2 goes while shop-0 stops: %+v", p.plan)
	}
}

// What the other agents said too long ago is no reason to take a pod.
func TestSureWantsNews(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	for name, c := range map[string]struct {
		change func([]member)
		sure   bool
	}{
		"an old word":                          {func(m []member) { m[0].answer.At = said.Add(-newsOf - time.Second) }, false},
		"an old word of the one that goes":     {func(m []member) { m[2].answer.At = said.Add(-time.Hour) }, true},
		"an old word of one that counts not":   {func(m []member) { m[0].answer.At, m[0].answer.Err = said.Add(-time.Hour), errors.New("silent") }, true},
		"one that has no agent":                {func(m []member) { m[0].answer.At, m[0].agentPort = time.Time{}, 0 }, true},
		"everybody has spoken a moment before": {func(m []member) { m[0].answer.At = said.Add(-newsOf) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pass{cluster: cluster, seen: fleetOf(3, c.change), plan: rollout.Plan{Takes: "shop-2"}}
			asked := errors.New("the API server is asked")
			r := &Reconciler{Live: brokenReader{err: asked}}
			sure, err := r.sure(t.Context(), p)
			if goesOn := errors.Is(err, asked); sure || goesOn != c.sure {
				t.Errorf("sure = %t, %v", sure, err)
			}
		})
	}
}

// brokenReader reads nothing.
type brokenReader struct {
	client.Reader
	err error
}

func (b brokenReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return b.err
}

// Only an event tells why a pod is not made.
func TestWhyAPodIsNotMade(t *testing.T) {
	cases := map[string]func(t *testing.T, cluster *v1alpha1.LiveStashCluster, pods []*corev1.Pod){
		"at rest": func(t *testing.T, cluster *v1alpha1.LiveStashCluster, pods []*corev1.Pod) {
			gone(t, pods[1], "")
			acted(t, cluster, "a", "a")
		},
		"in a rollout": func(t *testing.T, cluster *v1alpha1.LiveStashCluster, pods []*corev1.Pod) {
			newImage(t, cluster, "ghcr.io/acme/shop:2")
			acted(t, cluster, "a", "b")
			hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
			acted(t, cluster, "a", "b")
			stops(t, cluster, "shop-1")
			gone(t, pods[1], "")
			acted(t, cluster, "a", "b")
		},
	}
	for name, takes := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, pods := fleetAtRest(t, 2, nil)
			set := fleetSet(t, cluster)
			failed := func(message string, at metav1.Time) {
				event := &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Namespace: cluster.Namespace, GenerateName: "shop."},
					InvolvedObject: corev1.ObjectReference{Kind: "StatefulSet", Namespace: set.Namespace, Name: set.Name, UID: set.UID},
					Reason:         "FailedCreate", Message: message, LastTimestamp: at,
				}
				suite.Must(t, api.Create(t.Context(), event))
			}
			failed("exceeded quota: of another time", metav1.NewTime(time.Now().Add(-time.Hour)))
			takes(t, cluster, pods)
			failed("exceeded quota: old", metav1.NewTime(time.Now().Add(-time.Second)))
			failed(`create Pod shop-1 failed: pods "shop-1" is forbidden: exceeded quota: small`, metav1.NewTime(time.Now().Add(5*time.Second)))
			conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPodNotMade, `pods "shop-1" is forbidden: exceeded quota: small`)
			conditionSays(t, cluster, v1alpha1.ConditionStalled, v1alpha1.ReasonPodNotMade, `pods "shop-1" is forbidden: exceeded quota: small`)

			serves(t, fleetPod(t, cluster, 1, "b"), wellAmong(2, "shop-1"))
			condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonNotStalled)
		})
	}
}

// A pod that is waited for tells by its watch or its agent that the wait is over. Only a rollout, which also waits for time to pass, is
// looked at every second: a thousand new fleets would else keep a core busy.
func TestOnlyARolloutIsLookedAtAllTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		change func([]member)
		before before
		pods   int
		want   time.Duration
	}{
		"nobody is waited for": {},
		"one is too many, though the rollout waits": {
			pods: 3, before: before{withheld: true, message: "the Job failed"}, change: func(m []member) { m[0].answer.At = said.Add(-time.Minute) }, want: lookAtRollout,
		},
		"a pod has just been made":  {waited: 3 * time.Second},
		"a pod is of the old image": {change: func(m []member) { m[0].updated = false }, want: lookAtRollout},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter, cluster.Spec.Replicas = v1alpha1.AdapterETS, ptr.To[int32](2)
			cluster.Spec.Agent.Enabled = ptr.To(true)
			cluster.Name = "shop"
			seen := fleetOf(max(2, c.pods), c.change)
			seen.statefulSet.UID = "set"
			if c.waited > 0 {
				seen.waited = map[string]time.Duration{"shop-0": c.waited}
			}
			p := &pass{cluster: cluster, seen: seen, before: c.before}
			r := &Reconciler{Live: brokenReader{err: errors.New("the API server is asked")}}
			if err := r.planRollout(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			result, err := p.End(nil, func(error) error { return nil })
			if got := result.RequeueAfter; err != nil || got < c.want || got > c.want+10*time.Millisecond {
				t.Errorf("the next look is in %s, %v; want it in %s (plan %+v)", got, err, c.want, p.plan)
			}
			if pace := p.pace(); c.want == lookAtRollout && pace != observe.Rolling {
				t.Errorf("agents are asked as %v", pace)
			}
		})
	}
}
