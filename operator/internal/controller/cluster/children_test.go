package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Somebody else's objects that have a name that a fleet wants, and no field that would be in the way.
func TestForeignObjectIsNotAdopted(t *testing.T) {
	persistent := func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{StorageClassName: ptr.To("children-test")}}}
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "children-test"}, Provisioner: "example.com/none"}
	suite.Must(t, api.Create(t.Context(), class))
	t.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	cases := map[string]struct {
		foreign client.Object
		spec    func(*v1alpha1.LiveStashClusterSpec)
		// says is how the condition names the object.
		says string
		// made is whether each of these StatefulSets is made nevertheless: those that do not need the object.
		made map[string]bool
	}{
		"ServiceAccount": {
			foreign: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			spec:    managedRedisFleet, says: "ServiceAccount shop", made: map[string]bool{"shop": false, "shop-redis": false},
		},
		"ConfigMap of Redis": {
			foreign: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shop-redis"}},
			spec:    managedRedisFleet, says: "ConfigMap shop-redis", made: map[string]bool{"shop": true, "shop-redis": false},
		},
		"volume of Redis": {
			foreign: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shop-redis-data"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: ptr.To(""),
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
			}},
			spec: persistent, says: "PersistentVolumeClaim shop-redis-data", made: map[string]bool{"shop": true, "shop-redis": false},
		},
		"client Service": {
			foreign: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "other", Port: 1}}}},
			says:    "Service shop", made: map[string]bool{"shop": true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := suite.Namespace(t, api)
			c.foreign.SetNamespace(namespace)
			suite.Must(t, api.Create(t.Context(), c.foreign))
			version := c.foreign.GetResourceVersion()
			cluster := newCluster(t, namespace, c.spec)

			message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
			if want := c.says + " exists and does not belong to this LiveStashCluster: delete it"; !strings.Contains(message, want) {
				t.Errorf("the condition says %q, want %q", message, want)
			}
			for name, made := range c.made {
				err := get(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
				if made && err != nil || !made && !apierrors.IsNotFound(err) {
					t.Errorf("StatefulSet %s made: %v, want %v", name, err == nil, made)
				}
			}
			suite.Must(t, get(t, c.foreign))
			if c.foreign.GetResourceVersion() != version {
				t.Errorf("it was changed: %+v", c.foreign)
			}

			result, err := underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 25*time.Second {
				t.Errorf("Reconcile = %+v, %v: nothing tells when the object is gone", result, err)
			}
			suite.Must(t, api.Delete(t.Context(), c.foreign, client.GracePeriodSeconds(0)))
		})
	}
}

// The cache may not know yet of a Secret that somebody else has made a moment ago.
func TestForeignSecretIsNotRead(t *testing.T) {
	namespace := suite.Namespace(t, api)
	cluster := newCluster(t, namespace, nil)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-redis"}}
	suite.Must(t, api.Create(t.Context(), foreign))
	_, err := underTest.readSecret(t.Context(), cluster, foreign.Name)
	var taken *apply.ConflictError
	if !errors.As(err, &taken) {
		t.Errorf("readSecret = %v", err)
	}
}

// One that belongs to somebody else is not used, though it has the fleet's labels: pods would have a cookie that somebody knows.
func TestForeignSecretIsNotUsed(t *testing.T) {
	namespace := suite.Namespace(t, api)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	suite.Must(t, api.Create(t.Context(), other))
	foreign := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-secrets", Labels: map[string]string{render.ClusterLabel: "shop", render.ManagedByLabel: render.Operator}},
		StringData: map[string]string{"cookie": "known", "secret-key-base": strings.Repeat("known", 20)},
	}
	foreign.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	suite.Must(t, api.Create(t.Context(), foreign))
	cluster := newCluster(t, namespace, nil)
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonNameConflict, "Secret shop-secrets exists")
	if err := get(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet: %v", err)
	}
}

// An object that is in the way of a fleet that runs does not keep changes from the rest of it.
func TestForeignObjectDoesNotStopTheOthers(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, account))
	before := account.DeepCopy()
	account.OwnerReferences, account.Labels = nil, nil
	suite.Must(t, api.Patch(t.Context(), account, client.MergeFrom(before)))

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](7) })
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	if got := *await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{}).Spec.Replicas; got != 7 {
		t.Errorf("%d replicas", got)
	}
	suite.Must(t, api.Delete(t.Context(), account))
	reconciled(t, cluster)
}

// A Service that leads nowhere because somebody has edited it is repaired at once.
func TestAnEditedServiceIsRepaired(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	edits := map[string]func(*corev1.ServiceSpec){
		"port":     func(spec *corev1.ServiceSpec) { spec.Ports[0].Port = 8080 },
		"target":   func(spec *corev1.ServiceSpec) { spec.Ports[0].TargetPort = intstr.FromInt32(1) },
		"selector": func(spec *corev1.ServiceSpec) { spec.Selector["no"] = "pod" },
	}
	for name, edit := range edits {
		service := await(t, cluster.Namespace, "shop", &corev1.Service{})
		want := service.DeepCopy().Spec
		edit(&service.Spec)
		suite.Must(t, api.Update(t.Context(), service))
		suite.Eventually(t, func() error {
			if diff := cmp.Diff(want, await(t, cluster.Namespace, "shop", &corev1.Service{}).Spec); diff != "" {
				return fmt.Errorf("after another %s (-want +got):\n%s", name, diff)
			}
			return nil
		})
	}
	reconciled(t, cluster)
}

// What TLS and Redis need goes with their setting, when no pod has it mounted any more.
func TestWhatASettingNeededGoesWithIt(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		redisFleetWithTLS(spec)
		withTLS(spec)
		spec.Replicas = ptr.To[int32](0) // TLS can only change then
	})
	reconciled(t, cluster)
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}
	}
	needed := []client.Object{
		&corev1.ConfigMap{ObjectMeta: named("shop-distribution")},
		&corev1.Secret{ObjectMeta: named("shop-distribution-ca")},
		&corev1.Secret{ObjectMeta: named("shop-distribution-tls")},
		&corev1.ConfigMap{ObjectMeta: named("shop-redis")},
		&corev1.Secret{ObjectMeta: named("shop-redis")},
		&corev1.Secret{ObjectMeta: named("shop-redis-acl")},
		&corev1.Secret{ObjectMeta: named("shop-redis-ca")},
		&corev1.Secret{ObjectMeta: named("shop-redis-tls")},
	}
	for _, object := range needed {
		suite.Must(t, get(t, object))
	}
	foreign := &corev1.Secret{ObjectMeta: named("own")}
	foreign.Labels = map[string]string{"livestash.dev/cluster": "shop"}
	suite.Must(t, api.Create(t.Context(), foreign))

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter, spec.Redis, spec.AcceptLossOf = v1alpha1.AdapterETS, nil, v1alpha1.AdapterRedis
		spec.Clustering.TLS.Enabled = false
	})
	reconciled(t, cluster)
	for _, object := range needed {
		if err := get(t, object); err != nil {
			t.Errorf("pods that need it may still be there: %v", err)
		}
	}
	rolledOut(t, cluster.Namespace, "shop")
	for _, object := range needed {
		suite.Eventually(t, func() error {
			err := get(t, object)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, fmt.Errorf("%T %s is still there", object, object.GetName()))
		})
	}
	for _, kept := range []client.Object{foreign, &corev1.Secret{ObjectMeta: named("shop-secrets")}} {
		suite.Must(t, get(t, kept))
	}
}

// The last pods of a fleet that is scaled to zero must not wait for somebody who takes their users over. That the headless Service is gone
// tells them, so it goes before the first of them is told to stop, and is back before there are pods.
func TestHeadlessServiceGoesBeforeTheLastPods(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-nodes"}}
	scaled := func(replicas int32) (written []string) {
		t.Helper()
		before := len(writtenOf(cluster))
		changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = &replicas })
		reconciled(t, cluster)
		if got := *await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{}).Spec.Replicas; got != replicas {
			t.Errorf("%d replicas, want %d", got, replicas)
		}
		return writtenOf(cluster)[before:]
	}

	want := []string{"DELETE services/shop-nodes", "PATCH statefulsets/shop"}
	if diff := cmp.Diff(want, scaled(0)); diff != "" {
		t.Errorf("scaled to zero (-want +got):\n%s", diff)
	}
	if err := get(t, service); !apierrors.IsNotFound(err) {
		t.Errorf("looking up the headless Service of no pods: %v", err)
	}
	if diff := cmp.Diff([]string{"PATCH services/shop-nodes", "PATCH statefulsets/shop"}, scaled(3)); diff != "" {
		t.Errorf("scaled up again (-want +got):\n%s", diff)
	}
	suite.Must(t, get(t, service))
}

// writtenOf is what the operator has written of the headless Service and the StatefulSet of a fleet.
func writtenOf(cluster *v1alpha1.LiveStashCluster) []string {
	var lines []string
	for _, line := range written.of("/namespaces/" + cluster.Namespace + "/") {
		if strings.HasSuffix(line, "/services/shop-nodes") || strings.HasSuffix(line, "/statefulsets/shop") {
			verb, path, _ := strings.Cut(line, " ")
			_, object, _ := strings.Cut(path, cluster.Namespace+"/")
			lines = append(lines, verb+" "+object)
		}
	}
	return lines
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

func podTemplate(t *testing.T, patch string) *v1alpha1.PodTemplateOverride {
	t.Helper()
	spec := &v1alpha1.PodSpecOverride{}
	suite.Must(t, spec.UnmarshalJSON([]byte(patch)))
	return &v1alpha1.PodTemplateOverride{Spec: spec}
}

// An operator stood still in the middle of a pass, and another one led meanwhile.
func TestAPassThatIsTooLateChangesNothing(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	old := cluster.DeepCopy()
	old.Spec.Image = "ghcr.io/acme/shop:old"
	seen, err := underTest.observe(t.Context(), old)
	suite.Must(t, err)
	late := underTest.newPass(old, seen)

	newImage(t, cluster, "ghcr.io/acme/shop:2")
	before := fleetSet(t, cluster)
	if err := reconcile.Run(t.Context(), late, underTest.steps()); !apierrors.IsConflict(err) {
		t.Errorf("the pass ended with %v", err)
	}
	if diff := cmp.Diff(before.Spec, fleetSet(t, cluster).Spec); diff != "" {
		t.Errorf("what it changed (-before +after):\n%s", diff)
	}
}
