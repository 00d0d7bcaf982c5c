package cluster

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// children are the objects of the LiveStashCluster shop, empty but for their names.
func children(namespace string) []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	return []client.Object{
		&corev1.Secret{ObjectMeta: named("shop-secrets")},
		&corev1.ServiceAccount{ObjectMeta: named("shop")},
		&corev1.Service{ObjectMeta: named("shop-nodes")},
		&corev1.Service{ObjectMeta: named("shop")},
		&networkingv1.NetworkPolicy{ObjectMeta: named("shop")},
		&policyv1.PodDisruptionBudget{ObjectMeta: named("shop")},
		&appsv1.StatefulSet{ObjectMeta: named("shop")},
	}
}

func get(t *testing.T, object client.Object) error {
	t.Helper()
	return api.Get(t.Context(), client.ObjectKeyFromObject(object), object)
}

// reconciled waits until the LiveStashCluster's spec has been acted on, and reads it.
func reconciled(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReconciled)
}

// condition waits until a condition is as it should be for the spec as it is now, and returns its message.
func condition(t *testing.T, cluster *v1alpha1.LiveStashCluster, kind string, status metav1.ConditionStatus, reason string) string {
	t.Helper()
	var message string
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil {
			return err
		}
		found := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if found == nil || found.Status != status || found.Reason != reason || found.ObservedGeneration != cluster.Generation {
			return fmt.Errorf("condition %s is %+v, want %s %s for generation %d", kind, found, status, reason, cluster.Generation)
		}
		message = found.Message
		return nil
	})
	return message
}

func TestChildrenAreMadeAndOwned(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	for _, child := range children(cluster.Namespace) {
		if err := get(t, child); err != nil {
			t.Error(err)
			continue
		}
		if !metav1.IsControlledBy(child, cluster) {
			t.Errorf("%T %s has no controller: it would outlive its LiveStashCluster", child, child.GetName())
		}
	}
}

func TestDeletedChildrenComeBack(t *testing.T) {
	// The Secret waits for that word.
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = spec.Adapter })
	reconciled(t, cluster)
	for _, child := range children(cluster.Namespace) {
		t.Run(fmt.Sprintf("%T %s", child, child.GetName()), func(t *testing.T) {
			suite.Must(t, get(t, child))
			gone := child.GetUID()
			suite.Must(t, api.Delete(t.Context(), child))
			suite.Eventually(t, func() error {
				if err := get(t, child); err != nil {
					return err
				}
				if child.GetUID() == gone {
					return fmt.Errorf("it is still the old one")
				}
				return nil
			})
		})
	}
}

func TestForeignChangesAreUndone(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, set))
	before := set.DeepCopy()
	set.Spec.Replicas = ptr.To[int32](7)
	set.Spec.Template.Spec.Containers[0].Image = "ghcr.io/evil/shop:1"
	set.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2026-01-01T00:00:00Z"
	suite.Must(t, api.Patch(t.Context(), set, client.MergeFrom(before)))
	suite.Eventually(t, func() error {
		acted(t, cluster, "a", "a") // more replicas are taken back one at a time
		if err := get(t, set); err != nil {
			return err
		}
		if *set.Spec.Replicas != 2 || set.Spec.Template.Spec.Containers[0].Image != cluster.Spec.Image {
			return fmt.Errorf("replicas %d, image %s", *set.Spec.Replicas, set.Spec.Template.Spec.Containers[0].Image)
		}
		return nil
	})
	if set.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Error("an annotation of somebody else is gone: `kubectl rollout restart` would not work")
	}
}

func TestChangedSpecReachesChildren(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Env = []corev1.EnvVar{{Name: "MINE", Value: "x"}}
		spec.PodTemplate = &v1alpha1.PodTemplateOverride{Metadata: v1alpha1.PodMetadataOverride{Labels: map[string]string{"team": "web"}}}
	})
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Env, spec.PodTemplate, spec.Replicas = nil, nil, ptr.To[int32](5)
		spec.DisruptionBudget.Enabled, spec.NetworkPolicy.Enabled = ptr.To(false), ptr.To(false)
	})
	reconciled(t, cluster)

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, set))
	for _, variable := range set.Spec.Template.Spec.Containers[0].Env {
		if variable.Name == "MINE" {
			t.Error("a variable that was removed from the spec is still there")
		}
	}
	if _, there := set.Spec.Template.Labels["team"]; there || *set.Spec.Replicas != 5 {
		t.Errorf("labels %v, replicas %d", set.Spec.Template.Labels, *set.Spec.Replicas)
	}
	for _, unwanted := range []client.Object{
		&networkingv1.NetworkPolicy{ObjectMeta: set.ObjectMeta}, &policyv1.PodDisruptionBudget{ObjectMeta: set.ObjectMeta},
	} {
		if err := get(t, unwanted); !apierrors.IsNotFound(err) {
			t.Errorf("%T is still there: %v", unwanted, err)
		}
	}
}

func TestSteadyClusterCostsNoRequests(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) {
		// Values that the API server writes in another way than the user.
		spec.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("0.5"), corev1.ResourceMemory: quantity("1024Mi")}}
		spec.PodTemplate = podTemplate(t, `{"containers": [{"name": "log", "image": "b", "securityContext": null}], "tolerations": [{"key": "a"}]}`)
	})
	var last ctrl.Result
	costsNothing(t, "three passes over a steady cluster", func() {
		for range 3 {
			last = looksAgain(t, cluster)
		}
	})
	if last.RequeueAfter != 0 {
		t.Errorf("a steady cluster is looked at again in %s", last.RequeueAfter)
	}
}

func TestForeignObjectsAreLeftAlone(t *testing.T) {
	namespace := suite.Namespace(t, api)
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-nodes"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "else"}, Ports: []corev1.ServicePort{{Name: "http", Port: 4000}}},
	}
	suite.Must(t, api.Create(t.Context(), foreign))
	cluster := newCluster(t, namespace, nil)

	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	if !strings.Contains(message, "Service shop-nodes exists and does not belong to this LiveStashCluster") {
		t.Errorf("the condition says %q", message)
	}
	suite.Must(t, get(t, foreign))
	if foreign.Spec.Selector["app"] != "else" || len(foreign.OwnerReferences) != 0 {
		t.Errorf("the Service of somebody else was changed: %+v", foreign)
	}

	suite.Must(t, api.Delete(t.Context(), foreign))
	reconciled(t, cluster)
}

func TestObjectsOfAnotherOwnerAreLeftAlone(t *testing.T) {
	namespace := suite.Namespace(t, api)
	// What a LiveStashCluster of the same name, deleted a moment ago, has left until the garbage collector comes.
	left := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "shop", Labels: map[string]string{"livestash.dev/cluster": "shop"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "LiveStashCluster", Name: "shop", UID: "gone", Controller: ptr.To(true),
		}},
	}}
	suite.Must(t, api.Create(t.Context(), left))
	cluster := newCluster(t, namespace, nil)
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	suite.Must(t, api.Delete(t.Context(), left))
	reconciled(t, cluster)
}

func TestMissingSecretHoldsEverythingUpUntilItAppears(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: &v1alpha1.SecretKeyReference{Name: "redis", Key: "url"}}}
		spec.Clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "cookie"}}
		spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "base"}}
	})
	missing := func(says string) {
		t.Helper()
		suite.Eventually(t, func() error {
			message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretMissing)
			if !strings.Contains(message, says) {
				return fmt.Errorf("the condition says %q, want %q", message, says)
			}
			return nil
		})
		for _, child := range children(cluster.Namespace) {
			if err := get(t, child); !apierrors.IsNotFound(err) {
				t.Errorf("%T %s was made: %v", child, child.GetName(), err)
			}
		}
	}

	missing("Secret own does not exist in namespace " + cluster.Namespace)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "own"}, StringData: map[string]string{"cookie": "-c"}}
	suite.Must(t, api.Create(t.Context(), own))
	invalid := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretInvalid)
	if !strings.Contains(invalid, "the key cookie of Secret own is no Erlang cookie") {
		t.Errorf("the condition says %q", invalid)
	}
	own.StringData = map[string]string{"cookie": "c"}
	suite.Must(t, api.Update(t.Context(), own))
	missing("Secret own in namespace " + cluster.Namespace + " has no value under the key base")
	own.StringData = map[string]string{"base": strings.Repeat("b", 64)}
	suite.Must(t, api.Update(t.Context(), own))
	missing("Secret redis does not exist")
	redis := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "redis"}, StringData: map[string]string{"url": "redis://a"}}
	suite.Must(t, api.Create(t.Context(), redis))
	reconciled(t, cluster)

	if err := get(t, children(cluster.Namespace)[0]); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret was generated though the user has one for everything: %v", err)
	}
	first := secretsDigest(t, cluster)
	redis.StringData = map[string]string{"url": "redis://b"}
	suite.Must(t, api.Update(t.Context(), redis))
	suite.Eventually(t, func() error {
		if secretsDigest(t, cluster) == first {
			return fmt.Errorf("a changed Secret did not change the pod template")
		}
		return nil
	})
}

func secretsDigest(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	suite.Must(t, get(t, set))
	return set.Spec.Template.Annotations["livestash.dev/secrets-digest"]
}

func TestSecretIsGeneratedOnceAndNeverLogged(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-secrets"}}
	suite.Must(t, get(t, secret))
	digest := secretsDigest(t, cluster)

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](4) })
	reconciled(t, cluster)
	again := secret.DeepCopy()
	suite.Must(t, get(t, again))
	for key, value := range secret.Data {
		if string(again.Data[key]) != string(value) {
			t.Errorf("%s was generated again", key)
		}
		if strings.Contains(logs.String(), string(value)) {
			t.Errorf("%s is in the log", key)
		}
	}
	if got := secretsDigest(t, cluster); got != digest {
		t.Error("the pods would be replaced though no secret has changed")
	}

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = spec.Adapter })
	suite.Must(t, api.Delete(t.Context(), secret))
	hasEvent(t, cluster, v1alpha1.ReasonSecretRegenerated)
	suite.Eventually(t, func() error {
		if secretsDigest(t, cluster) == digest {
			return fmt.Errorf("pods with the lost secret are not replaced")
		}
		return nil
	})
}

// hasEvent waits for an event about the LiveStashCluster.
func hasEvent(t *testing.T, cluster *v1alpha1.LiveStashCluster, reason string) {
	t.Helper()
	suite.Eventually(t, func() error {
		events := &eventsv1.EventList{}
		if err := api.List(t.Context(), events, client.InNamespace(cluster.Namespace)); err != nil {
			return err
		}
		var seen []string
		for _, event := range events.Items {
			if event.Reason == reason && event.Regarding.UID == cluster.UID {
				return nil
			}
			seen = append(seen, event.Reason)
		}
		return fmt.Errorf("no event %s, only %v", reason, seen)
	})
}

func TestTerminatingNamespaceIsLeftInPeace(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	// No namespace controller runs here: the namespace stays terminating, and what is deleted in it cannot come back.
	suite.Must(t, api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}))
	suite.Must(t, api.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}))
	suite.Eventually(t, func() error {
		err := underTest.Get(t.Context(), client.ObjectKeyFromObject(cluster), &corev1.Service{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the cache still has the Service: %w", err)
		}
		return nil
	})
	result, err := underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
	if err != nil || result.RequeueAfter != 0 {
		t.Errorf("Reconcile = %+v, %v: it would be tried again and again", result, err)
	}
	if strings.Contains(logs.String(), "because it is being terminated") {
		t.Error("the operator complains about a namespace that is being deleted")
	}
}

func TestPausedClusterIsNotTouched(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused, spec.Replicas = true, ptr.To[int32](9) })
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	hasEvent(t, cluster, v1alpha1.ReasonPaused)

	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, service))
	suite.Must(t, api.Delete(t.Context(), service))
	suite.Must(t, setStatus(t, cluster, appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 2, ReadyReplicas: 1, UpdatedReplicas: 2}))
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil {
			return err
		}
		if cluster.Status.ReadyReplicas != 1 {
			return fmt.Errorf("the status of a paused LiveStashCluster stands still: %+v", cluster.Status)
		}
		return nil
	})
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	condition(t, cluster, v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonNotStalled)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, set))
	if *set.Spec.Replicas != 2 || !apierrors.IsNotFound(get(t, service)) {
		t.Error("a paused LiveStashCluster was acted on")
	}

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = false })
	reconciled(t, cluster)
	hasEvent(t, cluster, v1alpha1.ReasonResumed)
	suite.Must(t, get(t, service))
	suite.Must(t, get(t, set))
	if *set.Spec.Replicas != 9 {
		t.Errorf("replicas %d after resuming", *set.Spec.Replicas)
	}
}

// Nothing tells the operator that a pod is unready for a minute now, and a fleet that is not acted on has to say so all the same.
func TestAPausedFleetTellsWhatItsPodsLack(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	hasNoImage(t, pods[1])
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPodFailing, "pod shop-1")
	if again := looksAgain(t, cluster).RequeueAfter; again <= 0 || again > soon {
		t.Errorf("a pod that does not get on is looked at again in %s, want it within %s", again, soon)
	}
	later(t, cluster, soon)
	conditionSays(t, cluster, v1alpha1.ConditionStalled, v1alpha1.ReasonPodFailing, "pod shop-1")
}

// hasNoImage plays the kubelet: the image of the pod's application cannot be had.
func hasNoImage(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	suite.Must(t, get(t, pod))
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Image: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
}

// setStatus plays the StatefulSet controller.
func setStatus(t *testing.T, cluster *v1alpha1.LiveStashCluster, status appsv1.StatefulSetStatus) error {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	suite.Must(t, get(t, set))
	set.Status = status
	return api.Status().Update(t.Context(), set)
}

func TestStatusFollowsTheStatefulSetAndScaleWorks(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	condition(t, cluster, v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete)

	hasNoImage(t, pods[0])
	acted(t, cluster, "a", "a")
	message := condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonPodFailing)
	if !strings.Contains(message, "pod shop-0") || !strings.Contains(message, "check spec.image") {
		t.Errorf("the condition says %q", message)
	}

	scale := &autoscalingv1.Scale{}
	suite.Must(t, api.SubResource("scale").Get(t.Context(), cluster, scale))
	if scale.Spec.Replicas != 2 || scale.Status.Replicas != 2 {
		t.Errorf("the scale subresource says %+v", scale)
	}
	// The operator may write the status between the two requests.
	suite.Eventually(t, func() error {
		if err := api.SubResource("scale").Get(t.Context(), cluster, scale); err != nil {
			return err
		}
		scale.Spec.Replicas = 3
		return api.SubResource("scale").Update(t.Context(), cluster.DeepCopy(), client.WithSubResourceBody(scale))
	})
	suite.Must(t, get(t, cluster))
	reconciled(t, cluster)
	if cluster.DesiredReplicas() != 3 || cluster.Status.Selector == "" {
		t.Errorf("after scaling: %d replicas, selector %q", cluster.DesiredReplicas(), cluster.Status.Selector)
	}
}
