package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// keyBase is from where new pods get SECRET_KEY_BASE: Secret/key.
func keyBase(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	for _, variable := range fleetTemplate(t, cluster).Spec.Containers[0].Env {
		if variable.Name == "SECRET_KEY_BASE" {
			return variable.ValueFrom.SecretKeyRef.Name + "/" + variable.ValueFrom.SecretKeyRef.Key
		}
	}
	return ""
}

// Another SECRET_KEY_BASE costs every session, so somebody must have said that this is meant.
func TestSecretKeyBaseWaitsForAWord(t *testing.T) {
	for _, adapter := range []v1alpha1.Adapter{v1alpha1.AdapterBrowserMemory, v1alpha1.AdapterNone} {
		t.Run(string(adapter), func(t *testing.T) {
			cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = adapter })
			reconciled(t, cluster)
			changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.SecretKeyBaseGeneration = ptr.To[int32](2) })
			message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretKeyBaseChanged)
			stashes := strings.Contains(message, "all stashes (adapter BrowserMemory)")
			if stashes != (adapter == v1alpha1.AdapterBrowserMemory) || !strings.Contains(message, "users are logged out") || !strings.Contains(message, "set spec.acceptLossOf to "+string(adapter)) {
				t.Errorf("the condition says %q", message)
			}
			if got := keyBase(t, cluster); got != "shop-secrets/secret-key-base" {
				t.Errorf("pods get %s", got)
			}

			// The word is for what there is: one of another time, for another adapter, is none.
			changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = v1alpha1.AdapterMnesia })
			condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretKeyBaseChanged)
			if got := keyBase(t, cluster); got != "shop-secrets/secret-key-base" {
				t.Errorf("pods get %s", got)
			}

			changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = adapter })
			reconciled(t, cluster)
			if got := keyBase(t, cluster); got != "shop-secret-key-base-2/secret-key-base" {
				t.Errorf("pods get %s", got)
			}
			if made := secretNamed(t, cluster, "shop-secret-key-base-2"); len(made.Data["secret-key-base"]) < 64 {
				t.Errorf("the Secret has the keys of %+v", made.ObjectMeta)
			}
			toldInEvent(t, cluster, v1alpha1.ReasonStashesLost, "SECRET_KEY_BASE changes")
		})
	}
}

// A value that is changed where it is, is another one too.
func TestOwnSecretKeyBaseWaitsForAWord(t *testing.T) {
	namespace := suite.Namespace(t, api)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Data: map[string][]byte{"base": []byte(strings.Repeat("a", 64))}}
	suite.Must(t, api.Create(t.Context(), own))
	cluster := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "base"}}
	})
	reconciled(t, cluster)
	digest := secretsDigest(t, cluster)
	if len(digest) > 10 {
		t.Errorf("pods are annotated with %s, which is more than it takes to tell a change", digest)
	}
	own.Data["base"] = []byte(strings.Repeat("b", 64))
	suite.Must(t, api.Update(t.Context(), own))
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonSecretKeyBaseChanged)
	if !strings.Contains(message, "the key base of Secret own") || strings.Contains(message, "64") {
		t.Errorf("the condition says %q", message)
	}
	if secretsDigest(t, cluster) != digest {
		t.Error("pods are replaced")
	}
	own.Data["base"] = []byte(strings.Repeat("a", 64))
	suite.Must(t, api.Update(t.Context(), own))
	reconciled(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.AcceptLossOf = v1alpha1.AdapterETS })
	own.Data["base"] = []byte(strings.Repeat("b", 64))
	suite.Must(t, api.Update(t.Context(), own))
	suite.Eventually(t, func() error {
		if secretsDigest(t, cluster) == digest {
			return fmt.Errorf("pods keep the old value")
		}
		return nil
	})
}
