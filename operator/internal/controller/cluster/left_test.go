package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// orphan plays `kubectl delete --cascade=orphan`, and the garbage collector.
func orphan(t *testing.T, cluster *v1alpha1.LiveStashCluster, children []client.Object) {
	t.Helper()
	suite.Must(t, api.Delete(t.Context(), cluster, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	for _, child := range children {
		suite.Must(t, get(t, child))
		before := child.DeepCopyObject().(client.Object)
		child.SetOwnerReferences(nil)
		suite.Must(t, api.Patch(t.Context(), child, client.MergeFrom(before)))
	}
	suite.Must(t, get(t, cluster))
	cluster.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), cluster))
}

// Whoever deletes a LiveStashCluster alone and makes it again keeps the Secrets, and with them every session, and no pod is replaced.
func TestWhatWasLeftIsTakenBack(t *testing.T) {
	namespace := suite.Namespace(t, api)
	spec := func(spec *v1alpha1.LiveStashClusterSpec) {
		redisFleetWithTLS(spec)
		withTLS(spec)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	left := append(children(namespace),
		&corev1.Secret{ObjectMeta: named("shop-redis")}, &corev1.Secret{ObjectMeta: named("shop-redis-acl")},
		&corev1.Secret{ObjectMeta: named("shop-redis-ca")}, &corev1.Secret{ObjectMeta: named("shop-redis-tls")},
		&corev1.Secret{ObjectMeta: named("shop-distribution-ca")}, &corev1.Secret{ObjectMeta: named("shop-distribution-tls")},
		&corev1.ConfigMap{ObjectMeta: named("shop-distribution")}, &corev1.ConfigMap{ObjectMeta: named("shop-redis")},
		&appsv1.StatefulSet{ObjectMeta: named("shop-redis")}, &corev1.Service{ObjectMeta: named("shop-redis")},
		&networkingv1.NetworkPolicy{ObjectMeta: named("shop-redis")}, &policyv1.PodDisruptionBudget{ObjectMeta: named("shop-redis")},
	)
	before := newCluster(t, namespace, spec)
	reconciled(t, before)
	acted(t, before, "a", "a")
	pods := []*corev1.Pod{fleetPod(t, before, 0, "a"), fleetPod(t, before, 1, "a")}
	orphan(t, before, left)
	generations := map[string]int64{}
	for _, child := range left {
		generations[string(child.GetUID())] = child.GetGeneration()
	}
	// Copies that somebody has made of them carry the labels too.
	copied := &corev1.Secret{ObjectMeta: named("shop-secrets-backup")}
	copied.Labels = left[0].GetLabels()
	suite.Must(t, api.Create(t.Context(), copied))

	cluster := newCluster(t, namespace, spec)
	reconciled(t, cluster)
	for _, child := range left {
		suite.Must(t, get(t, child))
		generation, same := generations[string(child.GetUID())]
		if !same || generation != child.GetGeneration() || !metav1.IsControlledBy(child, cluster) {
			t.Errorf("%T %s: the same: %v, generation %d, was %d, owners %+v", child, child.GetName(), same, child.GetGeneration(), generation, child.GetOwnerReferences())
		}
	}
	for _, pod := range pods {
		suite.Must(t, get(t, pod))
		if !pod.DeletionTimestamp.IsZero() {
			t.Errorf("%s is replaced", pod.Name)
		}
	}
	suite.Must(t, get(t, copied))
	if len(copied.OwnerReferences) > 0 {
		t.Error("a copy was taken")
	}
	eventSays(t, namespace, v1alpha1.ReasonTakenBack, "Secret shop-secrets")
	t.Cleanup(func() { _ = api.Delete(context.Background(), copied) })
}

// So does who asks for yet another cookie in the middle of a rotation: the one that pods are being given is not named in the spec any more.
func TestTheCookieOfARotationIsTakenBack(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	generation := func(number int32) func(*v1alpha1.LiveStashClusterSpec) {
		return func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To(number) }
	}
	changeSpec(t, cluster, generation(2))
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	changeSpec(t, cluster, generation(3))
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits)
	second := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-cookie-2"}}
	orphan(t, cluster, append(children(cluster.Namespace), second))

	again := newCluster(t, cluster.Namespace, generation(3))
	conditionSays(t, again, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits)
	if got := cookies(t, again); got != "shop-cookie-2/cookie after shop-secrets/cookie" {
		t.Errorf("the template has the cookies %s", got)
	}
	suite.Must(t, get(t, second))
	if !metav1.IsControlledBy(second, again) {
		t.Errorf("the owners of Secret shop-cookie-2 are %+v", second.OwnerReferences)
	}
}

// A Secret that was restored by hand is taken over by those who say so, and its values are kept.
func TestARestoredSecretIsTakenOver(t *testing.T) {
	namespace := suite.Namespace(t, api)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-secrets"},
		Data:       map[string][]byte{"cookie": []byte("c"), "secret-key-base": []byte("s")},
	}
	suite.Must(t, api.Create(t.Context(), secret))
	cluster := newCluster(t, namespace, nil)
	label := "kubectl label secret -n " + namespace + " shop-secrets livestash.dev/cluster=shop app.kubernetes.io/managed-by=livestash-operator"
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonNameConflict, "loses every session", label)

	secret.Labels = map[string]string{"livestash.dev/cluster": "shop", "app.kubernetes.io/managed-by": "livestash-operator"}
	suite.Must(t, api.Update(t.Context(), secret))
	reconciled(t, cluster)
	uid := secret.UID
	suite.Must(t, get(t, secret))
	if secret.UID != uid || !metav1.IsControlledBy(secret, cluster) || string(secret.Data["cookie"]) != "c" {
		t.Errorf("the Secret is %+v", secret)
	}
}

// It is also taken back when that was found out too late, as after a change of owner references by hand.
func TestWhatLostItsOwnerIsTakenBack(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	for _, child := range children(cluster.Namespace) {
		suite.Must(t, get(t, child))
		before := child.DeepCopyObject().(client.Object)
		child.SetOwnerReferences(nil)
		suite.Must(t, api.Patch(t.Context(), child, client.MergeFrom(before)))
		looks(t, cluster, "an owner is gone")
		suite.Eventually(t, func() error {
			suite.Must(t, get(t, child))
			if !metav1.IsControlledBy(child, cluster) {
				later(t, cluster, 0)
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	reconciled(t, cluster)
}

// A pass that does not know yet that its LiveStashCluster is gone must not take anything back: what gets an owner that is gone is deleted.
func TestNothingIsTakenBackForWhatIsGone(t *testing.T) {
	namespace := suite.Namespace(t, api)
	cluster := newCluster(t, namespace, nil)
	reconciled(t, cluster)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-secrets"}}
	gone := cluster.DeepCopy()
	orphan(t, cluster, []client.Object{secret})
	suite.Eventually(t, func() error {
		if err := underTest.takeBack(t.Context(), gone, keepsakes(gone)); err == nil {
			return errors.New("nothing was there to be taken back, or it was")
		}
		return nil
	})
	suite.Must(t, get(t, secret))
	if owners := secret.GetOwnerReferences(); len(owners) > 0 {
		t.Errorf("the Secret belongs to %+v, which is gone", owners)
	}
}

// `kubectl delete statefulset --cascade=orphan` after a rollout whose additional pod stayed: the new StatefulSet has the pods that are left, all of them.
func TestPodsThatAreLeftAreTakenBack(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	set := await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{})
	for number := 1; number <= 2; number++ {
		pod := fleetPod(t, cluster, number, "a")
		pod.OwnerReferences = nil
		suite.Must(t, api.Update(t.Context(), pod))
		isKnown(t, pod, &corev1.Pod{})
	}
	suite.Must(t, api.Delete(t.Context(), set))
	suite.Eventually(t, func() error {
		anew := await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{})
		if begins := render.StartOf(anew); anew.UID == set.UID || begins != 1 || *anew.Spec.Replicas != 2 {
			return fmt.Errorf("the StatefulSet, whose UID was %s and is %s, has %d pods from %d on", set.UID, anew.UID, *anew.Spec.Replicas, begins)
		}
		return nil
	})
}

// A StatefulSet that is deleted alone in the middle of a rotation takes the note of the old cookie with it, and some pods have that one.
func TestAStatefulSetThatIsMadeAgainKnowsTheOldCookie(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	acted(t, cluster, "a", "b")
	toldInEvent(t, cluster, v1alpha1.ReasonCookieRotating, "shop-cookie-2")
	suite.Must(t, get(t, cluster))
	isKnown(t, cluster, &v1alpha1.LiveStashCluster{})
	for _, pod := range pods {
		suite.Must(t, get(t, pod))
		pod.OwnerReferences = nil
		suite.Must(t, api.Update(t.Context(), pod))
		isKnown(t, pod, &corev1.Pod{})
	}
	before := fleetSet(t, cluster)
	suite.Must(t, api.Delete(t.Context(), before))
	suite.Eventually(t, func() error {
		if anew := fleetSet(t, cluster); anew.UID == before.UID {
			return errors.New("the StatefulSet is still the old one")
		}
		return nil
	})
	if got := cookies(t, cluster); got != "shop-cookie-2/cookie after shop-secrets/cookie" {
		t.Errorf("the template has the cookies %s", got)
	}
}

// What was taken back is told of, also when something else could not be.
func TestWhatIsTakenBackIsToldOfInSpiteOfAnError(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "new"}}
	cluster.Spec.Adapter = v1alpha1.AdapterETS
	left := metav1.ObjectMeta{Namespace: "web", Name: "shop", Labels: ownLabels(cluster), Annotations: map[string]string{apply.Annotation: "{}"}}
	secret := &corev1.Secret{ObjectMeta: *left.DeepCopy()}
	secret.Name = "shop-secrets"
	refused := errors.New("refused")
	kubernetes := fake.NewClientBuilder().WithScheme(api.Scheme()).WithObjects(cluster, &corev1.ServiceAccount{ObjectMeta: left}, secret).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return refused },
	}).Build()
	recorder := events.NewFakeRecorder(10)
	err := (&Reconciler{Client: kubernetes, Live: kubernetes, Recorder: recorder}).takeBack(t.Context(), cluster, keepsakes(cluster))
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "Secret shop-secrets") {
		t.Errorf("the error is %v", err)
	}
	close(recorder.Events)
	if told := <-recorder.Events; !strings.Contains(told, "ServiceAccount shop") {
		t.Errorf("told of: %q", told)
	}
}
