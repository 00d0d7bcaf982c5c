package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCertificatesAreTrusted(t *testing.T) {
	authority, err := Load(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	own, err := os.ReadFile(authority.CertificateFile())
	if err != nil {
		t.Fatal(err)
	}
	if !roots.AppendCertsFromPEM(own) {
		t.Fatal("the authority's file holds no certificate")
	}
	tests := map[string]struct {
		request Request
		server  string
		usage   x509.ExtKeyUsage
		wantErr bool
	}{
		"server by name":           {request: Request{DNSNames: []string{"api"}}, server: "api", usage: x509.ExtKeyUsageServerAuth},
		"server by address":        {request: Request{IPs: []net.IP{net.IPv4(198, 19, 0, 2)}}, server: "198.19.0.2", usage: x509.ExtKeyUsageServerAuth},
		"server by another name":   {request: Request{DNSNames: []string{"api"}}, server: "web", usage: x509.ExtKeyUsageServerAuth, wantErr: true},
		"client":                   {request: Request{CommonName: "somebody", Organizations: []string{"group"}}, usage: x509.ExtKeyUsageClientAuth},
		"a client is not a server": {request: Request{CommonName: "somebody"}, usage: x509.ExtKeyUsageServerAuth, wantErr: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			certificateFile, keyFile, err := authority.Issue(strings.ReplaceAll(name, " ", "-"), test.request)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
			if err != nil {
				t.Fatal(err)
			}
			_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: test.server, KeyUsages: []x509.ExtKeyUsage{test.usage}})
			if (err != nil) != test.wantErr {
				t.Errorf("error %v, want one: %t", err, test.wantErr)
			}
			info, err := os.Stat(keyFile)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("others may read the key: %s", info.Mode())
			}
		})
	}
}

func TestNothingIsMadeTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	var contents [2]string
	for i := range contents {
		authority, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		certificateFile, keyFile, err := authority.Issue("client", Request{CommonName: "client"})
		if err != nil {
			t.Fatal(err)
		}
		signing, public, err := authority.SigningKey("tokens")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{authority.CertificateFile(), certificateFile, keyFile, signing, public} {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			contents[i] += string(content)
		}
	}
	if contents[0] != contents[1] {
		t.Error("the second time made other files")
	}
}

// A command can be killed between the two files of the authority.
func TestHalfAnAuthorityIsMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	authority, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(authority.CertificateFile()); err != nil {
		t.Fatal(err)
	}
	if authority, err = Load(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(authority.CertificateFile(), authority.KeyFile()); err != nil {
		t.Error(err)
	}
}
