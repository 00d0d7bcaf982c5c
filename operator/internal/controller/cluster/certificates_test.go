package cluster

import (
	"bytes"
	cryptotls "crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/pki"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
)

func withTLS(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.TLS.Enabled = true }

// The API lets TLS be switched where there are to be no pods, which may not have come about when there are to be some again.
func TestTLSOfARunningFleetStays(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterETS })
	reconciled(t, cluster)
	pods := comeToRest(t, cluster, usualNode)
	set := fleetSet(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused, spec.Replicas = true, ptr.To[int32](0) })
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](3); withTLS(spec) })
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = false })
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	if !strings.Contains(message, "spec.clustering.tls is not what the pods have") {
		t.Errorf("the condition says %q", message)
	}
	if now := fleetSet(t, cluster); now.Generation != set.Generation {
		t.Errorf("the StatefulSet was changed: %+v", now.Spec)
	}
	for _, pod := range pods {
		suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	reconciled(t, cluster)
}

func secretNamed(t *testing.T, cluster *v1alpha1.LiveStashCluster, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
	suite.Must(t, get(t, secret))
	return secret
}

// nodesAccept checks that nodes that have read one Secret accept those that have read the other one.
func nodesAccept(t *testing.T, one, other *corev1.Secret) {
	t.Helper()
	for _, pair := range [][2]*corev1.Secret{{one, other}, {other, one}} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pair[0].Data["ca.crt"])
		shown, err := cryptotls.X509KeyPair(pair[1].Data["tls.crt"], pair[1].Data["tls.key"])
		suite.Must(t, err)
		_, err = shown.Leaf.Verify(x509.VerifyOptions{
			Roots:       roots,
			DNSName:     "shop-17.shop-nodes." + one.Namespace + ".svc.cluster.local",
			KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			CurrentTime: operatorTime.Now(),
		})
		suite.Must(t, err)
	}
}

// later lets time pass for the operator alone, and has it look at the LiveStashCluster.
func later(t *testing.T, cluster *v1alpha1.LiveStashCluster, by time.Duration) {
	t.Helper()
	operatorTime.Ahead.Add(int64(by))
	t.Cleanup(func() { operatorTime.Ahead.Add(-int64(by)) })
	suite.Eventually(t, func() error {
		_, err := underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		return err
	})
}

// changedSecret waits until a Secret has another certificate than before.
func changedSecret(t *testing.T, cluster *v1alpha1.LiveStashCluster, before *corev1.Secret, key string) *corev1.Secret {
	t.Helper()
	after := before.DeepCopy()
	suite.Eventually(t, func() error {
		if err := get(t, after); err != nil {
			return err
		}
		if bytes.Equal(after.Data[key], before.Data[key]) {
			return fmt.Errorf("%s of Secret %s of %s has not changed", key, before.Name, cluster.Name)
		}
		return nil
	})
	return after
}

func TestCertificatesAreMadeBeforePods(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	authority, nodes := secretNamed(t, cluster, "shop-distribution-ca"), secretNamed(t, cluster, "shop-distribution-tls")
	nodesAccept(t, nodes, nodes)
	if bytes.Contains(nodes.Data["tls.key"], authority.Data["tls.key"]) || len(nodes.Data) != 3 {
		t.Errorf("pods get more than they need: %d keys", len(nodes.Data))
	}

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}
	suite.Must(t, get(t, set))
	options := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-distribution"}}
	suite.Must(t, get(t, options))
	for _, child := range []client.Object{authority, nodes, options} {
		if !metav1.IsControlledBy(child, cluster) {
			t.Errorf("%s has no controller: it would outlive its LiveStashCluster", child.GetName())
		}
		if set.CreationTimestamp.Before(ptr.To(child.GetCreationTimestamp())) {
			t.Errorf("%s was made after the pods that need it", child.GetName())
		}
	}
	for _, secret := range []*corev1.Secret{authority, nodes} {
		if strings.Contains(logs.String(), string(secret.Data["tls.key"])) {
			t.Errorf("the key in Secret %s is in the log", secret.Name)
		}
	}
	hasEvent(t, cluster, v1alpha1.ReasonCertificateAuthorityGenerated)
}

func TestNoCertificatesWithoutTLS(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	secrets := &corev1.SecretList{}
	suite.Must(t, api.List(t.Context(), secrets, client.InNamespace(cluster.Namespace)))
	for _, secret := range secrets.Items {
		if secret.Type == corev1.SecretTypeTLS {
			t.Errorf("there is a Secret %s", secret.Name)
		}
	}
}

func TestSteadyCertificatesCostNoRequests(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	var result ctrl.Result
	costsNothing(t, "a pass over a steady cluster", func() { result = looksAgain(t, cluster) })
	if result.RequeueAfter <= 0 || result.RequeueAfter > pki.LeafLife {
		t.Errorf("the next look is in %s: the certificate would not be renewed", result.RequeueAfter)
	}
}

func TestCertificateIsRenewedAndNoPodRestarts(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	first := secretNamed(t, cluster, "shop-distribution-tls")
	authority := secretNamed(t, cluster, "shop-distribution-ca")
	template := templateOf(t, cluster)

	later(t, cluster, 30*24*time.Hour)
	if early := secretNamed(t, cluster, "shop-distribution-tls"); !bytes.Equal(early.Data["tls.crt"], first.Data["tls.crt"]) {
		t.Error("it was renewed after a third of its life")
	}
	later(t, cluster, 35*24*time.Hour)
	second := changedSecret(t, cluster, first, "tls.crt")
	nodesAccept(t, first, second)
	if bytes.Equal(first.Data["tls.key"], second.Data["tls.key"]) {
		t.Error("the key is the old one")
	}
	if again := secretNamed(t, cluster, "shop-distribution-ca"); !bytes.Equal(again.Data["tls.crt"], authority.Data["tls.crt"]) {
		t.Error("the authority is another one")
	}
	if templateOf(t, cluster) != template {
		t.Error("the pod template has changed: a renewal would restart the fleet")
	}
	hasEvent(t, cluster, v1alpha1.ReasonCertificateRenewed)
}

func templateOf(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
	suite.Must(t, get(t, set))
	return set.Spec.Template.String()
}

func TestScalingNeedsNoOtherCertificate(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	before := secretNamed(t, cluster, "shop-distribution-tls")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](18) })
	reconciled(t, cluster)
	after := secretNamed(t, cluster, "shop-distribution-tls")
	if after.ResourceVersion != before.ResourceVersion {
		t.Error("the Secret was written")
	}
	nodesAccept(t, after, after) // under the name of shop-17
}

func TestLostCertificateComesBack(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	lost := secretNamed(t, cluster, "shop-distribution-tls")
	suite.Must(t, api.Delete(t.Context(), lost))
	suite.Eventually(t, func() error { return get(t, lost.DeepCopy()) })
	nodesAccept(t, lost, secretNamed(t, cluster, "shop-distribution-tls"))
}

// A lost authority is replaced in steps, and at no time nodes refuse each other.
func TestLostAuthorityIsReplaced(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	lost, first := secretNamed(t, cluster, "shop-distribution-ca"), secretNamed(t, cluster, "shop-distribution-tls")
	suite.Must(t, api.Delete(t.Context(), lost))

	both := changedSecret(t, cluster, first, "ca.crt")
	hasEvent(t, cluster, v1alpha1.ReasonCertificateAuthorityReplaced)
	if !bytes.Equal(both.Data["tls.crt"], first.Data["tls.crt"]) {
		t.Error("the certificate changed before the nodes know the new authority")
	}
	nodesAccept(t, first, both)

	later(t, cluster, pki.Spread)
	second := changedSecret(t, cluster, both, "tls.crt")
	nodesAccept(t, both, second)

	later(t, cluster, pki.Spread)
	last := changedSecret(t, cluster, second, "ca.crt")
	nodesAccept(t, second, last)
	if got, want := last.Data["ca.crt"], secretNamed(t, cluster, "shop-distribution-ca").Data["tls.crt"]; !bytes.Equal(got, want) {
		t.Error("in the end nodes accept not the new authority alone")
	}
}

func TestUnreadableAuthorityIsReplaced(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	reconciled(t, cluster)
	broken := secretNamed(t, cluster, "shop-distribution-ca")
	broken.Data["tls.key"] = []byte("-----")
	suite.Must(t, api.Update(t.Context(), broken))
	// Nobody looks into the Secret before something is due.
	later(t, cluster, 65*24*time.Hour)
	whole := changedSecret(t, cluster, broken, "tls.key")
	if _, err := tls.ReadAuthority(whole); err != nil {
		t.Error(err)
	}
	hasEvent(t, cluster, v1alpha1.ReasonCertificateAuthorityReplaced)
}

func TestForeignCertificateIsLeftAlone(t *testing.T) {
	namespace := suite.Namespace(t, api)
	foreign := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-distribution-tls"},
		StringData: map[string]string{"tls.crt": "mine"},
	}
	suite.Must(t, api.Create(t.Context(), foreign))
	cluster := newCluster(t, namespace, withTLS)
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	if !strings.Contains(message, "Secret shop-distribution-tls exists and does not belong to this LiveStashCluster") {
		t.Errorf("the condition says %q", message)
	}
	suite.Must(t, get(t, foreign))
	if string(foreign.Data["tls.crt"]) != "mine" {
		t.Error("it was overwritten")
	}
}

// The whole way with cert-manager, whose part the test plays: its kind is not served, is served, and has made the Secret.
func TestCertificateOfCertManager(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Clustering.TLS = v1alpha1.DistributionTLSSpec{Enabled: true, IssuerRef: &v1alpha1.IssuerReference{Name: "fleet-ca", Kind: "ClusterIssuer"}}
	})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}

	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonCertManagerMissing)
	if !strings.Contains(message, "install cert-manager, or remove issuerRef") {
		t.Errorf("the condition says %q", message)
	}
	if err := get(t, set); !apierrors.IsNotFound(err) {
		t.Errorf("there are pods that cannot start: %v", err)
	}

	serveCertificates(t)
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonCertificateMissing, "spec.clustering.tls.issuerRef", "kubectl describe certificate")
	certificate := &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(tls.CertificateKind)
	certificate.SetNamespace(cluster.Namespace)
	certificate.SetName("shop-distribution-issued")
	suite.Must(t, get(t, certificate))
	if !metav1.IsControlledBy(certificate, cluster) {
		t.Error("the Certificate would outlive its LiveStashCluster")
	}

	suite.Must(t, api.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-distribution-issued"},
		Type:       corev1.SecretTypeTLS,
		StringData: map[string]string{"ca.crt": "a", "tls.crt": "b", "tls.key": "c"},
	}))
	reconciled(t, cluster)
	suite.Must(t, get(t, set))
	if err := get(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-distribution-ca"}}); !apierrors.IsNotFound(err) {
		t.Errorf("there is an authority that nobody asked for: %v", err)
	}

	costsNothing(t, "a pass over a steady cluster", func() { later(t, cluster, 0) })

	suite.Must(t, api.Delete(t.Context(), certificate))
	gone := certificate.GetUID()
	suite.Eventually(t, func() error {
		later(t, cluster, lookAtOthers)
		if err := get(t, certificate); err != nil {
			return err
		}
		if certificate.GetUID() == gone {
			return fmt.Errorf("it is still the old one")
		}
		return nil
	})
}

// What cert-manager was asked for goes when it is no longer wanted and no pod has it mounted. What somebody else has taken over stays.
func TestCertificateOfCertManagerGoesWithItsSetting(t *testing.T) {
	serveCertificates(t)
	noTLS := func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.TLS = v1alpha1.DistributionTLSSpec{} }
	cases := map[string]struct {
		change func(*v1alpha1.LiveStashClusterSpec)
		// before is done to the Certificate and the Secret before the change.
		before func(certificate, secret client.Object)
		// kept is whether each of the two stays.
		keptCertificate, keptSecret bool
	}{
		"no TLS":                     {change: noTLS},
		"no issuer":                  {change: func(spec *v1alpha1.LiveStashClusterSpec) { spec.Clustering.TLS.IssuerRef = nil }},
		"somebody's own Certificate": {change: noTLS, before: func(certificate, _ client.Object) { certificate.SetOwnerReferences(nil); certificate.SetLabels(nil) }, keptCertificate: true, keptSecret: true},
		"somebody's own Secret":      {change: noTLS, before: func(_, secret client.Object) { secret.SetAnnotations(nil) }, keptSecret: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
				spec.Clustering.TLS = v1alpha1.DistributionTLSSpec{Enabled: true, IssuerRef: &v1alpha1.IssuerReference{Name: "fleet-ca"}}
				spec.Replicas = ptr.To[int32](0) // TLS can only change then
			})
			certificate, secret := issued(t, cluster)
			reconciled(t, cluster)
			rolledOut(t, cluster.Namespace, "shop")
			if c.before != nil {
				c.before(certificate, secret)
				suite.Must(t, api.Update(t.Context(), certificate))
				suite.Must(t, api.Update(t.Context(), secret))
			}

			changeSpec(t, cluster, c.change)
			reconciled(t, cluster)
			for _, object := range []client.Object{certificate, secret} {
				if err := get(t, object); err != nil {
					t.Errorf("pods that need %s may still be there: %v", object.GetName(), err)
				}
			}
			rolledOut(t, cluster.Namespace, "shop")
			suite.Eventually(t, func() error {
				if made := await(t, cluster.Namespace, "shop", &v1alpha1.LiveStashCluster{}).Status.Certificate; made != "" {
					return fmt.Errorf("status.certificate = %q", made)
				}
				return nil
			})
			for object, kept := range map[client.Object]bool{certificate: c.keptCertificate, secret: c.keptSecret} {
				if err := get(t, object); kept && err != nil || !kept && !apierrors.IsNotFound(err) {
					t.Errorf("%T %s: %v, want it kept: %t", object, object.GetName(), err, kept)
				}
			}
		})
	}
}

// issued waits for the Certificate that the operator asks for, and plays cert-manager's part.
func issued(t *testing.T, cluster *v1alpha1.LiveStashCluster) (certificate *unstructured.Unstructured, secret *corev1.Secret) {
	t.Helper()
	certificate = &unstructured.Unstructured{}
	certificate.SetGroupVersionKind(tls.CertificateKind)
	certificate.SetNamespace(cluster.Namespace)
	certificate.SetName("shop-distribution-issued")
	suite.Eventually(t, func() error { return get(t, certificate) })
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: certificate.GetName(),
			Annotations: map[string]string{"cert-manager.io/certificate-name": certificate.GetName()},
		},
		Type:       corev1.SecretTypeTLS,
		StringData: map[string]string{"ca.crt": "a", "tls.crt": "b", "tls.key": "c"},
	}
	suite.Must(t, api.Create(t.Context(), secret))
	return certificate, secret
}

// serveCertificates has the API server serve cert-manager's Certificates.
func serveCertificates(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "certificates.yaml"))
	suite.Must(t, err)
	definition := &unstructured.Unstructured{}
	suite.Must(t, yaml.Unmarshal(text, &definition.Object))
	suite.Must(t, client.IgnoreAlreadyExists(api.Create(t.Context(), definition)))
}
