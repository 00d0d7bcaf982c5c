package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func TestIssuedCertificate(t *testing.T) {
	cluster := load(t, "smallest")
	cluster.Spec.Clustering.TLS.Enabled = true
	if certificate := IssuedCertificate(cluster, inputs); certificate != nil {
		t.Errorf("cert-manager is asked though there is no issuer: %v", certificate)
	}
	own := mountedSecret(t, cluster)

	cluster.Spec.Clustering.TLS.IssuerRef = &v1alpha1.IssuerReference{Name: "fleet-ca", Kind: "ClusterIssuer", Group: "cert-manager.io"}
	certificate := IssuedCertificate(cluster, inputs)
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
	set, err := StatefulSet(cluster, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if volume.Name == tlsVolume {
			return volume.Projected.Sources[0].Secret.Name
		}
	}
	t.Fatal("there is no volume with the certificate")
	return ""
}
