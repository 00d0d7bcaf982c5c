package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// isLost waits until the operator says that the Secret is gone, and returns what it says.
func isLost(t *testing.T, cluster *v1alpha1.LiveStashCluster, name string) string {
	t.Helper()
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretMissing)
	if !strings.HasPrefix(message, "Secret "+name+" is gone, and the pods run with its values") {
		t.Errorf("the condition says %q", message)
	}
	return message
}

// Pods with other values would not talk to those that run, nor read what they have signed. The ones that run still know theirs.
func TestLostSecretOfARunningFleetIsPutBack(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	secret := secretNamed(t, cluster, "shop-secrets")
	set := fleetSet(t, cluster)

	suite.Must(t, api.Delete(t.Context(), secret))
	message := isLost(t, cluster, "shop-secrets")
	for _, want := range []string{"RELEASE_COOKIE in the key cookie, SECRET_KEY_BASE in the key secret-key-base", "set spec.replicas to 0 until the pods are gone"} {
		if !strings.Contains(message, want) {
			t.Errorf("the condition says %q, without %q", message, want)
		}
	}
	if now := fleetSet(t, cluster); now.Generation != set.Generation {
		t.Errorf("the StatefulSet was changed: %+v", now.Spec)
	}

	again := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels},
		Immutable:  ptr.To(true),
		Data:       secret.Data,
	}
	suite.Must(t, api.Create(t.Context(), again))
	reconciled(t, cluster)
	suite.Must(t, get(t, again))
	if !metav1.IsControlledBy(again, cluster) {
		t.Errorf("the Secret belongs to %+v", again.OwnerReferences)
	}
}

func TestLostSecretIsGeneratedAnewWhereNoPodRunsWithIt(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secrets")))
	isLost(t, cluster, "shop-secrets")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](0) })
	for _, pod := range pods {
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	hasEvent(t, cluster, v1alpha1.ReasonSecretRegenerated)
	reconciled(t, cluster)
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

func TestLostSecretThatIsAFile(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.SecretsAs, spec.SecretKeyBaseGeneration = v1alpha1.SecretsAsFiles, ptr.To[int32](2)
	})
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-secret-key-base-2")))
	if message := isLost(t, cluster, "shop-secret-key-base-2"); strings.Contains(message, "RELEASE_COOKIE") || !strings.Contains(message, "set spec.acceptLossOf to ETS") {
		t.Errorf("the condition says %q", message)
	}
}

// New pods must be told the cookie of those that run.
func TestNoRotationFromALostCookie(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](2) })
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-cookie-2")))
	isLost(t, cluster, "shop-cookie-2")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.CookieGeneration = ptr.To[int32](3) })
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCookieChanged, "Secret shop-cookie-2 with the Erlang cookie of the pods is gone")
	if got := cookies(t, cluster); got != "shop-cookie-2/cookie after none" {
		t.Errorf("the template has the cookies %s", got)
	}
}
