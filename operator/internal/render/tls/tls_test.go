package tls

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func TestIssuedCertificate(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.Clustering.TLS.Enabled = true
	if certificate := IssuedCertificate(cluster, rendertest.Inputs); certificate != nil {
		t.Errorf("cert-manager is asked though there is no issuer: %v", certificate)
	}
	own := mountedSecret(t, cluster)

	cluster.Spec.Clustering.TLS.IssuerRef = &v1alpha1.IssuerReference{Name: "fleet-ca", Kind: "ClusterIssuer", Group: "cert-manager.io"}
	certificate := IssuedCertificate(cluster, rendertest.Inputs)
	got, err := yaml.Marshal(certificate.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	const want = `dnsNames:
- '*.shop-nodes.web.svc.cluster.local'
duration: 2160h0m0s
issuerRef:
  group: cert-manager.io
  kind: ClusterIssuer
  name: fleet-ca
privateKey:
  algorithm: ECDSA
  encoding: PKCS8
  rotationPolicy: Always
  size: 256
secretName: shop-distribution-issued
usages:
- digital signature
- server auth
- client auth
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the Certificate's spec (-want +got):\n%s", diff)
	}
	if mounted := mountedSecret(t, cluster); mounted != "shop-distribution-issued" || mounted == own {
		t.Errorf("pods mount the Secret %s, and without an issuer %s", mounted, own)
	}
}

// mountedSecret is the Secret whose certificate the application's container gets.
func mountedSecret(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	pods := corev1.PodSpec{Containers: make([]corev1.Container, 1)}
	AddCertificate(&pods, cluster)
	for _, volume := range pods.Volumes {
		if volume.Name == volumeName {
			return volume.Projected.Sources[0].Secret.Name
		}
	}
	t.Fatal("there is no volume with the certificate")
	return ""
}
