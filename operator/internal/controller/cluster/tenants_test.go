package cluster

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Mallory may edit one namespace, and tries what she can against a fleet of another one. docs/security.md has the same as a table.
func TestTenants(t *testing.T) {
	theirs, hers := suite.Namespace(t, api), suite.Namespace(t, api)
	mallory := suite.Tenant(t, connection, api.Scheme(), hers)
	shop := newCluster(t, theirs, nil)
	reconciled(t, shop)
	suite.Must(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "database"}, StringData: map[string]string{"url": "postgres://marked-value"},
	}))

	t.Run("at the API server", func(t *testing.T) { forbiddenTo(t, mallory, shop, hers) })

	t.Run("by the name of a Secret", func(t *testing.T) {
		// The same name as theirs: nothing of the two fleets meets but the name.
		fleet := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hers, Name: "shop"}}
		fleet.Spec = v1alpha1.LiveStashClusterSpec{Image: "mallory:1", Adapter: v1alpha1.AdapterETS, EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "database"}}},
		}}
		suite.Must(t, mallory.Create(t.Context(), fleet))
		message := condition(t, fleet, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonConfigMissing)
		if strings.Contains(message, theirs) || strings.Contains(message, "marked") {
			t.Errorf("the condition tells of another namespace: %s", message)
		}
		suite.Must(t, mallory.Delete(t.Context(), fleet))
	})

	t.Run("by labels and owners", func(t *testing.T) {
		set := fleetSet(t, shop)
		wolf := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: hers, Name: "shop-0", Labels: render.SelectorLabels(shop)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "wolf", Ports: []corev1.ContainerPort{{Name: "agent", ContainerPort: 9568}}}}},
		}
		wolf.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
		suite.Must(t, mallory.Create(t.Context(), wolf))
		serves(t, wolf, wellAmong(2, "shop-0"))
		// What the operator could take for the fleet's, and delete or take over.
		bait := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: hers, Name: "bait", Labels: render.SelectorLabels(shop), OwnerReferences: []metav1.OwnerReference{render.OwnerReference(shop)}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		bait.OwnerReferences[0].BlockOwnerDeletion = nil // for that she has no right
		bait.Annotations = map[string]string{render.AppliedAnnotation: "0123456789abcdef", render.KeptAnnotation: string(shop.UID)}
		suite.Must(t, mallory.Create(t.Context(), bait))

		own := fleetPod(t, shop, 0, "a")
		serves(t, own, wellAmong(1, "shop-0"))
		acted(t, shop, "a", "a")
		agents.askedAt(t, own, 9568)
		changeSpec(t, shop, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = new(int32(1)) })
		reconciled(t, shop)
		if len(shop.Status.Pods) != 1 {
			t.Errorf("the fleet's status has another namespace's pod: %+v", shop.Status.Pods)
		}
		agents.mutex.Lock()
		_, asked := agents.ports[wolf.Status.PodIP]
		agents.mutex.Unlock()
		if asked {
			t.Error("the operator asks a pod of another namespace about the fleet")
		}
		suite.Must(t, get(t, bait))
	})

	t.Run("all of theirs is left", func(t *testing.T) {
		suite.Must(t, get(t, shop))
		for _, child := range children(theirs) {
			if err := get(t, child); err != nil || !metav1.IsControlledBy(child, shop) {
				t.Errorf("%T %s: %v, owners %v", child, child.GetName(), err, child.GetOwnerReferences())
			}
		}
	})
}

// forbiddenTo is what the API server does not let her do.
func forbiddenTo(t *testing.T, mallory client.Client, shop *v1alpha1.LiveStashCluster, hers string) {
	t.Helper()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: shop.Namespace, Name: name} }
	other := &v1alpha1.LiveStashCluster{ObjectMeta: named("other"), Spec: shop.Spec}
	own := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hers, Name: "own"}, Spec: *shop.Spec.DeepCopy()}
	suite.Must(t, mallory.Create(t.Context(), own))
	t.Cleanup(func() { _ = api.Delete(context.Background(), own) })
	changed := own.DeepCopy()
	changed.Status.Redis = &v1alpha1.RedisStatus{}
	secret := &corev1.Secret{ObjectMeta: named("shop-secrets")}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: hers, Name: "lie"}, Reason: "FailedCreate", Message: "a lie",
		InvolvedObject: corev1.ObjectReference{Kind: "StatefulSet", Namespace: shop.Namespace, Name: "shop", UID: fleetSet(t, shop).UID},
	}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
	for name, try := range map[string]func() error{
		"to look at the fleet":  func() error { return mallory.Get(t.Context(), client.ObjectKeyFromObject(shop), shop.DeepCopy()) },
		"to see who has one":    func() error { return mallory.List(t.Context(), &v1alpha1.LiveStashClusterList{}) },
		"to make one beside it": func() error { return mallory.Create(t.Context(), other) },
		"to have no pods left": func() error {
			return mallory.SubResource("scale").Update(t.Context(), shop.DeepCopy(), client.WithSubResourceBody(scale))
		},
		"to delete it":                        func() error { return mallory.Delete(t.Context(), shop.DeepCopy()) },
		"to read its cookie":                  func() error { return mallory.Get(t.Context(), client.ObjectKeyFromObject(secret), secret) },
		"to change its pods":                  func() error { return mallory.Delete(t.Context(), &appsv1.StatefulSet{ObjectMeta: named("shop")}) },
		"to lie about it in an event":         func() error { return mallory.Create(t.Context(), event) },
		"to lie about her own fleet's status": func() error { return mallory.Status().Patch(t.Context(), changed, client.MergeFrom(own)) },
	} {
		if err := try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
