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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// ownCookie makes a fleet at rest with a cookie of the user's own.
func ownCookie(t *testing.T, adapter v1alpha1.Adapter) (*v1alpha1.LiveStashCluster, *corev1.Secret, []*corev1.Pod) {
	t.Helper()
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = adapter
		spec.Clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "cookie"}}
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "own"}, StringData: map[string]string{"cookie": "first"}}
	suite.Must(t, api.Create(t.Context(), secret))
	reconciled(t, cluster)
	return cluster, secret, comeToRest(t, cluster, usualNode)
}

func changeCookie(t *testing.T, secret *corev1.Secret, value string) {
	t.Helper()
	suite.Must(t, get(t, secret))
	secret.Data["cookie"] = []byte(value)
	suite.Must(t, api.Update(t.Context(), secret))
}

// Nodes with two cookies do not talk to each other, so that nobody could hand over.
func TestCookieOfARunningFleetStays(t *testing.T) {
	cluster, secret, pods := ownCookie(t, v1alpha1.AdapterETS)
	set := fleetSet(t, cluster)

	changeCookie(t, secret, "second")
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCookieChanged)
	if !strings.Contains(message, "the key cookie of Secret own") || !strings.Contains(message, "put the old cookie back") {
		t.Errorf("the condition says %q", message)
	}
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonCookieChanged)
	changeCookie(t, secret, "first")
	reconciled(t, cluster)

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Clustering.Cookie, spec.Agent.Enabled = nil, ptr.To(false)
	})
	message = condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCookieChanged)
	if !strings.Contains(message, "a generated one") || !strings.Contains(message, "without the agent") {
		t.Errorf("the condition says %q", message)
	}
	if now := fleetSet(t, cluster); now.Generation != set.Generation {
		t.Errorf("the StatefulSet was changed: %+v", now.Spec)
	}

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	for _, pod := range pods {
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	reconciled(t, cluster)
}

// With the stashes elsewhere, nobody hands over.
func TestCookieChangesWhereNothingIsLost(t *testing.T) {
	cluster, secret, _ := ownCookie(t, v1alpha1.AdapterBrowserMemory)
	before := secretsDigest(t, cluster)
	changeCookie(t, secret, "second")
	suite.Eventually(t, func() error {
		if secretsDigest(t, cluster) == before {
			return errors.New("pods keep the old cookie")
		}
		return nil
	})
	reconciled(t, cluster)
}

// Where there is no pod yet, a value that was wrong is put right, and nobody is asked to put it back.
func TestCookieChangesWhereNoPodIs(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "cookie"}}
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "own"}, StringData: map[string]string{"cookie": "first"}}
	suite.Must(t, api.Create(t.Context(), secret))
	reconciled(t, cluster)
	before := secretsDigest(t, cluster)
	changeCookie(t, secret, "second")
	suite.Eventually(t, func() error {
		if secretsDigest(t, cluster) == before {
			return errors.New("pods are to have the cookie of before")
		}
		return nil
	})
	reconciled(t, cluster)
}

// cookies are from where new pods get their cookie, and the previous one: Secret/key.
func cookies(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	text := func(ref *v1alpha1.SecretKeyReference) string {
		if ref == nil {
			return "none"
		}
		return ref.Name + "/" + ref.Key
	}
	cookie, previous := fleet.CookiesOf(&fleetSet(t, cluster).Spec.Template.Spec)
	return text(cookie) + " after " + text(previous)
}

func becomes(t *testing.T, cluster *v1alpha1.LiveStashCluster, want string) {
	t.Helper()
	suite.Eventually(t, func() error {
		if got := cookies(t, cluster); got != want {
			return fmt.Errorf("the template has the cookies %s, want %s", got, want)
		}
		return nil
	})
}

// replacedAll has all pods replaced by those of the template as it is.
func replacedAll(t *testing.T, cluster *v1alpha1.LiveStashCluster, pods []*corev1.Pod, from, to string) []*corev1.Pod {
	t.Helper()
	var renewed []*corev1.Pod
	for ordinal, pod := range pods {
		acted(t, cluster, from, to)
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		renewed = append(renewed, fleetPod(t, cluster, ordinal, to))
		serves(t, renewed[ordinal], wellAmong(len(pods), renewed[ordinal].Name))
	}
	acted(t, cluster, to, to)
	return renewed
}

// isRotated lets the StatefulSet controller act until the rotation to that revision is over.
func isRotated(t *testing.T, cluster *v1alpha1.LiveStashCluster, revision string) {
	t.Helper()
	suite.Eventually(t, func() error {
		acted(t, cluster, revision, revision)
		suite.Must(t, get(t, cluster))
		if said := cluster.Status.Cookie; said.RotationFinished == nil {
			return fmt.Errorf("the status says of a rotation that is over %+v", said)
		}
		return nil
	})
	isKnown(t, cluster, &v1alpha1.LiveStashCluster{})
}

func TestCookieRotates(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	suite.Must(t, get(t, cluster))
	if said := cluster.Status.Cookie; said == nil || said.Made == nil || said.RotationStarted != nil || said.Previous != nil {
		t.Errorf("the status says of the first cookie %+v", said)
	}

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	suite.Eventually(t, func() error {
		suite.Must(t, get(t, cluster))
		if said := cluster.Status.Cookie; said.RotationStarted == nil || said.RotationFinished != nil || said.Previous == nil || said.Previous.Name != "shop-secrets" {
			return fmt.Errorf("the status says of a rotation under way %+v", said)
		}
		return nil
	})
	for _, variable := range fleetTemplate(t, cluster).Spec.Containers[0].Env {
		if variable.Name == "LIVESTASH_PREVIOUS_COOKIE" && !ptr.Deref(variable.ValueFrom.SecretKeyRef.Optional, false) {
			t.Error("pods do not start any more when the old cookie is gone")
		}
	}
	// Two at once would leave pods that know nothing of each other's.
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](3) })
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits, "which is in the key cookie of Secret shop-cookie-2, comes first")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonNotStalled)
	if got := cookies(t, cluster); got != "shop-cookie-2/cookie after shop-secrets/cookie" {
		t.Errorf("the template has the cookies %s", got)
	}

	toldInEvent(t, cluster, v1alpha1.ReasonCookieRotating, "the Erlang cookie of Secret shop-cookie-2, which can talk to those with the one of Secret shop-secrets")

	pods = replacedAll(t, cluster, pods, "a", "b")
	isRotated(t, cluster, "b")
	toldInEvent(t, cluster, v1alpha1.ReasonCookieRotated, "Every pod has the Erlang cookie of Secret shop-cookie-2")
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits, "a minute after")
	later(t, cluster, 2*time.Minute)
	becomes(t, cluster, "shop-cookie-3/cookie after shop-cookie-2/cookie")
	replacedAll(t, cluster, pods, "b", "c")
	isRotated(t, cluster, "c")
	suite.Eventually(t, func() error {
		suite.Must(t, get(t, cluster))
		said := cluster.Status.Cookie
		if said.RotationFinished == nil || said.Previous != nil || said.SecretRef.Name != "shop-cookie-3" {
			return fmt.Errorf("the status says of a rotation that is over %+v", said)
		}
		if err := get(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-cookie-2"}}); err == nil {
			return errors.New("the cookie of before is still there")
		}
		return nil
	})
	if got := cookies(t, cluster); got != "shop-cookie-3/cookie after shop-cookie-2/cookie" {
		t.Errorf("the template has changed for that, and pods with it: %s", got)
	}
	first, third := secretNamed(t, cluster, "shop-secrets"), secretNamed(t, cluster, "shop-cookie-3")
	if len(third.Data["cookie"]) < 32 || cmp.Equal(first.Data["cookie"], third.Data["cookie"]) {
		t.Error("the cookies are the same, or too short")
	}
}

// Who asks for yet another cookie in mid-rotation waits until every pod has the one before it. The operator sees to that, and to all else.
func TestARotationIsFinishedBeforeTheNext(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	generation := func(number int32) {
		changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To(number) })
	}
	generation(2)
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
	generation(3)
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits, "which is in the key cookie of Secret shop-cookie-2, comes first")
	// What somebody has to mend is told first.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		from := &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "texts"}, Key: "greeting"}
		spec.Env = []corev1.EnvVar{{Name: "GREETING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: from}}}
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonConfigMissing, "texts")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Env = nil })
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieWaits)
	second := replaced(t, cluster, pods[1])
	looks(t, cluster, "while shop-1 starts")
	serves(t, second, wellAmong(2, "shop-1"))
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-0")
	if got := cookies(t, cluster); got != "shop-cookie-2/cookie after shop-secrets/cookie" {
		t.Errorf("the template has the cookies %s", got)
	}
	if err := get(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-cookie-3"}}); !apierrors.IsNotFound(err) {
		t.Errorf("the next cookie is made before it is wanted: %v", err)
	}
	serves(t, replaced(t, cluster, pods[0]), wellAmong(2, "shop-0"))
	isRotated(t, cluster, "b")
	// What is made unplanned has the second cookie from now on, not the first.
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	later(t, cluster, 2*time.Minute)
	becomes(t, cluster, "shop-cookie-3/cookie after shop-cookie-2/cookie")
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionTrue, v1alpha1.ReasonReconciled)
}

// A cookie that no pod has, as after a canary that was rolled back, is not waited for.
func TestACookieThatNoPodHasIsLeftOut(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Paused = true })
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	acted(t, cluster, "a", "b")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](3) })
	becomes(t, cluster, "shop-cookie-3/cookie after shop-secrets/cookie")
	toldInEvent(t, cluster, v1alpha1.ReasonCookieRotating, "the Erlang cookie of Secret shop-cookie-3, which can talk to those with the one of Secret shop-secrets")
}

// Of two pods that boot at the same moment with the new cookie, each might find the other alone.
func TestFleetGrowsOneByOneWhileItsCookieChanges(t *testing.T) {
	cluster, pods := fleetAtRest(t, 3, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter, spec.Rollout.Surge = v1alpha1.AdapterMnesia, v1alpha1.SurgeStays
	})
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Clustering.CookieGeneration, spec.Replicas = ptr.To[int32](2), ptr.To[int32](6)
	})
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	suite.Eventually(t, func() error {
		acted(t, cluster, "a", "b")
		if how := fleetSet(t, cluster).Spec.UpdateStrategy.Type; how != appsv1.OnDeleteStatefulSetStrategyType {
			return fmt.Errorf("pods are replaced by %s", how)
		}
		return nil
	})
	// The additional pod of the rollout, which stays by default, is one of those that are added.
	for ordinal := len(pods); ordinal < 7; ordinal++ {
		suite.Eventually(t, func() error {
			acted(t, cluster, "a", "b")
			if got := *fleetSet(t, cluster).Spec.Replicas; got != int32(ordinal+1) {
				return fmt.Errorf("there are to be %d pods, want %d", got, ordinal+1)
			}
			return nil
		})
		acted(t, cluster, "a", "b")
		looks(t, cluster, fmt.Sprintf("while pod %d does not exist", ordinal))
		pod := fleetPod(t, cluster, ordinal, "b")
		looks(t, cluster, fmt.Sprintf("while pod %d boots", ordinal))
		if cookie, previous := fleet.CookiesOf(&pod.Spec); cookie.Name != "shop-cookie-2" || previous == nil || previous.Name != "shop-secrets" {
			t.Errorf("pod %d has the cookie of %v and knows that of %v", ordinal, cookie, previous)
		}
		pods = append(pods, pod)
		for _, each := range pods {
			suite.Must(t, get(t, each))
			serves(t, each, wellAmong(len(pods), each.Name))
		}
	}
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-2")
	if got := *fleetSet(t, cluster).Spec.Replicas; got != 7 {
		t.Errorf("there are to be %d pods while those of before are replaced", got)
	}
}

// The user's own is rotated by naming another place.
func TestOwnCookieRotates(t *testing.T) {
	cluster, secret, _ := ownCookie(t, v1alpha1.AdapterMnesia)
	changeCookie(t, secret, "second")
	own := func(key string) func(*v1alpha1.LiveStashClusterSpec) {
		return func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.Cookie.SecretRef.Key = key }
	}
	suite.Must(t, get(t, secret))
	secret.Data["next"] = []byte("third")
	suite.Must(t, api.Update(t.Context(), secret))
	changeSpec(t, cluster, own("next"))
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCookieChanged)
	if !strings.Contains(message, "is no longer in the key cookie of Secret own") || strings.Contains(message, "second") {
		t.Errorf("the condition says %q", message)
	}
	changeCookie(t, secret, "first")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.TopologySpread = v1alpha1.SpreadDoNotSchedule })
	becomes(t, cluster, "own/next after own/cookie")
	changeSpec(t, cluster, own("cookie"))
	becomes(t, cluster, "own/cookie after own/next")
	isRotated(t, cluster, "a")
	later(t, cluster, 2*time.Minute)
	// Afterwards pods know no other cookie than theirs: who names the one before once more changes it as any other.
	changeCookie(t, secret, "lost")
	changeSpec(t, cluster, own("next"))
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieChanged, "is no longer in the key cookie of Secret own")
	changeSpec(t, cluster, own("cookie"))
	changeCookie(t, secret, "first")
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.Cookie = nil })
	reconciled(t, cluster)
	becomes(t, cluster, "shop-secrets/cookie after own/cookie")
}

// withCookie are pods with the cookie of that Secret, beside a container of the user's that has another one.
func withCookie(secret string) corev1.PodSpec {
	from := func(secret string) []corev1.EnvVar {
		return []corev1.EnvVar{fromOwn("RELEASE_COOKIE", v1alpha1.SecretKeyReference{Name: secret, Key: "cookie"})}
	}
	return corev1.PodSpec{Containers: []corev1.Container{{Name: fleet.AppContainer, Env: from(secret)}, {Name: "side", Env: from("others")}}}
}

// rotating is a pass over a fleet whose cookie is changed to that of shop-cookie-2, with pods with these ones.
func rotating(now time.Time, cookies ...string) *pass {
	p := &pass{cluster: &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	p.cluster.Spec.Clustering.CookieGeneration = ptr.To[int32](2)
	count := int32(len(cookies))
	p.seen.statefulSet = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(count), Template: corev1.PodTemplateSpec{Spec: withCookie("shop-cookie-2")}}}
	p.seen.statefulSet.Status = appsv1.StatefulSetStatus{Replicas: count, ReadyReplicas: count, UpdatedReplicas: count}
	p.seen.now = now
	for _, cookie := range cookies {
		p.seen.members = append(p.seen.members, member{Pod: &corev1.Pod{Spec: withCookie(cookie)}})
	}
	return p
}

// Whatever cookie is asked for in mid-rotation, the pass wants the one that pods are being given, and says so.
func TestARotationIsFinished(t *testing.T) {
	own, now := v1alpha1.SecretKeyReference{Name: "own", Key: "next"}, time.Now()
	ago := func(past time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-past))) }
	second, first := generatedIn("shop-cookie-2"), generatedIn("shop-secrets")
	for name, test := range map[string]struct {
		has, previous v1alpha1.SecretKeyReference
		pods          []string
		note          string
		change        func(*pass)
		finishes      bool
	}{
		"another generation":        {has: second, previous: first, note: "generated/shop-cookie-2", finishes: true},
		"from the first to another": {has: first, previous: own, note: "generated", finishes: true},
		"from the user's own":       {has: own, previous: first, note: "1a2b", finishes: true},
		"the last pod boots": {
			has: second, previous: first, pods: []string{"shop-cookie-2"}, note: "generated/shop-cookie-2", finishes: true,
			change: func(p *pass) { p.cluster.Status.Cookie = &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour)} },
		},
		"agents go over": {
			has: second, previous: first, pods: []string{"shop-cookie-2"}, note: "generated/shop-cookie-2", finishes: true,
			change: func(p *pass) {
				p.cluster.Status.Cookie = &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour), RotationFinished: ago(settleCookie / 2)}
			},
		},
		"it is over": {
			has: second, previous: first, pods: []string{"shop-cookie-2"}, note: "generated/shop-cookie-2",
			change: func(p *pass) {
				p.cluster.Status.Cookie = &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour), RotationFinished: ago(2 * settleCookie)}
			},
		},
		"no pod has it": {
			has: second, previous: first, pods: []string{"shop-secrets"}, note: "generated/shop-cookie-2",
			change: func(p *pass) { p.seen.statefulSet.Status.UpdatedReplicas = 0 },
		},
		"no pod has it yet, but the next one will": {
			has: second, previous: first, pods: []string{"shop-secrets"}, note: "generated/shop-cookie-2", finishes: true,
			change: func(p *pass) {
				p.seen.statefulSet.Status.UpdatedReplicas = 0
				p.seen.statefulSet.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			},
		},
		"one was just made with it": {has: second, previous: first, pods: []string{"shop-secrets"}, note: "generated/shop-cookie-2", finishes: true},
		"one that has it stops": {
			has: second, previous: first, pods: []string{"shop-secrets", "shop-cookie-2"}, note: "generated/shop-cookie-2", finishes: true,
			change: func(p *pass) { p.seen.statefulSet.Status.UpdatedReplicas = 0 },
		},
		"nobody knows whether one is made": {
			has: second, previous: first, pods: []string{"shop-secrets"}, note: "generated/shop-cookie-2", finishes: true,
			change: func(p *pass) {
				p.seen.statefulSet.Status.UpdatedReplicas, p.seen.statefulSet.Generation = 0, 1
			},
		},
		"the way back": {has: own, previous: generatedIn("shop-cookie-3"), note: "1a2b"},
		"the way back, and all have it": {
			has: own, previous: generatedIn("shop-cookie-3"), pods: []string{"own"}, note: "1a2b", finishes: true,
			change: func(p *pass) {
				p.cluster.Status.Cookie = &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour)}
				p.seen.members[0].Spec.Containers[0].Env = []corev1.EnvVar{fromOwn("RELEASE_COOKIE", own)}
			},
		},
		"of an operator that noted none": {has: own, previous: first},
		"without agents": {
			has: own, previous: first, note: "1a2b", change: func(p *pass) { p.cluster.Spec.Agent.Enabled = ptr.To(false) },
		},
		"stopped": {
			has: own, previous: first, note: "1a2b", change: func(p *pass) { p.cluster.Spec.Replicas = ptr.To[int32](0) },
		},
	} {
		if test.pods == nil {
			test.pods = []string{"shop-cookie-1"}
		}
		p := rotating(now, test.pods...)
		p.cluster.Namespace, p.cluster.Spec.Adapter = "web", v1alpha1.AdapterETS
		p.cluster.Spec.Clustering.CookieGeneration, p.cluster.Spec.Agent.Enabled = ptr.To[int32](3), ptr.To(true)
		p.seen.statefulSet.UID, p.seen.statefulSet.Annotations = "set", map[string]string{fleet.CookieAnnotation: test.note}
		p.seen.statefulSet.Spec.Template.Spec.Containers = []corev1.Container{{
			Name: fleet.AppContainer, Env: []corev1.EnvVar{fromOwn("RELEASE_COOKIE", test.has), fromOwn("LIVESTASH_PREVIOUS_COOKIE", test.previous)},
		}}
		if test.change != nil {
			test.change(p)
		}
		before := p.cluster.DeepCopy()
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(api.Scheme()).Build()}
		suite.Must(t, r.finishRotation(t.Context(), p))
		switch {
		case !test.finishes && (p.putOff != nil || !cmp.Equal(before.Spec, p.cluster.Spec)):
			t.Errorf("%s: the pass wants %+v, and says %v", name, p.cluster.Spec.Clustering, p.putOff)
		case test.finishes && (p.putOff == nil || fleet.CookieRef(p.cluster) != test.has):
			t.Errorf("%s: the pass wants the cookie of %+v, and says %v", name, fleet.CookieRef(p.cluster), p.putOff)
		}
	}
}

func generatedIn(secret string) v1alpha1.SecretKeyReference {
	return v1alpha1.SecretKeyReference{Name: secret, Key: "cookie"}
}

// That a rotation is over is a promise: from then on the cookie of before opens nothing. So no pod may have it, nor be made with it any more.
func TestRotationIsOverWhenNoPodHasTheOldCookie(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	began, made := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-2*time.Hour))
	for name, test := range map[string]struct {
		cookies        []string
		change         func(*pass)
		over, previous bool
		made           metav1.Time
	}{
		"all are new": {cookies: []string{"shop-cookie-2", "shop-cookie-2"}, over: true, made: made},
		"one is old":  {cookies: []string{"shop-cookie-2", "shop-secrets"}, previous: true, made: made},
		"one is to come": {
			cookies: []string{"shop-cookie-2"}, change: func(p *pass) { p.seen.statefulSet.Spec.Replicas = ptr.To[int32](2) }, made: made, previous: true,
		},
		"its revision is not noted yet": {cookies: []string{"shop-cookie-2"}, made: made, previous: true, change: func(p *pass) {
			p.seen.statefulSet.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
			p.seen.statefulSet.Status.CurrentRevision, p.seen.statefulSet.Status.UpdateRevision = "a", "b"
		}},
		"the next is made": {cookies: []string{"shop-cookie-2"}, over: true, made: made, change: func(p *pass) {
			p.cluster.Spec.Clustering.CookieGeneration, p.cookieMade = ptr.To[int32](3), ptr.To(metav1.NewTime(now))
		}},
		"its Secret is new": {cookies: []string{"shop-cookie-2"}, over: true, made: metav1.NewTime(now), change: func(p *pass) { p.cookieMade = ptr.To(metav1.NewTime(now)) }},
	} {
		p := rotating(now, test.cookies...)
		app := &p.seen.statefulSet.Spec.Template.Spec.Containers[0]
		app.Env = append(app.Env, fromOwn("LIVESTASH_PREVIOUS_COOKIE", generatedIn("shop-secrets")))
		if test.change != nil {
			test.change(p)
		}
		before := &v1alpha1.CookieStatus{SecretRef: v1alpha1.SecretKeyReference{Name: "shop-cookie-2", Key: "cookie"}, Made: &made, RotationStarted: &began}
		said := p.tellCookie(before)
		if (said.RotationFinished != nil) != test.over || (said.Previous != nil) != test.previous || !said.Made.Equal(&test.made) {
			t.Errorf("%s: the status says %+v", name, said)
		}
		// The next rotation may be held for that, and nothing else brings a pass to a fleet at rest.
		want := time.Duration(0)
		if test.over {
			want = settleCookie
		}
		if next, err := p.End(nil, func(error) error { return nil }); next.RequeueAfter != want || err != nil {
			t.Errorf("%s: is looked at in %s, want %s (%v)", name, next.RequeueAfter, want, err)
		}
	}
}

// A LiveStashCluster that was made again in mid-rotation knows that there is one.
func TestARotationIsKnownByThePods(t *testing.T) {
	p := rotating(time.Now(), "shop-cookie-2", "shop-secrets")
	p.inputs.PreviousCookie = ptr.To(generatedIn("shop-secrets"))
	if !p.changesCookie() {
		t.Error("pods are added at once before the status says anything")
	}
	p.cluster.Status.Cookie = p.tellCookie(nil)
	if said := p.cluster.Status.Cookie; said.RotationStarted == nil || said.RotationFinished != nil || !p.rotates() {
		t.Errorf("the status says %+v", said)
	}
	if p = rotating(time.Now(), "shop-cookie-2"); p.tellCookie(nil).RotationStarted != nil {
		t.Error("the fleet's first cookie is taken for another one")
	}
}

// Agents need a while to find out that a rotation is over. The next one begins then, and somebody looks when that is.
func TestNextRotationWaits(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(by time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now.Add(-by))) }
	for name, test := range map[string]struct {
		said  *v1alpha1.CookieStatus
		is    bool
		again time.Duration
	}{
		"none is known":  {},
		"the first":      {said: &v1alpha1.CookieStatus{}},
		"one under way":  {said: &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour)}, is: true},
		"just over":      {said: &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour), RotationFinished: ago(50 * time.Second)}, is: true, again: 10 * time.Second},
		"over and known": {said: &v1alpha1.CookieStatus{RotationStarted: ago(time.Hour), RotationFinished: ago(time.Minute)}},
	} {
		p := rotating(now, "shop-cookie-2")
		p.cluster.Status.Cookie = test.said
		is := p.rotates()
		if next, err := p.End(nil, func(error) error { return nil }); is != test.is || next.RequeueAfter != test.again || err != nil {
			t.Errorf("%s: %t, and is looked at in %s, %v", name, is, next.RequeueAfter, err)
		}
		if p.changesCookie() {
			t.Errorf("%s: pods are added one by one, and none has an old cookie", name)
		}
		p.inputs.PreviousCookie = &v1alpha1.SecretKeyReference{Name: "shop-secrets", Key: "cookie"}
		if p.changesCookie() != test.is {
			t.Errorf("%s: pods are added one by one: %t", name, !test.is)
		}
	}
}

// Notes are where many may look. They tell that a value is another one: of 65,536 guesses, one looks right that is not.
func TestNotesAreShort(t *testing.T) {
	ref := v1alpha1.SecretKeyReference{Name: "own", Key: "it"}
	p := &pass{cluster: &v1alpha1.LiveStashCluster{}, secrets: map[v1alpha1.SecretKeyReference][]byte{ref: []byte("value")}}
	p.cluster.Spec.Clustering.Cookie, p.cluster.Spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &ref}, &v1alpha1.SecretSource{SecretRef: &ref}
	cookie, _ := cookieNote(p)
	base, _ := keyBaseNote(p)
	if len(cookie) != 4 || len(base) != 4 || cookie == base {
		t.Errorf("the notes are %s and %s", cookie, base)
	}
}
