package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// isLost waits until the operator says that the Secret is gone, and returns what it says.
func isLost(t *testing.T, cluster *v1alpha1.LiveStashCluster, name string) string {
	t.Helper()
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonSecretLost, "lost: Secret "+name+" (")
	return condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretLost)
}

// Pods with other values would not talk to those that run, nor read what they have signed. The ones that run still know theirs.
func TestLostSecretOfARunningFleetIsPutBack(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	secret := secretNamed(t, cluster, "shop-secrets")
	set := fleetSet(t, cluster)

	suite.Must(t, api.Delete(t.Context(), secret))
	message := isLost(t, cluster, "shop-secrets")
	for _, want := range []string{"(cookie, secret-key-base)", "with the labels livestash.dev/cluster=shop", "set spec.acceptLossOf to ETS, and spec.replicas to 0 until the pods are gone"} {
		if !strings.Contains(message, want) {
			t.Errorf("the condition says %q, without %q", message, want)
		}
	}
	if now := fleetSet(t, cluster); now.Generation != set.Generation {
		t.Errorf("the StatefulSet was changed: %+v", now.Spec)
	}

	// With another value missing, the pods would not be theirs.
	putBack(t, secret, secret.Labels, map[string][]byte{"cookie": secret.Data["cookie"], "secret-key-base": {}})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonSecretLost, "Secret shop-secrets has no value under the key secret-key-base")
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	isLost(t, cluster, "shop-secrets")

	putBack(t, secret, nil, secret.Data)
	later(t, cluster, time.Minute)
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonSecretLost, "kubectl label secret -n "+cluster.Namespace+" shop-secrets livestash.dev/cluster=shop")
	again := secretNamed(t, cluster, "shop-secrets")
	again.Labels = secret.Labels
	suite.Must(t, api.Update(t.Context(), again))
	reconciled(t, cluster)
	suite.Must(t, get(t, again))
	if !metav1.IsControlledBy(again, cluster) || !cmp.Equal(again.Data, secret.Data) {
		t.Errorf("the Secret belongs to %+v", again.OwnerReferences)
	}
}

// putBack makes a Secret again.
func putBack(t *testing.T, was *corev1.Secret, labels map[string]string, data map[string][]byte) {
	t.Helper()
	suite.Must(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name, Labels: labels},
		Immutable:  ptr.To(true),
		Data:       data,
	}))
}

func TestLostSecretIsGeneratedAnewWhereNoPodRunsWithIt(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	isLost(t, cluster, "shop-secrets")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = v1alpha1.AdapterETS })
	isLost(t, cluster, "shop-secrets")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	replicasAre(t, cluster, 0)
	if err := get(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-secrets"}}); !apierrors.IsNotFound(err) {
		t.Errorf("with the pods still there, the Secret: %v", err)
	}
	for _, pod := range pods {
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	hasEvent(t, cluster, v1alpha1.ReasonSecretRegenerated)
	reconciled(t, cluster)
}

// To scale to zero and back, as some do every night, is not to say that sessions may be lost.
func TestLostSecretOfAFleetThatIsScaledToZero(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	digest := secretsDigest(t, cluster)
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	isLost(t, cluster, "shop-secrets")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	replicasAre(t, cluster, 0)
	for _, pod := range pods {
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	isLost(t, cluster, "shop-secrets")
	if got := secretsDigest(t, cluster); got != digest {
		t.Errorf("the template has changed to %s", got)
	}
}

// Stashes that are elsewhere are not handed over, so that pods with the new values may come one by one.
func TestLostSecretIsGeneratedAnewWithAWord(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	if message := isLost(t, cluster, "shop-secrets"); !strings.Contains(message, "set spec.acceptLossOf to BrowserMemory") {
		t.Errorf("the condition says %q", message)
	}
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = v1alpha1.AdapterBrowserMemory })
	hasEvent(t, cluster, v1alpha1.ReasonSecretRegenerated)
	reconciled(t, cluster)
}

// Who brings values of one's own needs no generated ones any more.
func TestLostSecretThatIsNotWantedAnyMore(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	suite.Must(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "own"},
		StringData: map[string]string{"cookie": "own", "base": strings.Repeat("k", 64)},
	}))
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	isLost(t, cluster, "shop-secrets")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "cookie"}}
		spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "base"}}
		spec.AcceptLossOf = v1alpha1.AdapterBrowserMemory
	})
	becomes(t, cluster, "own/cookie after shop-secrets/cookie")
	reconciled(t, cluster)
}

func TestLostSecretThatIsAFile(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.SecretsAs, spec.SecretKeyBaseGeneration = v1alpha1.SecretsAsFiles, ptr.To[int32](2)
	})
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secret-key-base-2")))
	if message := isLost(t, cluster, "shop-secret-key-base-2"); strings.Contains(message, "cookie") || strings.Contains(message, "spec.replicas") || !strings.Contains(message, "set spec.acceptLossOf to ETS") {
		t.Errorf("the condition says %q", message)
	}
}

// New pods must be told the cookie of those that run.
func TestNoRotationFromALostCookie(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-cookie-2")))
	isLost(t, cluster, "shop-cookie-2")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](3) })
	later(t, cluster, time.Minute)
	isLost(t, cluster, "shop-cookie-2")
	if got := cookies(t, cluster); got != "shop-cookie-2/cookie after none" {
		t.Errorf("the template has the cookies %s", got)
	}
}

// Pods that come while others still have the cookie of before need that, too. When no pod has it, it is not missed.
func TestLostCookieOfBefore(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	becomes(t, cluster, "shop-cookie-2/cookie after shop-secrets/cookie")
	secret := secretNamed(t, cluster, "shop-secrets")
	suite.Must(t, api.Delete(t.Context(), secret))
	if message := isLost(t, cluster, "shop-secrets"); !strings.Contains(message, "(cookie, secret-key-base)") {
		t.Errorf("the condition says %q", message)
	}
	putBack(t, secret, secret.Labels, secret.Data)
	reconciled(t, cluster)
	replacedAll(t, cluster, pods, "a", "b")
	isRotated(t, cluster, "b")
}
