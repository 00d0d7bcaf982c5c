package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// toldInEvent waits for an event that says so.
func toldInEvent(t *testing.T, cluster *v1alpha1.LiveStashCluster, reason, says string) {
	t.Helper()
	suite.Eventually(t, func() error {
		events := &eventsv1.EventList{}
		if err := api.List(t.Context(), events, client.InNamespace(cluster.Namespace)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.Reason == reason && strings.Contains(event.Note, says) {
				return nil
			}
		}
		return fmt.Errorf("no event %s says %q", reason, says)
	})
}

// held waits until the change is held, and checks that nothing is done.
func held(t *testing.T, cluster *v1alpha1.LiveStashCluster, says string) {
	t.Helper()
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonStoreChangeHeld, says)
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonStoreChangeHeld)
	toldInEvent(t, cluster, v1alpha1.ReasonStoreChangeHeld, says)
	looks(t, cluster, "without a word")
}

func accept(adapter v1alpha1.Adapter) func(*v1alpha1.LiveStashClusterSpec) {
	return func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = adapter }
}

// adapterBecomes waits until the StatefulSet's pods are to use that adapter.
func adapterBecomes(t *testing.T, cluster *v1alpha1.LiveStashCluster, want string) {
	t.Helper()
	suite.Eventually(t, func() error {
		if got := adapterOf(&fleetSet(t, cluster).Spec.Template.Spec); got != want {
			return fmt.Errorf("the pods are to use %s", got)
		}
		return nil
	})
}

// Another adapter does not find what the pods hold: it waits for a word that names the one that is left, and for no other.
func TestAnotherAdapterWaitsForAWord(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	for number, stashes := range []int64{40, 0} {
		pod := fleetPod(t, cluster, number, "a")
		status := wellAmong(2, pod.Name)
		status.Adapter, status.Stashes = "ets", stashes
		serves(t, pod, status)
	}
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterMnesia })
	held(t, cluster, "the 40 stashes that the pods hold in memory (adapter ETS)")
	changeSpec(t, cluster, accept(v1alpha1.AdapterRedis))
	looks(t, cluster, "with a word for another adapter")
	changeSpec(t, cluster, accept(v1alpha1.AdapterETS))
	adapterBecomes(t, cluster, "mnesia")
	toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "given up are the 40 stashes")

	// It has begun, and is taken back while a pod of before is there.
	acted(t, cluster, "a", "b")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter, spec.AcceptLossOf = v1alpha1.AdapterETS, "" })
	adapterBecomes(t, cluster, "ets")
}

// Where nothing is at stake, nobody is asked.
func TestAnotherAdapterWithoutStashes(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	adapterBecomes(t, cluster, "browser_memory")
}

// Another Redis, or none any more, leaves the stashes of the one before behind.
func TestAnotherRedisWaitsForAWord(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.LiveStashClusterSpec){
		"another Redis": func(spec *v1alpha1.LiveStashClusterSpec) {
			spec.Redis = &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis.example.com"}}
		},
		"another adapter": func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterETS },
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
			fleetPod(t, cluster, 0, "a")
			reconciled(t, cluster)
			before := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{})
			changeSpec(t, cluster, change)
			held(t, cluster, "all stashes in the Redis at "+redisAddress(cluster))
			if after := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{}); after.ResourceVersion != before.ResourceVersion {
				t.Error("the login of Redis has changed")
			}
			changeSpec(t, cluster, accept(v1alpha1.AdapterRedis))
			condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReconciled)
			toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "given up are all stashes in the Redis")
		})
	}
}

// A wrong host that no pod ever reached is mended without a word.
func TestRedisThatNobodyReached(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter, spec.Redis = v1alpha1.AdapterRedis, &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis.exmaple.com"}}
	})
	fleetPod(t, cluster, 0, "a")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Redis.External.Host = "redis.example.com" })
	replicasAre(t, cluster, 0)
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReconciled)
}

// A Redis without a volume would begin again on an empty one.
func TestAnEmptyVolumeWaitsForAWord(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	redisRevision(t, cluster, "a")
	server, address := redisPod(t, cluster, 0, "a")
	suite.Must(t, redisServers.tell(address, func(says *succession.Says) error { says.Stashes = 7; return nil }))
	later(t, cluster, 2*time.Minute) // both the question and the status are due then
	redisServes(t, cluster, server, 7)
	changeSpec(t, cluster, onAVolume(t))
	held(t, cluster, "all stashes in the Redis at "+redisAddress(cluster)+" (7 when it was last asked), which begins again on an empty volume")
	if set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}); keepsData(set) {
		t.Error("Redis is to begin again")
	}
	changeSpec(t, cluster, accept(v1alpha1.AdapterRedis))
	toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "begins again on an empty volume")
	suite.Eventually(t, func() error {
		if set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}); !keepsData(set) {
			return errors.New("Redis is to run without a volume")
		}
		return nil
	})
}

// leftRedis has a LiveStashCluster leave a managed Redis that serves, and returns its namespace.
func leftRedis(t *testing.T, spec func(*v1alpha1.LiveStashClusterSpec), more ...client.Object) string {
	t.Helper()
	namespace := suite.Namespace(t, api)
	before := newCluster(t, namespace, spec)
	redisRevision(t, before, "a")
	redisPod(t, before, 0, "a")
	reconciled(t, before)
	left := append(children(namespace), more...)
	for _, object := range []client.Object{
		&corev1.Secret{}, &appsv1.StatefulSet{}, &corev1.Service{}, &corev1.ConfigMap{}, &networkingv1.NetworkPolicy{},
	} {
		object.SetName("shop-redis")
		left = append(left, object)
	}
	left = append(left, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-redis-acl"}})
	for _, object := range left {
		object.SetNamespace(namespace)
	}
	orphan(t, before, left)
	return namespace
}

// A LiveStashCluster that takes back the Redis of an earlier one has no status that tells of it, and what is in it is worth no less.
func TestAnEmptyVolumeForARedisThatWasTakenBack(t *testing.T) {
	namespace := leftRedis(t, managedRedisFleet, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "shop-redis"}})
	cluster := newCluster(t, namespace, onAVolume(t))
	held(t, cluster, "all stashes in the Redis at "+redisAddress(cluster)+", which begins again on an empty volume")
	if set := await(t, namespace, "shop-redis", &appsv1.StatefulSet{}); keepsData(set) {
		t.Error("Redis is to begin again")
	}
	changeSpec(t, cluster, accept(v1alpha1.AdapterRedis))
	toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "begins again on an empty volume")
	suite.Eventually(t, func() error {
		if set := await(t, namespace, "shop-redis", &appsv1.StatefulSet{}); !keepsData(set) {
			return errors.New("Redis is to run without a volume")
		}
		return nil
	})
}

// One that has had its volume keeps it, and nobody is asked.
func TestARedisIsTakenBackWithItsVolume(t *testing.T) {
	spec := onAVolume(t)
	namespace := leftRedis(t, spec, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shop-redis-data"}})
	set := await(t, namespace, "shop-redis", &appsv1.StatefulSet{})
	cluster := newCluster(t, namespace, spec)
	reconciled(t, cluster)
	if now := await(t, namespace, "shop-redis", &appsv1.StatefulSet{}); now.UID != set.UID || now.Generation != set.Generation {
		t.Error("the StatefulSet of Redis has changed")
	}
}

func keepsData(set *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(volume corev1.Volume) bool { return volume.PersistentVolumeClaim != nil })
}

// onAVolume is a managed Redis with persistence, of a class of the test's own.
func onAVolume(t *testing.T) func(*v1alpha1.LiveStashClusterSpec) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "store-change-"}, Provisioner: "example.com/none"}
	suite.Must(t, api.Create(t.Context(), class))
	t.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	return func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{StorageClassName: ptr.To(class.Name)}}}
	}
}

// What pods hold whose agents say nothing is not known, and waits too.
func TestAnotherAdapterWithoutAgents(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Agent.Enabled = ptr.To(false) })
	pod := fleetPod(t, cluster, 0, "a")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	isKnown(t, pod, &corev1.Pod{})
	acted(t, cluster, "a", "a")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterMnesia })
	held(t, cluster, "the stashes that the pods hold in memory (adapter ETS), which no agent has counted")
	changeSpec(t, cluster, accept(v1alpha1.AdapterETS))
	adapterBecomes(t, cluster, "mnesia")
}

// A volume goes only after a word, whatever else there is.
func TestVolumeWaitsForAWord(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), onAVolume(t))
	volume := await(t, cluster.Namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{})
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Redis = nil })
	held(t, cluster, "the volume of the PersistentVolumeClaim shop-redis-data")
	if mounted := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Spec.Template.Spec.Volumes; len(mounted) == 0 {
		t.Error("Redis is to run without its volume")
	}
	changeSpec(t, cluster, accept(v1alpha1.AdapterRedis))
	toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "shop-redis-data")
	suite.Eventually(t, func() error {
		err := get(t, volume)
		if apierrors.IsNotFound(err) || err == nil && !volume.DeletionTimestamp.IsZero() {
			return nil
		}
		return fmt.Errorf("the volume is still there, %w", err)
	})
}
