package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// What no fleet names, the operator does not even ask for: it lists and watches Secrets of fleets by their label, and users' by name.
func TestOnlySecretsOfFleetsAreAskedFor(t *testing.T) {
	namespace := suite.Namespace(t, api)
	for name, content := range map[string]string{"payments": "token", "bystander": "token"} {
		suite.Must(t, api.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: map[string]string{"token": content},
		}))
	}
	suite.Must(t, api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}))
	cluster := newCluster(t, namespace, configured)
	reconciled(t, cluster)

	byName := 0
	for _, query := range secretsAsked.of("/secrets?") {
		switch {
		case strings.Contains(query, "fieldSelector=metadata.name%3D"):
			byName++
		case !strings.Contains(query, "labelSelector=livestash.dev%2Fcluster"):
			t.Errorf("the operator asked for %s", query)
		}
	}
	if byName == 0 {
		t.Error("nothing was watched by name: this test shows nothing")
	}
	cached, err := underTest.secretMetadata(t.Context(), namespace, "bystander")
	if err != nil || cached != nil {
		t.Errorf("of a Secret that nobody names, the cache has %v, %v", cached, err)
	}
}

// What was named and is not any more is not watched any more, whether the spec changed or the LiveStashCluster is gone.
func TestWhatNobodyNamesIsForgotten(t *testing.T) {
	namespace := suite.Namespace(t, api)
	suite.Must(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payments"}, StringData: map[string]string{"token": "x"},
	}))
	suite.Must(t, api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}))
	cluster := newCluster(t, namespace, configured)
	reconciled(t, cluster)
	watched := func(name string) bool {
		_, err := underTest.Named.Get(t.Context(), named.Key{Kind: fleet.SecretReference, Namespace: namespace, Name: name})
		return err == nil
	}
	if !watched("payments") {
		t.Fatal("what the fleet names is not watched: this test shows nothing")
	}
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Env = nil })
	reconciled(t, cluster)
	if watched("payments") {
		t.Error("it is watched though the spec does not name it any more")
	}
	changeSpec(t, cluster, configured)
	reconciled(t, cluster)
	if !watched("payments") {
		t.Error("it is not watched though the spec names it again")
	}
	suite.Must(t, api.Delete(t.Context(), cluster))
	suite.Eventually(t, func() error {
		if watched("payments") {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// The cache has the fleets' Secrets by their label. One that has lost it is not taken for one that is gone.
func TestSecretsGetTheirLabelsBack(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	for _, name := range []string{"shop-secrets", "shop-distribution-ca", "shop-distribution-tls"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
		suite.Must(t, get(t, secret))
		uid, before := secret.UID, secret.DeepCopy()
		secret.Labels = nil
		suite.Must(t, api.Patch(t.Context(), secret, client.MergeFrom(before)))
		suite.Eventually(t, func() error {
			suite.Must(t, get(t, secret))
			if secret.UID != uid || secret.Labels[render.ClusterLabel] != "shop" {
				return fmt.Errorf("%s is %s with the labels %v, and was %s", name, secret.UID, secret.Labels, uid)
			}
			return nil
		})
		for key, value := range before.Data {
			if string(secret.Data[key]) != string(value) && name != "shop-distribution-tls" {
				t.Errorf("%s of %s has changed", key, name)
			}
		}
	}
}
