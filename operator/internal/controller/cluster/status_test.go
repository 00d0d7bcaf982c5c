package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/rollout"
)

func TestConditions(t *testing.T) {
	done := appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "a", UpdateRevision: "a"}
	with := func(change func(*appsv1.StatefulSetStatus)) *appsv1.StatefulSetStatus {
		status := done
		change(&status)
		return &status
	}
	alone := func(ready, updated int32) *appsv1.StatefulSetStatus {
		return with(func(s *appsv1.StatefulSetStatus) { s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = 1, ready, updated })
	}
	oneAway := with(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 2 })
	broken := func(p *pass) { p.seen.members[2].Status = waiting("ImagePullBackOff") }
	cases := map[string]struct {
		replicas int32
		set      *appsv1.StatefulSetStatus
		// change is what else is known.
		change      func(*pass)
		outcome     error
		available   string
		progressing string
		reconciled  string
	}{
		"all ready":       {3, &done, nil, nil, "True AllReady", "False Complete", "True Reconciled"},
		"one away":        {3, oneAway, nil, nil, "True EnoughReady", "True WaitingForPods", "True Reconciled"},
		"two away":        {3, with(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 1 }), nil, nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"rolling out":     {3, with(func(s *appsv1.StatefulSetStatus) { s.UpdatedReplicas = 1 }), nil, nil, "True AllReady", "True RollingOut", "True Reconciled"},
		"not acted on":    {3, with(func(s *appsv1.StatefulSetStatus) { s.ObservedGeneration = 3 }), nil, nil, "True AllReady", "True RollingOut", "True Reconciled"},
		"just written":    {3, with(func(s *appsv1.StatefulSetStatus) { s.ObservedGeneration = 3 }), func(p *pass) { p.plan.Phase = rollout.Complete }, nil, "True AllReady", "True RollingOut", "True Reconciled"},
		"scaling up":      {5, &done, nil, nil, "False TooFewReady", "True Scaling", "True Reconciled"},
		"scaling down":    {1, &done, nil, nil, "True AllReady", "True Scaling", "True Reconciled"},
		"one pod alone":   {1, alone(0, 1), nil, nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"a second pod":    {1, alone(1, 0), nil, nil, "True AllReady", "True Surging", "True Reconciled"},
		"no pods wanted":  {0, with(func(s *appsv1.StatefulSetStatus) { s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = 0, 0, 0 }), nil, nil, "False ScaledToZero", "False Complete", "True Reconciled"},
		"a pod fails":     {3, oneAway, broken, nil, "True EnoughReady", "True PodFailing", "True Reconciled"},
		"it is stuck":     {3, &done, func(p *pass) { p.plan.Phase = rollout.Stuck }, nil, "True AllReady", "True RolloutStuck", "True Reconciled"},
		"a pod refused":   {3, oneAway, func(p *pass) { p.refusal = "exceeded quota" }, nil, "True EnoughReady", "True PodNotMade", "True Reconciled"},
		"another store":   {3, oneAway, func(p *pass) { p.oldStorePods, p.inputs.StoreDigest = []string{"shop-0"}, "new" }, nil, "True EnoughReady", "True StoreChanging", "True Reconciled"},
		"just made":       {3, &appsv1.StatefulSetStatus{}, nil, nil, "False TooFewReady", "True RollingOut", "True Reconciled"},
		"nothing yet":     {3, nil, nil, nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"nothing to come": {3, nil, nil, secretMissing("no Secret"), "False TooFewReady", "False SecretMissing", "False SecretMissing"},
		"the API refuses": {3, &done, nil, errors.New("refused"), "True AllReady", "False Complete", "False APIError"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := passOver(c.replicas, c.set)
			if c.change != nil {
				c.change(p)
			}
			status := statusOf(p, c.outcome)
			// Available says nothing of one pod that is away, and nothing of templates. Who waits for Ready is told of both.
			ready := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
			if want := c.progressing == "False Complete" && c.outcome == nil; ready != want {
				t.Errorf("Ready is %t, want %t", ready, want)
			}
			for kind, want := range map[string]string{
				v1alpha1.ConditionAvailable: c.available, v1alpha1.ConditionProgressing: c.progressing, v1alpha1.ConditionReconcileSucceeded: c.reconciled,
			} {
				got := meta.FindStatusCondition(status.Conditions, kind)
				if string(got.Status)+" "+got.Reason != want {
					t.Errorf("%s is %s %s, want %s", kind, got.Status, got.Reason, want)
				}
				if got.Message == "" || got.ObservedGeneration != 9 {
					t.Errorf("%s has message %q and generation %d", kind, got.Message, got.ObservedGeneration)
				}
			}
		})
	}
}

// passOver is a pass over a fleet with a StatefulSet of that status, and with the pods that it tells of. Nil: there is none.
func passOver(replicas int32, set *appsv1.StatefulSetStatus) *pass {
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 9}}
	cluster.Spec.Replicas, cluster.Spec.Adapter = ptr.To(replicas), v1alpha1.AdapterETS
	if set == nil {
		return (&Reconciler{}).newPass(cluster, observation{statefulSet: &appsv1.StatefulSet{}})
	}
	seen := fleetOf(int(set.Replicas), func(m []member) {
		for i := range m {
			m[i].updated = int32(i) >= set.Replicas-set.UpdatedReplicas
			if int32(i) >= set.ReadyReplicas {
				m[i].Status.Conditions = nil
			}
		}
	})
	seen.statefulSet.UID, seen.statefulSet.Generation, seen.statefulSet.Status = "shop", 4, *set
	return (&Reconciler{}).newPass(cluster, seen)
}

// A pod that is there for a rollout only, or that is leaving, is not counted: an autoscaler must not see it.
func TestStatusDoesNotCountTheSurgePod(t *testing.T) {
	two := &appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 2, ReadyReplicas: 2, UpdatedReplicas: 1}
	p := passOver(1, two)
	status := statusOf(p, nil)
	if !p.plan.Surging || status.Replicas != 1 || status.ReadyReplicas != 1 || status.UpdatedReplicas != 1 {
		t.Errorf("surging = %t, the status tells of %d pods, %d ready, %d updated", p.plan.Surging, status.Replicas, status.ReadyReplicas, status.UpdatedReplicas)
	}
	if status := statusOf(passOver(0, two), nil); status.Replicas != 0 {
		t.Errorf("the status tells of %d pods while two are leaving", status.Replicas)
	}
}

func TestStalled(t *testing.T) {
	done := &appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3}
	paused := &reconcile.Problem{Reason: v1alpha1.ReasonPaused, Message: "paused"}
	broken := func(p *pass) { p.seen.members[2].Status = waiting("ImagePullBackOff") }
	brokenForLong := func(p *pass) {
		broken(p)
		p.seen.waited = map[string]time.Duration{"shop-2": soon}
	}
	cases := map[string]struct {
		change  func(*pass)
		outcome error
		want    news
	}{
		"all is well":        {nil, nil, news{}},
		"paused":             {nil, fmt.Errorf("check paused: %w", paused), news{}},
		"the API has hiccup": {nil, errors.New("timeout"), news{}},
		"a Secret is missing": {nil, fmt.Errorf("resolve secrets: %w", secretMissing("no Secret")),
			news{reason: v1alpha1.ReasonSecretMissing, message: "no Secret"}},
		"a name is taken": {nil, &apply.ConflictError{Owner: "LiveStashCluster", Objects: []string{"Service shop"}},
			news{reason: v1alpha1.ReasonNameConflict, message: (&apply.ConflictError{Owner: "LiveStashCluster", Objects: []string{"Service shop"}}).Error()}},
		"a quota": {func(p *pass) { p.refusal = "exceeded quota" }, nil,
			news{reason: v1alpha1.ReasonPodNotMade, message: "exceeded quota"}},
		"an image, a moment ago": {broken, nil, news{}},
		"an image, a moment ago, and a pod that drains for long": {func(p *pass) {
			broken(p)
			p.seen.waited = map[string]time.Duration{"shop-2": time.Second, "shop-1 stops": soon}
		}, nil, news{}},
		"an image": {brokenForLong, nil,
			news{reason: v1alpha1.ReasonPodFailing, message: "pod shop-2, container app: ImagePullBackOff; the image img cannot be had: check spec.image and spec.imagePullSecrets"}},
		"an image, and paused": {brokenForLong, paused,
			news{reason: v1alpha1.ReasonPodFailing, message: "pod shop-2, container app: ImagePullBackOff; the image img cannot be had: check spec.image and spec.imagePullSecrets"}},
		"a pod that is never ready": {func(p *pass) { p.plan = rollout.Plan{Phase: rollout.Stuck, Waiting: "shop-2 is not ready"} }, nil,
			news{reason: v1alpha1.ReasonRolloutStuck, message: "shop-2 is not ready"}},
		"a pod that is waited for": {func(p *pass) { p.plan = rollout.Plan{Phase: rollout.Rolling, Waiting: "shop-2 is not ready"} }, nil, news{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := passOver(3, done)
			if c.change != nil {
				c.change(p)
			}
			if got := stalled(p, c.outcome); got != c.want {
				t.Errorf("stalled = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRolloutSafe(t *testing.T) {
	cases := map[string]struct {
		adapter  v1alpha1.Adapter
		replicas int32
		surge    v1alpha1.Surge
		agent    bool
		// says is what the condition tells to do. Empty: it is True.
		says string
	}{
		"peers take over":                  {v1alpha1.AdapterETS, 2, v1alpha1.SurgeAuto, true, ""},
		"two pods need no surge":           {v1alpha1.AdapterETS, 2, v1alpha1.SurgeNever, true, ""},
		"one pod gets a second":            {v1alpha1.AdapterMnesia, 1, v1alpha1.SurgeAuto, true, ""},
		"one pod alone":                    {v1alpha1.AdapterETS, 1, v1alpha1.SurgeNever, true, "set surge to Stays or Auto, or replicas to 2"},
		"one pod alone, with copies":       {v1alpha1.AdapterMnesia, 1, v1alpha1.SurgeNever, true, "every rollout loses all stashes (adapter Mnesia)"},
		"one pod alone, stashes elsewhere": {v1alpha1.AdapterBrowserMemory, 1, v1alpha1.SurgeNever, true, ""},
		"nobody hands over":                {v1alpha1.AdapterETS, 3, v1alpha1.SurgeAuto, false, "enable the agent"},
		"nobody needs to hand over":        {v1alpha1.AdapterRedis, 3, v1alpha1.SurgeAuto, false, ""},
		"no pods":                          {v1alpha1.AdapterETS, 0, v1alpha1.SurgeNever, false, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter, cluster.Spec.Replicas, cluster.Spec.Rollout.Surge, cluster.Spec.Agent.Enabled = c.adapter, &c.replicas, c.surge, &c.agent
			got := rolloutSafe(cluster)
			if safe := got.Status == metav1.ConditionTrue; safe != (c.says == "") || !strings.Contains(got.Message, c.says) {
				t.Errorf("RolloutSafe is %s %s: %s; want one that says %q", got.Status, got.Reason, got.Message, c.says)
			}
		})
	}
}

// A stash in the browser is no older than its TTL, and users are still to find it when they come back after keepFor.
func TestRolloutSafeForStashesThatAge(t *testing.T) {
	cases := map[string]struct {
		adapter      v1alpha1.Adapter
		ttl, keepFor time.Duration
		safe         bool
	}{
		"stashes that age, and the default TTL":     {v1alpha1.AdapterBrowserMemory, 5 * time.Minute, time.Hour, false},
		"stashes that age, a second too short":      {v1alpha1.AdapterBrowserMemory, time.Hour - time.Second, time.Hour, false},
		"stashes that age, but not too early":       {v1alpha1.AdapterBrowserMemory, time.Hour, time.Hour, true},
		"stashes that age, and nothing is promised": {v1alpha1.AdapterBrowserMemory, time.Minute, 0, true},
		"stashes that are renewed":                  {v1alpha1.AdapterRedis, time.Minute, time.Hour, true},
		"no stashes":                                {v1alpha1.AdapterNone, time.Minute, time.Hour, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter, cluster.Spec.TTL, cluster.Spec.Drain.KeepFor = c.adapter, &metav1.Duration{Duration: c.ttl}, &metav1.Duration{Duration: c.keepFor}
			got := rolloutSafe(cluster)
			if safe := got.Status == metav1.ConditionTrue; safe != c.safe || !safe && got.Reason != v1alpha1.ReasonTTLTooShort {
				t.Errorf("RolloutSafe is %s %s: %s", got.Status, got.Reason, got.Message)
			}
		})
	}
}

// Every pod of a thousand misses all others, everybody tells of it at length, and ten rollouts went wrong: each write of the object
// goes to all who watch it.
func TestAnObjectStaysSmall(t *testing.T) {
	const size = 1000
	long := strings.Repeat("a", 45)
	set := appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: size, ReadyReplicas: size, UpdateRevision: long + "-0123456789"}
	p := passOver(size, &set)
	p.cluster.Name, p.cluster.Spec.Adapter = long, v1alpha1.AdapterMnesia
	p.seen.names = map[string]bool{}
	for i := range p.seen.members {
		m := &p.seen.members[i]
		m.Name = fmt.Sprintf("%s-%03d", long, i)
		p.seen.names[m.Name] = true
	}
	p.seen.ready = p.seen.names
	for i := range p.seen.members {
		status := &p.seen.members[i].answer.Status
		status.Ready, status.Stashes, status.LargestStashBytes = false, 1<<40, 1<<40
		status.Reason, status.Store = strings.Repeat("é", 512), agentclient.Store{Reason: strings.Repeat("é", 512)}
		status.Peers = agentclient.Peers{Expected: size - 1, Missing: size - 1}
		for j := range 10 {
			status.Peers.MissingNodes = append(status.Peers.MissingNodes, "shop@"+p.seen.members[(i+j+1)%size].Name+".nodes")
		}
	}
	p.seen.redisTrouble, p.refusal = strings.Repeat("r", 1024), strings.Repeat("q", 1024)
	p.cluster.Status.Revision = set.UpdateRevision
	for range mostRollouts {
		p.cluster.Status.Rollouts = append(p.cluster.Status.Rollouts, v1alpha1.RolloutStatus{
			From: set.UpdateRevision, To: set.UpdateRevision, Started: metav1.Now(), Finished: ptr.To(metav1.Now()), Outcome: v1alpha1.RolloutSuperseded,
			PodsReported: size, StashesBefore: 1 << 40, HandedOver: 1 << 40, Lost: 1 << 40,
		})
	}
	p.cluster.Status = statusOf(p, errors.New(strings.Repeat("e", 64<<10)))
	text, err := json.Marshal(p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(text))
	if len(text) > 100<<10 {
		t.Errorf("%d bytes", len(text))
	}
	if got := len(p.cluster.Status.Pods); got != mostPods {
		t.Errorf("the status tells of %d pods, want %d", got, mostPods)
	}
	for _, condition := range p.cluster.Status.Conditions {
		if len(condition.Message) > 32<<10 {
			t.Errorf("%s has a message of %d bytes: the API server takes 32 KiB", condition.Type, len(condition.Message))
		}
	}
}

// Of many pods those that are not well are told of, in the order of their ordinals.
func TestPodStatusesTellOfTheUnwell(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	seen := fleetOf(mostPods+100, func(m []member) {
		for _, i := range []int{mostPods + 99, mostPods, 7} {
			m[i].Status.Conditions = nil
		}
		m[mostPods+50].answer.Err = errors.New(strings.Repeat("é", 2*mostText))
	})
	got, _ := podStatuses(cluster, &seen)
	names := []string{}
	for _, pod := range got[:6] {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"shop-7", "shop-256", "shop-306", "shop-355", "shop-0", "shop-1"}, names); diff != "" || len(got) != mostPods {
		t.Errorf("%d pods, the first (-want +got):\n%s", len(got), diff)
	}
	if problem := got[2].Problem; len(problem) > mostText || len(problem) < mostText-1 || !strings.HasSuffix(problem, "é…") {
		t.Errorf("a problem of %d bytes: %s", len(problem), problem)
	}
}
