package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// redisPod plays the StatefulSet controller and the kubelet: a pod of Redis of that revision, whose server answers. It returns the
// server's address too.
func redisPod(t *testing.T, cluster *v1alpha1.LiveStashCluster, place int, revision string) (*corev1.Pod, string) {
	t.Helper()
	set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = cluster.Namespace, redis.PodName(cluster, place)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	suite.Must(t, api.Create(t.Context(), pod))
	number := addresses.Add(1)
	pod.Status.PodIP = fmt.Sprintf("10.8.%d.%d", number/256, number%256)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	redisServers.starts(redis.Address(pod.Status.PodIP))
	suite.Must(t, api.Status().Update(t.Context(), pod))
	return pod, redis.Address(pod.Status.PodIP)
}

// redisRevision plays the StatefulSet controller: that is the revision of the template as it is now.
func redisRevision(t *testing.T, cluster *v1alpha1.LiveStashCluster, revision string) {
	t.Helper()
	suite.Eventually(t, func() error {
		set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: 1, UpdateRevision: revision}
		return api.Status().Update(t.Context(), set)
	})
}

// redisPlaced waits until the StatefulSet has that many pods from that number on, and the Service leads to that pod.
func redisPlaced(t *testing.T, cluster *v1alpha1.LiveStashCluster, replicas, start int32, serves string) {
	t.Helper()
	suite.Eventually(t, func() error {
		set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
		service := await(t, cluster.Namespace, "shop-redis", &corev1.Service{})
		begins := ptr.Deref(set.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
		leads := service.Spec.Selector[appsv1.StatefulSetPodNameLabel]
		if *set.Spec.Replicas != replicas || begins != start || leads != serves {
			return fmt.Errorf("%d pods from %d on, and the Service leads to %s", *set.Spec.Replicas, begins, leads)
		}
		return nil
	})
}

// redisServes waits until the status tells that server.
func redisServes(t *testing.T, cluster *v1alpha1.LiveStashCluster, pod *corev1.Pod, stashes int64) {
	t.Helper()
	suite.Eventually(t, func() error {
		status := await(t, cluster.Namespace, "shop", &v1alpha1.LiveStashCluster{}).Status.Redis
		if status == nil || status.Server == nil || status.Server.UID != pod.UID || status.Server.Stashes != stashes {
			return fmt.Errorf("status.redis = %+v", status)
		}
		return nil
	})
}

func setMemory(t *testing.T, cluster *v1alpha1.LiveStashCluster, memory string) {
	t.Helper()
	generation := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Generation
	suite.Must(t, get(t, cluster))
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Memory: ptr.To(resource.MustParse(memory))}}
	})
	suite.Eventually(t, func() error {
		if await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Generation == generation {
			return errors.New("the StatefulSet has not changed")
		}
		return nil
	})
}

// A changed server takes over the stashes of the one that is there, in the other place, and the next one goes back.
func TestRedisHandsOver(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	redisRevision(t, cluster, "a")
	before, oldAddress := redisPod(t, cluster, 0, "a")
	suite.Must(t, redisServers.tell(oldAddress, func(says *succession.Says) error { says.Stashes = 7; return nil }))
	redisPlaced(t, cluster, 1, 0, "shop-redis-0")

	setMemory(t, cluster, "1Gi")
	redisPlaced(t, cluster, 1, 0, "shop-redis-0")
	redisRevision(t, cluster, "b")
	redisPlaced(t, cluster, 2, 0, "shop-redis-0")
	redisRevision(t, cluster, "b")
	if primary := redisServers.says(oldAddress).Primary; primary != string(before.UID) {
		t.Errorf("the stashes are of %q before they are copied, want %s", primary, before.UID)
	}

	resume := operatorTime.Stop() // until both have been looked at, between one step and the next
	t.Cleanup(resume)
	heir, heirAddress := redisPod(t, cluster, 1, "b")
	redisPlaced(t, cluster, 2, 0, "shop-redis-1")
	says := redisServers.says(heirAddress)
	resume()
	if says.Follows != before.Status.PodIP {
		t.Errorf("the Service leads to a server that says %+v", says)
	}
	later(t, cluster, 3*time.Second)
	redisPlaced(t, cluster, 1, 1, "shop-redis-1")
	if old, now := redisServers.says(oldAddress), redisServers.says(heirAddress); now.Follows != "" || now.Primary != string(heir.UID) || old.Follows == "" {
		t.Errorf("the old server says %+v, the new one %+v", old, now)
	}
	eventSays(t, cluster.Namespace, v1alpha1.ReasonRedisHandedOver, "shop-redis-1 has taken over the 7 stashes of shop-redis-0")
	redisServes(t, cluster, heir, 7)
	suite.Must(t, api.Delete(t.Context(), before, client.GracePeriodSeconds(0)))
	redisRevision(t, cluster, "b")
	reconciled(t, cluster)

	setMemory(t, cluster, "2Gi")
	redisRevision(t, cluster, "c")
	redisPlaced(t, cluster, 2, 0, "shop-redis-1")
}

// While a Redis with a volume is being replaced, and a moment longer, no pod of the fleet is taken: its users would find nothing elsewhere. One
// that does not come back holds up nobody.
func TestNobodyMovesWhileRedisRestarts(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: suite.Namespace(t, api), Name: "shop"}}
	labels := map[string]string{"a": "b"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-redis"}}
	set.Spec.Selector, set.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "redis", Image: "redis"}}
	suite.Must(t, api.Create(t.Context(), set))
	r := &Reconciler{Client: api}
	moves := func(now time.Time) bool {
		p := &pass{cluster: cluster}
		p.seen.now = now
		suite.Must(t, r.awaitRedis(t.Context(), p))
		return p.redisMoves
	}
	rolledOut := func(revision string) {
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1, CurrentRevision: "a", UpdateRevision: revision}
		suite.Must(t, api.Status().Update(t.Context(), set))
	}
	rolledOut("a")
	for _, step := range []struct {
		after    time.Duration
		revision string
		want     bool
	}{{0, "a", true}, {restash, "a", false}, {restash, "b", true}, {restash + soon - time.Second, "b", true}, {restash + soon, "b", false}, {2 * soon, "a", true}, {2*soon + restash, "a", false}} {
		rolledOut(step.revision)
		if got := moves(said.Add(step.after)); got != step.want {
			t.Errorf("after %s, to revision %s: %t", step.after, step.revision, got)
		}
	}
}

// Nothing that changes the server's template replaces the server that has the stashes before another one has them.
func TestNoChangeEmptiesRedis(t *testing.T) {
	pull := func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	}
	for name, c := range map[string]struct {
		before, change func(*v1alpha1.LiveStashClusterSpec)
	}{
		"imagePullSecrets come": {change: pull},
		"imagePullSecrets go":   {before: pull, change: func(spec *v1alpha1.LiveStashClusterSpec) { spec.ImagePullSecrets = nil }},
		"the exporter goes": {change: func(spec *v1alpha1.LiveStashClusterSpec) {
			spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Exporter: v1alpha1.RedisExporter{Enabled: ptr.To(false)}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
				managedRedisFleet(spec)
				if c.before != nil {
					c.before(spec)
				}
			})
			redisRevision(t, cluster, "a")
			server, _ := redisPod(t, cluster, 0, "a")
			redisPlaced(t, cluster, 1, 0, "shop-redis-0")
			generation := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Generation
			suite.Must(t, get(t, cluster))
			changeSpec(t, cluster, c.change)
			suite.Eventually(t, func() error {
				if await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Generation == generation {
					return errors.New("the StatefulSet has not changed")
				}
				return nil
			})
			redisRevision(t, cluster, "b")
			redisPlaced(t, cluster, 2, 0, "shop-redis-0")
			set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
			suite.Must(t, get(t, server))
			if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType || !server.DeletionTimestamp.IsZero() {
				t.Errorf("the server with the stashes is replaced: %+v, deleted %v", set.Spec.UpdateStrategy, server.DeletionTimestamp)
			}
		})
	}
}

// Whoever deletes the pod is told what that cost.
func TestALostRedisIsTold(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	redisRevision(t, cluster, "a")
	before, address := redisPod(t, cluster, 0, "a")
	redisServes(t, cluster, before, 0)
	suite.Must(t, redisServers.tell(address, func(says *succession.Says) error { says.Stashes = 12; return nil }))
	later(t, cluster, 2*countRedis)
	redisServes(t, cluster, before, 12)

	suite.Must(t, api.Delete(t.Context(), before, client.GracePeriodSeconds(0)))
	after, _ := redisPod(t, cluster, 0, "a")
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashesLost, "the 12 stashes that Redis had")
	redisServes(t, cluster, after, 0)
}

// A command of a hand-over that reached a server late would have it follow a pod that is gone, and store nothing.
func TestARedisAtRestTakesWrites(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	redisRevision(t, cluster, "a")
	pod, address := redisPod(t, cluster, 0, "a")
	redisServes(t, cluster, pod, 0)
	for _, late := range []succession.Says{{Follows: "10.9.9.9"}, {Follows: "10.9.9.9", FailingOver: true}} {
		suite.Must(t, redisServers.tell(address, func(says *succession.Says) error { *says = late; return nil }))
		suite.Eventually(t, func() error {
			later(t, cluster, 2*countRedis)
			if says := redisServers.says(address); says.Follows != "" {
				return fmt.Errorf("the server says %+v", says)
			}
			return nil
		})
	}
}

// A pod is made anew because its server does not run, not because its exporter does not.
func TestTroubleOfAServer(t *testing.T) {
	if serverTrouble(&corev1.Pod{Status: waitingIn(redis.ServerContainer, "ImagePullBackOff", "")}) == "" {
		t.Error("the server has no image, and no trouble")
	}
	if got := serverTrouble(&corev1.Pod{Status: waitingIn("exporter", "ImagePullBackOff", "")}); got != "" {
		t.Errorf("the server's trouble is %q", got)
	}
}

// Its stashes are in the pod's folder, also while its container restarts.
func TestNoEvictionWhileRedisRestarts(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	await(t, cluster.Namespace, "shop-redis", &policyv1.PodDisruptionBudget{})
	pod, _ := redisPod(t, cluster, 0, "a")
	suite.Must(t, api.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}))
	suite.Must(t, get(t, pod))
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	soonEnough, cancel := context.WithTimeout(t.Context(), 2*time.Second) // what is refused is tried again and again
	defer cancel()
	err := api.SubResource("eviction").Create(soonEnough, pod, &policyv1.Eviction{})
	suite.Must(t, get(t, pod))
	if err == nil || !pod.DeletionTimestamp.IsZero() {
		t.Error("a Redis was evicted that is about to read its file")
	}
}

// The passwords of the operator are kept twice: no server is replaced because one of the two was lost.
func TestALostRedisAccessIsRestored(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
	for range 2 {
		before := await(t, cluster.Namespace, "shop-redis-acl", &corev1.Secret{})
		suite.Must(t, api.Delete(t.Context(), before.DeepCopy()))
		suite.Eventually(t, func() error {
			after := await(t, cluster.Namespace, "shop-redis-acl", &corev1.Secret{})
			if after.UID == before.UID {
				return errors.New("the Secret is still there")
			}
			if string(after.Data["users.acl"]) != string(before.Data["users.acl"]) {
				t.Errorf("Redis' users were\n%s, are\n%s", before.Data["users.acl"], after.Data["users.acl"])
			}
			return nil
		})
	}
	reconciled(t, cluster)
	if now := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}); now.Generation != set.Generation {
		t.Error("the StatefulSet of Redis has changed")
	}
}

// Redis' users are lost while the fleet's password changes: the password that the pods have still counts, and Redis is told before they get another one.
func TestALostRedisAccessAndANewPassword(t *testing.T) {
	cluster, secret := withOwnRedisPassword(t)
	ns := cluster.Namespace
	rolledOut(t, ns, "shop-redis")
	rolledOut(t, ns, "shop")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonPaused)
	secret.Data["pw"] = []byte("second")
	suite.Must(t, api.Update(t.Context(), secret))
	suite.Must(t, api.Delete(t.Context(), await(t, ns, "shop-redis-acl", &corev1.Secret{})))
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = false })
	takes := func(want ...string) {
		t.Helper()
		suite.Eventually(t, func() error {
			if got := redisServers.hashes(redisAddress(cluster)); !slices.Equal(got, want) {
				return fmt.Errorf("Redis takes the passwords %v, want %v", got, want)
			}
			return nil
		})
	}
	second, first := redis.PasswordHash("second"), redis.PasswordHash("first")
	takes(second, first)

	// Lost once more: nobody knows the old password any more, and Redis forgets it all the same.
	rolledOut(t, ns, "shop")
	users := await(t, ns, "shop-redis-acl", &corev1.Secret{})
	suite.Must(t, api.Delete(t.Context(), users.DeepCopy()))
	suite.Eventually(t, func() error {
		if after := await(t, ns, "shop-redis-acl", &corev1.Secret{}); after.UID == users.UID {
			return errors.New("the Secret is still there")
		}
		return nil
	})
	later(t, cluster, 2*keepOldPassword)
	takes(second)
}

// takenOverMeanwhile are servers of which one hands over right before it is looked at, as when an operator ended in the middle of a hand-over.
type takenOverMeanwhile struct {
	toldToRedis
	from string
}

func (t *takenOverMeanwhile) Look(ctx context.Context, login redisadmin.Login) (succession.Says, error) {
	if login.Address == t.from {
		t.from = ""
		if err := t.FailOver(ctx, login); err != nil {
			return succession.Says{}, err
		}
	}
	return t.toldToRedis.Look(ctx, login)
}

// Who has taken over between the two questions to the servers has stored more since, and is not taken for a copy.
func TestAHandOverBetweenTwoQuestions(t *testing.T) {
	const heir, old = "10.0.0.1", "10.0.0.2"
	servers := &takenOverMeanwhile{from: redis.Address(old)}
	servers.starts(redis.Address(heir))
	servers.starts(redis.Address(old))
	login := redisadmin.Login{Address: redis.Address(old)}
	suite.Must(t, servers.SetPrimary(t.Context(), login, "old"))
	suite.Must(t, servers.Follow(t.Context(), redisadmin.Login{Address: redis.Address(heir)}, login, ""))

	seen := succession.Seen{Exists: true, Settled: true, Both: true, Only: 1, Servers: [2]succession.Server{
		{Pod: "shop-redis-0", UID: "heir", Host: heir, Ready: true}, {Pod: "shop-redis-1", UID: "old", Host: old, Outdated: true, Ready: true},
	}}
	suite.Must(t, (&Reconciler{Redis: servers}).askRedis(t.Context(), redisAccess{}, &seen, [2]*corev1.Pod{{}, {}}, nil))
	if step := succession.Next(seen); step.Tell != succession.Crown || step.On != 0 {
		t.Errorf("the next step is %+v, want the name of the heir in its stashes: the servers say %+v and %+v", step, *seen.Servers[0].Says, *seen.Servers[1].Says)
	}
}
