// Package pki makes the cluster's own certificate authority and the certificates of its programs.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is longer than any local cluster lives, so that none stops one day for a certificate.
const validity = 10 * 365 * 24 * time.Hour

// Authority signs certificates. It lives in the files ca.crt and ca.key of its folder.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Request is a certificate to make, and the names it stands for.
type Request struct {
	// CommonName is the user name of a client, Organizations its groups.
	CommonName    string
	Organizations []string
	// DNSNames and IPs are the addresses of a server.
	DNSNames []string
	IPs      []net.IP
}

// Load returns the authority of the folder, made now if there is none.
func Load(dir string) (*Authority, error) {
	authority := &Authority{dir: dir}
	err := authority.read()
	if errors.Is(err, fs.ErrNotExist) {
		err = authority.create()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return authority, nil
}

// CertificateFile is the authority's own certificate.
func (a *Authority) CertificateFile() string { return filepath.Join(a.dir, "ca.crt") }

// KeyFile is the authority's private key.
func (a *Authority) KeyFile() string { return filepath.Join(a.dir, "ca.key") }

// Issue makes NAME.crt and NAME.key, unless both exist, and returns their paths.
func (a *Authority) Issue(name string, request Request) (certificateFile, keyFile string, err error) {
	certificateFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	if exist(certificateFile, keyFile) {
		return certificateFile, keyFile, nil
	}
	key, err := writeKey(keyFile)
	if err != nil {
		return "", "", err
	}
	template, err := newTemplate(pkix.Name{CommonName: request.CommonName, Organization: request.Organizations})
	if err != nil {
		return "", "", err
	}
	template.DNSNames, template.IPAddresses = request.DNSNames, request.IPs
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(request.DNSNames)+len(request.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return "", "", err
	}
	return certificateFile, keyFile, writePEM(certificateFile, "CERTIFICATE", der, 0o644)
}

// SigningKey makes the key pair NAME.key and NAME.pub, unless both exist, and returns their paths.
func (a *Authority) SigningKey(name string) (keyFile, publicFile string, err error) {
	keyFile, publicFile = filepath.Join(a.dir, name+".key"), filepath.Join(a.dir, name+".pub")
	if exist(keyFile, publicFile) {
		return keyFile, publicFile, nil
	}
	key, err := writeKey(keyFile)
	if err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return "", "", err
	}
	return keyFile, publicFile, writePEM(publicFile, "PUBLIC KEY", der, 0o644)
}

func (a *Authority) read() error {
	certificate, err := readPEM(a.CertificateFile())
	if err != nil {
		return err
	}
	key, err := readPEM(a.KeyFile())
	if err != nil {
		return err
	}
	if a.certificate, err = x509.ParseCertificate(certificate); err != nil {
		return err
	}
	a.key, err = x509.ParseECPrivateKey(key)
	return err
}

func (a *Authority) create() error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	key, err := writeKey(a.KeyFile())
	if err != nil {
		return err
	}
	template, err := newTemplate(pkix.Name{CommonName: "localcluster"})
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	// The certificate is written last: with it, the authority is complete.
	if err := writePEM(a.CertificateFile(), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return a.read()
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	// An hour back, for a machine whose clock is set right while the cluster runs.
	now := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now, NotAfter: now.Add(validity)}, nil
}

func writeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	// In one step: a killed command must not leave half a file that the next one takes for a whole one.
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	return block.Bytes, nil
}

func exist(paths ...string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}
