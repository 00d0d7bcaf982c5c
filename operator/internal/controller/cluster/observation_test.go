package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

var shop = types.NamespacedName{Namespace: "web", Name: "shop"}

// deletedAt makes a pod one that should have stopped at that time, by the clock of the API server.
func deletedAt(m *member, at time.Time) { m.DeletionTimestamp = ptr.To(metav1.NewTime(at)) }

// stoppedFor is for how long the pods have been seen to stop.
func (o *observation) stoppedFor(long time.Duration, pods ...int) {
	for _, i := range pods {
		m := &o.members[i]
		deletedAt(m, said)
		if o.waited == nil {
			o.waited = map[string]time.Duration{}
		}
		o.waited[m.wait()] = long
	}
}

func TestUnable(t *testing.T) {
	// shop-2 serves, shop-1 does not.
	misses := func(pods ...string) func(*member) {
		return func(m *member) {
			m.answer.Status.Peers = agentclient.Peers{Expected: 2, Connected: 2 - len(pods), Missing: len(pods)}
			for _, pod := range pods {
				m.answer.Status.Peers.MissingNodes = append(m.answer.Status.Peers.MissingNodes, nodeName(pod))
			}
		}
	}
	cases := map[string]struct {
		adapter v1alpha1.Adapter
		change  func(*member)
		want    string
	}{
		"well":                                {v1alpha1.AdapterETS, func(*member) {}, ""},
		"starting":                            {v1alpha1.AdapterETS, func(m *member) { m.Status.Conditions = nil }, "is not ready"},
		"stopping":                            {v1alpha1.AdapterETS, func(m *member) { deletedAt(m, said.Add(time.Minute)) }, "is stopping"},
		"stopping, by a clock that is behind": {v1alpha1.AdapterETS, func(m *member) { deletedAt(m, said.Add(-time.Hour)) }, "is stopping"},
		"no agent":                            {v1alpha1.AdapterETS, func(m *member) { m.agentPort, m.answer = 0, observe.Answer{} }, ""},
		"silent":                              {v1alpha1.AdapterETS, func(m *member) { m.answer.Err = errors.New("nobody is there") }, "does not answer: nobody is there"},
		"not asked yet":                       {v1alpha1.AdapterETS, func(m *member) { m.answer = observe.Answer{} }, "has not told yet how it is"},
		"restarted by its kubelet": {v1alpha1.AdapterETS, func(m *member) {
			m.Namespace, m.Status.Conditions = "web", nil
			m.answer.Status.Draining, m.answer.Status.Ready = true, false
		}, "was told to stop, and nobody has deleted it: a probe that fails has its container started anew (spec.probes.liveness, spec.probes.startup), see `kubectl describe pod -n web shop-0`"},
		"not ready by its agent's word": {v1alpha1.AdapterETS, func(m *member) { m.answer.Status.Ready, m.answer.Status.Reason = false, "It boots." }, "says: It boots."},
		"without its store":             {v1alpha1.AdapterRedis, func(m *member) { m.answer.Status.Store = agentclient.Store{Reason: "Refused."} }, "has no store: Refused."},
		"without a peer":                {v1alpha1.AdapterETS, misses("shop-2"), "does not see shop-2"},
		"without a peer, copies":        {v1alpha1.AdapterMnesia, misses("shop-2"), "does not see shop-2"},
		"without one that starts":       {v1alpha1.AdapterETS, misses("shop-1"), ""},
		"without a peer that is gone":   {v1alpha1.AdapterETS, misses("shop-3"), ""},
		"no peer is needed":             {v1alpha1.AdapterRedis, misses("shop-2"), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter = c.adapter
			seen := fleetOf(3, func(m []member) {
				m[1].Status.Conditions = nil
				c.change(&m[0])
			})
			if got := seen.unable(cluster, &seen.members[0]); got != c.want {
				t.Errorf("shop-0 %q, want %q", got, c.want)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	container := func(name string, state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Image: "img", State: state}
	}
	fails := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	cases := map[string]struct {
		status corev1.PodStatus
		broken bool
	}{
		"starting":      {waiting("ContainerCreating"), false},
		"no image":      {waiting("ErrImagePull"), true},
		"a crash loop":  {waiting("CrashLoopBackOff"), true},
		"unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable}}}, true},
		"a crash a moment ago": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			container("app", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}),
		}}, false},
		"a sidecar that crashes": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			container("app", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), container("log", fails),
		}}, false},
		"a sidecar that crashes, as the cache has it": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{container("app", corev1.ContainerState{}), container("log", fails)}}, false},
		"the agent does not get in": {corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{container("livestash-init", fails)},
			ContainerStatuses:     waiting("PodInitializing").ContainerStatuses,
		}, true},
	}
	for name, c := range cases {
		for _, deleted := range []bool{false, true} {
			m := &member{Pod: &corev1.Pod{Status: c.status}}
			if deleted {
				deletedAt(m, said)
			}
			if got := m.broken(); (got != "") != c.broken {
				t.Errorf("%s, deleted = %t: broken = %q", name, deleted, got)
			}
		}
	}
}

// A pod is lost when it has been seen to stop for longer than it may, whatever the clocks of others say.
func TestLost(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	const grace = 30 * time.Second
	for name, c := range map[string]struct {
		ahead, seenFor time.Duration
		lost           bool
	}{
		"it stops":                            {},
		"it stops, and may for a moment more": {seenFor: grace + goneAfter},
		"its node is dead":                    {seenFor: grace + goneAfter + time.Second, lost: true},
		"the operator's clock is ahead":       {ahead: time.Hour, seenFor: time.Second},
		"the operator's clock is behind":      {ahead: -time.Hour, seenFor: grace + goneAfter + time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			seen := fleetOf(2, func(m []member) { m[0].DeletionGracePeriodSeconds = ptr.To(int64(grace.Seconds())) })
			seen.stoppedFor(c.seenFor, 0)
			seen.now = said.Add(c.ahead)
			want := "is stopping"
			if c.lost {
				want = "should have stopped long ago, and its node does not say that it has"
			}
			if got := seen.unable(cluster, &seen.members[0]); got != want {
				t.Errorf("shop-0 %q, want %q", got, want)
			}
			if pod := seen.rollout(cluster, 2).Pods[0]; pod.GivenUp != c.lost {
				t.Errorf("given up: %t", pod.GivenUp)
			}
		})
	}
}

// A rollout waits a moment for a pod that has just got ready, and not for a clock that is behind the kubelet's.
func TestJustReady(t *testing.T) {
	for since, want := range map[time.Duration]bool{
		-time.Hour: false, -settling: false, -time.Second: true, 0: true, settling - time.Second: true, settling: false, time.Hour: false,
	} {
		m := &member{Pod: &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(said.Add(-since)),
		}}}}}
		if got := m.justReady(said); got != want {
			t.Errorf("ready for %s: %t", since, got)
		}
	}
}

// Nobody waits for ever: not for a pod that cannot keep users, nor for one whose node is dead.
func TestPatienceEnds(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	seen := fleetOf(6, func(m []member) { deletedAt(&m[1], said) })
	seen.waited = map[string]time.Duration{"shop-1": 2 * patience, "shop-2": 2 * patience, "shop-3": patience, "shop-4": 0}
	seen.stoppedFor(2*goneAfter, 0)
	got := map[string]bool{}
	for _, pod := range seen.rollout(cluster, 6).Pods {
		got[pod.Name] = pod.GivenUp
	}
	want := map[string]bool{"shop-0": true, "shop-1": false, "shop-2": true, "shop-3": false, "shop-4": false, "shop-5": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given up (-want +got):\n%s", diff)
	}
}

func TestWaits(t *testing.T) {
	waits := &waits{}
	cart := types.NamespacedName{Namespace: "web", Name: "cart"}
	steps := []struct {
		fleet   types.NamespacedName
		after   time.Duration
		awaited []string
		want    map[string]time.Duration
	}{
		{shop, 0, nil, nil},
		{shop, 0, []string{"shop-0"}, map[string]time.Duration{"shop-0": 0}},
		{cart, 1, []string{"shop-0"}, map[string]time.Duration{"shop-0": 0}},
		{shop, 2, []string{"shop-0", "shop-1"}, map[string]time.Duration{"shop-0": 2, "shop-1": 0}},
		{shop, 5, []string{"shop-1"}, map[string]time.Duration{"shop-1": 3}},
		{shop, 6, []string{"shop-0", "shop-1"}, map[string]time.Duration{"shop-0": 0, "shop-1": 4}},
		{shop, 7, nil, nil},
		{shop, 8, []string{"shop-1"}, map[string]time.Duration{"shop-1": 0}},
		{cart, 9, []string{"shop-0"}, map[string]time.Duration{"shop-0": 8}},
	}
	for i, step := range steps {
		if diff := cmp.Diff(step.want, waits.since(step.fleet, step.awaited, said.Add(step.after))); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	waits.since(shop, nil, said)
	waits.since(cart, nil, said)
	if len(waits.of) > 0 {
		t.Errorf("%v is remembered of fleets for which nothing is waited", waits.of)
	}
}

// Those that are not there are waited for too.
func TestAwaited(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Name, cluster.Spec.Adapter = "shop", v1alpha1.AdapterETS
	seen := fleetOf(3, func(m []member) { m[1].Status.Conditions = nil })
	seen.statefulSet.Spec.Replicas = ptr.To[int32](5)
	if diff := cmp.Diff([]string{"shop-1", "shop-3", "shop-4"}, seen.awaited(cluster)); diff != "" {
		t.Errorf("awaited (-want +got):\n%s", diff)
	}
	if got := seen.longestAbsent("shop"); got <= 0 {
		t.Error("nobody knows that two are not there")
	}
	seen.waited = map[string]time.Duration{"shop-1": time.Hour, "shop-3": time.Second, "shop-4": time.Minute}
	if got := seen.longestAbsent("shop"); got != time.Minute {
		t.Errorf("the longest was missed for %s", got)
	}
	seen.statefulSet.Spec.Replicas = ptr.To[int32](3)
	if got := seen.longestAbsent("shop"); got != 0 {
		t.Errorf("somebody is missed for %s", got)
	}
}

// A LiveStashCluster of the same name may have been there before: its pods' last words are not this one's.
func TestDrains(t *testing.T) {
	drains := &drains{}
	drains.add(shop, drained{pod: "old", set: "1", made: said.Add(-time.Second)}, drained{pod: "taken over", set: "2", made: said.Add(-time.Second)}, drained{pod: "first", made: said})
	drains.add(shop)
	drains.add(shop, drained{pod: "second", made: said.Add(time.Second)})
	drains.add(types.NamespacedName{Name: "cart"}, drained{pod: "other", made: said})
	var told []string
	for _, one := range drains.take(shop, said, "2") {
		told = append(told, one.pod)
	}
	if diff := cmp.Diff([]string{"taken over", "first", "second"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if again := drains.take(shop, said, "2"); len(again) > 0 {
		t.Errorf("%v is told twice", again)
	}
	if other := drains.take(types.NamespacedName{Name: "cart"}, said, ""); len(other) != 1 {
		t.Errorf("another fleet has %v", other)
	}
}

func TestHeldPorts(t *testing.T) {
	ports := func(http, agent, distribution int32) func(*member) {
		return func(m *member) {
			m.Spec.Containers = []corev1.Container{
				{Name: "log", Ports: []corev1.ContainerPort{{Name: fleet.HTTPPort, ContainerPort: 9}}},
				{Name: fleet.AppContainer, Ports: []corev1.ContainerPort{{Name: fleet.HTTPPort, ContainerPort: http}, {Name: fleet.DistributionPort, ContainerPort: distribution}}},
			}
			if agent != 0 {
				m.Spec.Containers[1].Ports = append(m.Spec.Containers[1].Ports, corev1.ContainerPort{Name: fleet.AgentPort, ContainerPort: agent})
			}
		}
	}
	seen := fleetOf(4, func(m []member) {
		ports(4000, 9568, 9100)(&m[0])
		ports(4000, 9600, 9100)(&m[1])
		ports(8080, 0, 9100)(&m[2]) // without an agent
	})
	want := render.Ports{HTTP: []int32{4000, 8080}, Agent: []int32{9568, 9600}, Distribution: []int32{9100}}
	if diff := cmp.Diff(want, seen.heldPorts()); diff != "" {
		t.Errorf("held ports (-want +got):\n%s", diff)
	}
}

// The pod of a dead node is there for as long as nobody says that the node is gone. It does not keep the fleet from its new store,
// and the user is told of it.
func TestUsersOfAnotherStore(t *testing.T) {
	seen := fleetOf(5, func(m []member) {
		for i, digest := range []string{"old", "new", "old", "", "old"} {
			m[i].Annotations = map[string]string{fleet.StoreAnnotation: digest}
		}
		deletedAt(&m[4], said)
	})
	seen.stoppedFor(2*goneAfter, 2)
	if diff := cmp.Diff([]string{"shop-0", "shop-4"}, seen.usersOfAnotherStore("new")); diff != "" {
		t.Errorf("users of the old store (-want +got):\n%s", diff)
	}

	p := passOver(2, &appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 2, ReadyReplicas: 1, UpdatedReplicas: 2})
	p.seen.stoppedFor(2*goneAfter, 1)
	p = (&Reconciler{}).newPass(p.cluster, p.seen)
	if got, says := progressing(p, nil), "shop-1 should have stopped long ago"; !strings.Contains(got.Message, says) {
		t.Errorf("Progressing is %s %s: %s; want one that says %q", got.Status, got.Reason, got.Message, says)
	}
}

func TestMembers(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "mine"}}
	set.Status.UpdateRevision = "b"
	pod := func(name, owner, revision string) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{appsv1.StatefulSetRevisionLabel: revision}}}
		pod.Spec.Containers = []corev1.Container{{Name: fleet.AppContainer, Ports: []corev1.ContainerPort{{Name: fleet.AgentPort, ContainerPort: 9568}}}}
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
		}
		return pod
	}
	pods := []corev1.Pod{pod("shop-10", "mine", "a"), pod("shop-2", "mine", "b"), pod("shop-3", "former", "b"), pod("debug", "", "b")}
	var got []string
	for _, m := range membersOf(pods, set, map[types.UID]observe.Answer{"shop-2": {At: said}}) {
		got = append(got, fmt.Sprintf("%s %d %d updated=%t told=%t", m.Name, m.ordinal, m.agentPort, m.updated, !m.answer.At.IsZero()))
	}
	want := []string{"shop-2 2 9568 updated=true told=true", "shop-10 10 9568 updated=false told=false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// A pod whose agent was silent while it started is not called silent when it serves, until it has been asked again.
func TestSilenceBeforeAPodServes(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{UID: "mine"}}
	silent := errors.New("nobody listens")
	for name, test := range map[string]struct {
		ready, asked bool
		want         error
	}{
		"it starts":                     {want: silent},
		"it serves, and was not asked":  {ready: true},
		"it serves, and was asked":      {ready: true, asked: true, want: silent},
		"it served, and does no longer": {asked: true, want: silent},
	} {
		pod := fleetOf(1, nil).members[0].Pod
		pod.OwnerReferences = []metav1.OwnerReference{{UID: set.UID, Controller: ptr.To(true)}}
		if !test.ready {
			pod.Status.Conditions = nil
		}
		answers := map[types.UID]observe.Answer{pod.UID: {Target: observe.Target{Serves: test.asked}, Err: silent, Since: said}}
		got := membersOf([]corev1.Pod{*pod}, set, answers)[0].answer
		if !errors.Is(got.Err, test.want) || got.Since.IsZero() != (test.want == nil) {
			t.Errorf("%s: its error is %v since %s, want %v", name, got.Err, got.Since, test.want)
		}
	}
}

// The annotation that `kubectl apply` makes holds what the Secret holds.
func TestCachedSecretsHoldNoValues(t *testing.T) {
	secret := secretMetadataObject()
	secret.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"stringData": {"cookie": "c"}}`, "livestash.dev/url": "redis://redis", "livestash.developer/x": "y",
	}
	secret.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	slim, err := slimMetadata(secret)
	if err != nil {
		t.Fatal(err)
	}
	got := slim.(*metav1.PartialObjectMetadata)
	if diff := cmp.Diff(map[string]string{"livestash.dev/url": "redis://redis"}, got.Annotations); diff != "" || got.ManagedFields != nil {
		t.Errorf("managed by %v, annotations (-want +got):\n%s", got.ManagedFields, diff)
	}
	if other, err := slimMetadata("deleted"); err != nil || other != "deleted" {
		t.Errorf("slimMetadata = %v, %v", other, err)
	}

	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: suite.Namespace(t, api), Name: "own", Labels: map[string]string{render.ClusterLabel: "shop"}, Annotations: map[string]string{"a": "b", "livestash.dev/url": "c"}}}
	suite.Must(t, api.Create(t.Context(), made))
	suite.Eventually(t, func() error {
		cached, err := underTest.secretMetadata(t.Context(), made.Namespace, made.Name)
		if err != nil || cached == nil || len(cached.Annotations) != 1 {
			return fmt.Errorf("the cache has %v, %w", cached, err)
		}
		return nil
	})
}

// A pod that waits for what its old template promised is replaced at once, unless the new template has turned out to be no better.
func TestUnstartedPodsOfAnOldTemplate(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	unstarted := func(m *member, updated bool, reason string) {
		m.updated, m.Status.Conditions = updated, nil
		m.Status.ContainerStatuses = waiting(reason).ContainerStatuses
	}
	cases := map[string]struct {
		change func([]member)
		// holds is whether pods that come back get the old template.
		holds  bool
		waited map[string]time.Duration
		broken bool
	}{
		"of the old template":    {change: func(m []member) { unstarted(&m[0], false, "PodInitializing") }, broken: true},
		"of the wanted template": {change: func(m []member) { unstarted(&m[0], true, "PodInitializing") }},
		"it serves":              {change: func(m []member) { m[0].updated = false }},
		"it stops":               {change: func(m []member) { unstarted(&m[0], false, "PodInitializing"); deletedAt(&m[0], said) }},
		"the wanted template does not work": {change: func(m []member) {
			unstarted(&m[0], false, "PodInitializing")
			unstarted(&m[1], true, "ImagePullBackOff")
		}},
		"a pod of the wanted template was given up": {change: func(m []member) {
			unstarted(&m[0], false, "PodInitializing")
			m[1].Status.Conditions = nil
		}, waited: map[string]time.Duration{"shop-1": patience + time.Second}},
		"it was to get the old template": {change: func(m []member) { unstarted(&m[0], false, "PodInitializing") }, holds: true},
	}
	for name, c := range cases {
		seen := fleetOf(2, c.change)
		seen.waited = c.waited
		if !c.holds {
			seen.statefulSet.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}
		if got := seen.rollout(cluster, 2).Pods[0].Broken; (got != "") != c.broken {
			t.Errorf("%s: broken = %q", name, got)
		}
	}
}

// A fleet of which a pod is silent for ever is looked at when that makes a difference, and not all the time: of a thousand fleets, a
// third of whose pods are silent, that alone took half a core.
func TestTurn(t *testing.T) {
	for name, c := range map[string]struct {
		waited map[string]time.Duration
		change func([]member)
		want   time.Duration
	}{
		"nobody is waited for":           {},
		"a pod, for some seconds":        {waited: map[string]time.Duration{"shop-0": 3 * time.Second}, want: tellAfter - 3*time.Second},
		"a pod, for half a minute":       {waited: map[string]time.Duration{"shop-0": soon / 2}, want: soon / 2},
		"a pod, for a minute":            {waited: map[string]time.Duration{"shop-0": soon + time.Second}, want: patience - soon - time.Second},
		"one for long, and one just now": {waited: map[string]time.Duration{"shop-0": patience - time.Second, "shop-1": 0}, want: time.Second},
		"a pod, for too long":            {waited: map[string]time.Duration{"shop-0": patience + time.Second}},
		"a pod that stops":               {change: func(m []member) { deletedAt(&m[0], said) }, want: goneAfter},
		"a pod that may stop for an hour": {change: func(m []member) {
			deletedAt(&m[0], said)
			m[0].DeletionGracePeriodSeconds = ptr.To(int64(time.Hour.Seconds()))
		}, want: time.Hour + goneAfter},
		"a pod of a dead node": {waited: map[string]time.Duration{"shop-0 stops": patience + time.Second}, change: func(m []member) { deletedAt(&m[0], said) }},
	} {
		t.Run(name, func(t *testing.T) {
			seen := fleetOf(2, c.change)
			seen.waited = c.waited
			got := seen.turn()
			if c.want == 0 && got != 0 || c.want > 0 && (got <= c.want || got > c.want+time.Second) {
				t.Errorf("after %s, want a moment after %s", got, c.want)
			}
		})
	}
}
