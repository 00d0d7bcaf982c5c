package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

func configured(spec *v1alpha1.LiveStashClusterSpec) {
	spec.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	spec.Env = []corev1.EnvVar{
		{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "payments"}, Key: "token"}}},
		{Name: "THEME", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "theme"}, Key: "name", Optional: ptr.To(true)}}},
	}
}

// digestOtherThan waits until the pods' template has another digest, and returns it.
func digestOtherThan(t *testing.T, cluster *v1alpha1.LiveStashCluster, before, what string) string {
	t.Helper()
	var digest string
	suite.Eventually(t, func() error {
		digest = fleetTemplate(t, cluster).Annotations[fleet.ConfigDigestAnnotation]
		if digest == before {
			return fmt.Errorf("%s: the digest is still %q", what, digest)
		}
		return nil
	})
	return digest
}

// staysAt has the operator look a few times, and checks that the digest stays.
func staysAt(t *testing.T, cluster *v1alpha1.LiveStashCluster, digest, what string) {
	t.Helper()
	for range 3 {
		later(t, cluster, 0)
	}
	if got := fleetTemplate(t, cluster).Annotations[fleet.ConfigDigestAnnotation]; got != digest {
		t.Errorf("%s: the digest is %q, want %q", what, got, digest)
	}
}

func TestChangedConfigurationRolls(t *testing.T) {
	namespace := suite.Namespace(t, api)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	settings := &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"A": "1"}}
	payments := &corev1.Secret{ObjectMeta: named("payments"), StringData: map[string]string{"token": "x", "other": "y"}}
	suite.Must(t, api.Create(t.Context(), settings))
	suite.Must(t, api.Create(t.Context(), payments))
	cluster := newCluster(t, namespace, configured)
	digest := digestOtherThan(t, cluster, "", "the first")

	settings.Data["A"] = "2"
	suite.Must(t, api.Update(t.Context(), settings))
	digest = digestOtherThan(t, cluster, digest, "a ConfigMap's value changed")
	payments.StringData = map[string]string{"token": "z"}
	suite.Must(t, api.Update(t.Context(), payments))
	digest = digestOtherThan(t, cluster, digest, "a Secret's value changed")
	theme := &corev1.ConfigMap{ObjectMeta: named("theme"), Data: map[string]string{"name": "dark"}}
	suite.Must(t, api.Create(t.Context(), theme))
	digest = digestOtherThan(t, cluster, digest, "an optional ConfigMap came")
	suite.Must(t, api.Delete(t.Context(), theme))
	digest = digestOtherThan(t, cluster, digest, "an optional ConfigMap went")

	payments.StringData = map[string]string{"other": "z"}
	payments.Annotations = map[string]string{"seen": "today"}
	suite.Must(t, api.Update(t.Context(), payments))
	staysAt(t, cluster, digest, "what nobody reads changed")
	suite.Must(t, api.Delete(t.Context(), settings))
	staysAt(t, cluster, digest, "what pods need is missing")
	settings.ResourceVersion = ""
	suite.Must(t, api.Create(t.Context(), settings))
	staysAt(t, cluster, digest, "it is back")

	costsNothing(t, "three passes at rest", func() { staysAt(t, cluster, digest, "at rest") })
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.ConfigChanges = v1alpha1.ConfigChangesIgnore })
	reconciled(t, cluster)
	settings.Data["A"] = "3"
	suite.Must(t, api.Update(t.Context(), settings))
	staysAt(t, cluster, digest, "changes are ignored")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.ConfigChanges = v1alpha1.ConfigChangesRoll })
	digestOtherThan(t, cluster, digest, "changes are no longer ignored")
}
