package cluster

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
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

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.Cookie = nil })
	message = condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCookieChanged)
	if !strings.Contains(message, "a generated one") {
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
