// Package tls renders what the nodes of a fleet need to talk to each other over TLS.
package tls

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/pki"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const (
	volumeName = "livestash-tls"
	dir        = "/livestash-tls"

	// optionsKey is the file with which Erlang sets up TLS between nodes.
	optionsKey = "ssl_dist.conf"
	// authoritiesKey is the file with the authorities whose certificates a node accepts.
	authoritiesKey = "ca.crt"
)

// Flags make a virtual machine talk to its peers over TLS.
const Flags = "-proto_dist inet_tls -ssl_dist_optfile " + dir + "/" + optionsKey

// CertificateKind is cert-manager's kind of a certificate that it makes and renews.
var CertificateKind = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}

// AuthorityName is the name of the Secret with the fleet's own certificate authority.
func AuthorityName(c *v1alpha1.LiveStashCluster) string {
	return c.Name + "-distribution-ca"
}

// SecretName is the name of the Secret with the nodes' certificate. That of cert-manager has another name than
// the operator's, so that neither writes to what the other has left.
func SecretName(c *v1alpha1.LiveStashCluster) string {
	if c.Spec.Clustering.TLS.IssuerRef != nil {
		return c.Name + "-distribution-issued"
	}
	return c.Name + "-distribution-tls"
}

func optionsName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-distribution" }

// DNSName is the name in the nodes' certificate. It stands for the host of every node, so that scaling needs no
// other certificate.
func DNSName(c *v1alpha1.LiveStashCluster, in render.Inputs) string {
	return "*." + render.ServiceHost(c, in, render.HeadlessName(c))
}

// Authority is the Secret of that name with a certificate authority of the fleet's own.
func Authority(c *v1alpha1.LiveStashCluster, name string, authority *pki.Authority) (*corev1.Secret, error) {
	certificate, key, err := authority.Encode()
	if err != nil {
		return nil, err
	}
	return secretOf(c, name, map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}), nil
}

// ReadAuthority is the authority in the Secret that Authority made.
func ReadAuthority(secret *corev1.Secret) (*pki.Authority, error) {
	return pki.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
}

// Certificate is the Secret of that name with a certificate, and the authorities that it is checked against.
func Certificate(c *v1alpha1.LiveStashCluster, name string, leaf pki.Leaf) *corev1.Secret {
	return secretOf(c, name, map[string][]byte{
		authoritiesKey:          leaf.Authorities,
		corev1.TLSCertKey:       leaf.Certificate,
		corev1.TLSPrivateKeyKey: leaf.Key,
	})
}

// ReadCertificate is what Certificate put into the Secret.
func ReadCertificate(secret *corev1.Secret) pki.Leaf {
	return pki.Leaf{
		Authorities: secret.Data[authoritiesKey],
		Certificate: secret.Data[corev1.TLSCertKey],
		Key:         secret.Data[corev1.TLSPrivateKeyKey],
	}
}

func secretOf(c *v1alpha1.LiveStashCluster, name string, data map[string][]byte) *corev1.Secret {
	secret := &corev1.Secret{TypeMeta: render.SecretType, ObjectMeta: render.ObjectMeta(c, name), Type: corev1.SecretTypeTLS, Data: data}
	secret.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(c)}
	return secret
}

// IssuedCertificate asks cert-manager for the nodes' certificate. Nil when the fleet has an authority of its own.
func IssuedCertificate(c *v1alpha1.LiveStashCluster, in render.Inputs) *unstructured.Unstructured {
	issuer := c.Spec.Clustering.TLS.IssuerRef
	if issuer == nil {
		return nil
	}
	certificate := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"secretName": SecretName(c),
			"dnsNames":   []any{DNSName(c, in)},
			"issuerRef":  map[string]any{"name": issuer.Name, "kind": issuer.Kind, "group": issuer.Group},
			"usages":     []any{"digital signature", "server auth", "client auth"},
			"duration":   pki.LeafLife.String(),
			"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "encoding": "PKCS8", "rotationPolicy": "Always"},
		},
	}}
	certificate.SetGroupVersionKind(CertificateKind)
	certificate.SetNamespace(c.Namespace)
	certificate.SetName(SecretName(c))
	certificate.SetLabels(render.Labels(c))
	certificate.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
	return certificate
}

// Options is the ConfigMap with Erlang's options for TLS between nodes. Nil without TLS.
func Options(c *v1alpha1.LiveStashCluster, in render.Inputs) *corev1.ConfigMap {
	if !c.TLSEnabled() {
		return nil
	}
	// Any host of the fleet will do: the certificate stands for all of them.
	host := strings.Replace(DNSName(c, in), "*", "node", 1)
	return &corev1.ConfigMap{
		TypeMeta:   render.ConfigMapType,
		ObjectMeta: render.ObjectMeta(c, optionsName(c)),
		Data:       map[string]string{optionsKey: fmt.Sprintf(optionsText, host)},
	}
}

// optionsText is an Erlang expression, which the virtual machine evaluates as it boots. A client checks the host of
// the server that it connects to; for that a match function is needed, because Erlang takes no wildcards without. A server
// knows no host to check, and Erlang would let in every certificate of the authority: the verify function asks for the
// fleet's name in it.
//
// The version is the one that Erlang itself takes for distribution: with TLS 1.3, nodes of OTP 25 and 27 hang when a
// connection that has carried some hundred gigabytes changes its keys. No session is resumed, so that every connection shows
// its certificate.
const optionsText = `%%%% Made by the LiveStash operator: TLS between the nodes of this fleet, each side with a certificate of it.
[{server,
  [{certfile, "` + dir + `/tls.crt"},
   {keyfile, "` + dir + `/tls.key"},
   {cacertfile, "` + dir + `/ca.crt"},
   {versions, ['tlsv1.2']},
   {reuse_sessions, false},
   {verify, verify_peer},
   {fail_if_no_peer_cert, true},
   {verify_fun,
    {fun(_, {bad_cert, _} = Why, _) -> {fail, Why};
        (_, {extension, _}, State) -> {unknown, State};
        (_, valid, State) -> {valid, State};
        (Certificate, valid_peer, State) ->
            case public_key:pkix_verify_hostname(
                   Certificate, [{dns_id, "%s"}],
                   [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]) of
                true -> {valid, State};
                false -> {fail, {bad_cert, hostname_check_failed}}
            end
     end, []}}]},
 {client,
  [{certfile, "` + dir + `/tls.crt"},
   {keyfile, "` + dir + `/tls.key"},
   {cacertfile, "` + dir + `/ca.crt"},
   {versions, ['tlsv1.2']},
   {reuse_sessions, false},
   {verify, verify_peer},
   {customize_hostname_check, [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]}]}].
`

// SecretOf is the name of the Secret with the certificate that pods have. Empty: they do not talk TLS.
func SecretOf(pods *corev1.PodSpec) string {
	for _, volume := range pods.Volumes {
		if volume.Name != volumeName || volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				return source.Secret.Name
			}
		}
	}
	return ""
}

// AddCertificate gives the pods the certificate and the options. Files that change in the Secret change in the pods,
// and Erlang reads them again, so a renewal does not show in the template and restarts nothing.
func AddCertificate(spec *corev1.PodSpec, c *v1alpha1.LiveStashCluster) {
	app := &spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: dir, ReadOnly: true})
	var files []corev1.KeyToPath
	for _, key := range []string{authoritiesKey, corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		files = append(files, corev1.KeyToPath{Key: key, Path: key})
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: volumeName,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			// Through the pod's fsGroup, the application's user may read the key.
			DefaultMode: ptr.To[int32](0o440),
			Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: SecretName(c)}, Items: files}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: optionsName(c)},
					Items:                []corev1.KeyToPath{{Key: optionsKey, Path: optionsKey}},
				}},
			},
		}},
	})
}
