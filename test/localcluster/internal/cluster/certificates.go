package cluster

import (
	"net"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/livestash-dev/livestash/test/localcluster/internal/pki"
)

// certificates are the files the control plane's programs are started with.
type certificates struct {
	authority             *pki.Authority
	serverCert, serverKey string
	// kubeletClient is who the API server is to the kubelets.
	kubeletClientCert, kubeletClientKey string
	// kubelets are who the kubelets are to the API server, by the index of their node.
	kubelets              []keyPair
	tokenKey, tokenPublic string
}

// keyPair names the files of a certificate and its key.
type keyPair struct{ certificate, key string }

// client is a program or person with a kubeconfig.
type client struct {
	file, user string
	groups     []string
}

// The users are those that Kubernetes' own roles are bound to.
func (c *Cluster) clients() []client {
	clients := []client{
		{c.adminKubeconfig(), "localcluster-admin", []string{"system:masters"}},
		{c.path("kubeconfigs", "controller-manager"), "system:kube-controller-manager", nil},
		{c.path("kubeconfigs", "scheduler"), "system:kube-scheduler", nil},
		{c.path("kubeconfigs", "proxy"), "system:kube-proxy", nil},
		{c.path("kubeconfigs", "provisioner"), provisionerUser, nil},
	}
	if c.state.Options.NetworkPolicies {
		clients = append(clients, client{c.path("kubeconfigs", "network-policies"), policyUser, nil})
	}
	for i := range max(1, c.state.Options.Nodes) {
		n := c.node(i)
		clients = append(clients, client{n.path("kubeconfig"), "system:node:" + n.name, []string{"system:nodes"}})
	}
	return clients
}

const (
	provisionerUser = "localcluster:provisioner"
	policyUser      = "localcluster:network-policies"
)

// prepareCertificates makes what is missing of the cluster's keys, certificates and kubeconfigs.
func (c *Cluster) prepareCertificates() (certificates, error) {
	authority, err := pki.Load(c.path("pki"))
	if err != nil {
		return certificates{}, err
	}
	files := certificates{authority: authority}
	issue := func(name string, request pki.Request, certificate, key *string) {
		if err == nil {
			*certificate, *key, err = authority.Issue(name, request)
		}
	}
	issue("apiserver", pki.Request{
		CommonName: "kube-apiserver",
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + clusterDomain},
		IPs: []net.IP{c.apiServerIP(), net.ParseIP(serviceIP), net.IPv4(127, 0, 0, 1)},
	}, &files.serverCert, &files.serverKey)
	issue("apiserver-kubelet-client", pki.Request{
		CommonName: "localcluster-apiserver", Organizations: []string{"system:masters"},
	}, &files.kubeletClientCert, &files.kubeletClientKey)
	files.kubelets = make([]keyPair, max(1, c.state.Options.Nodes))
	for i := range files.kubelets {
		n := c.node(i)
		issue(n.role("kubelet"), pki.Request{
			CommonName: "system:node:" + n.name, DNSNames: []string{n.name}, IPs: []net.IP{n.ip},
		}, &files.kubelets[i].certificate, &files.kubelets[i].key)
	}
	if err != nil {
		return certificates{}, err
	}
	if files.tokenKey, files.tokenPublic, err = authority.SigningKey("service-accounts"); err != nil {
		return certificates{}, err
	}
	for _, client := range c.clients() {
		if err := c.writeKubeconfig(authority, client); err != nil {
			return certificates{}, err
		}
	}
	return files, nil
}

// writeKubeconfig writes a file that holds all it needs, so that it can be copied elsewhere.
func (c *Cluster) writeKubeconfig(authority *pki.Authority, client client) error {
	certificateFile, keyFile, err := authority.Issue("client-"+fileName(client.user), pki.Request{
		CommonName: client.user, Organizations: client.groups,
	})
	if err != nil {
		return err
	}
	var contents [3][]byte
	for i, file := range []string{authority.CertificateFile(), certificateFile, keyFile} {
		if contents[i], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.apiServerURL(), CertificateAuthorityData: contents[0]}
	config.AuthInfos[client.user] = &clientcmdapi.AuthInfo{ClientCertificateData: contents[1], ClientKeyData: contents[2]}
	config.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: client.user}
	config.CurrentContext = c.Name
	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return replaceFile(client.file, encoded, 0o600)
}

// fileName replaces what looks odd in the name of a file.
func fileName(user string) string {
	name := []byte(user)
	for i, char := range name {
		if char == ':' {
			name[i] = '-'
		}
	}
	return string(name)
}
