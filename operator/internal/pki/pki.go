// Package pki makes the certificates with which the nodes of a fleet know each other, and says when they are due for
// renewal. It is pure but for randomness: the time is an argument.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// AuthorityLife is how long a certificate authority is valid.
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// LeafLife is how long a node's certificate is valid.
	LeafLife = 90 * 24 * time.Hour

	// skew is how far a machine's clock may be behind the operator's.
	skew = time.Hour
)

const (
	certificateBlock = "CERTIFICATE"
	privateKeyBlock  = "PRIVATE KEY"
)

// Authority is a certificate authority.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes a certificate authority. No two have the same subject, so that a list may hold several of one name.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	template, err := newTemplate(pkix.Name{CommonName: name}, now, AuthorityLife)
	if err != nil {
		return nil, err
	}
	template.Subject.SerialNumber = template.SerialNumber.Text(16)
	// It signs nodes' certificates, and no other authority.
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	certificate, key, err := sign(template, nil)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// ParseAuthority is the authority that Encode wrote.
func ParseAuthority(certificatePEM, keyPEM []byte) (*Authority, error) {
	certificate, err := parseCertificate(certificatePEM)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, errors.New("the private key is not that of the certificate")
	}
	if !certificate.IsCA {
		return nil, errors.New("the certificate is not that of an authority")
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// Encode is the certificate and the private key as PEM.
func (a *Authority) Encode() (certificatePEM, keyPEM []byte, err error) {
	keyPEM, err = encodeKey(a.key)
	return encodeCertificate(a.certificate), keyPEM, err
}

// Fingerprint tells an authority from every other.
func (a *Authority) Fingerprint() string {
	digest := sha256.Sum256(a.certificate.Raw)
	return hex.EncodeToString(digest[:8])
}

// RenewAfter is when the authority is due to be replaced: at two thirds of its life, so that whatever it signs until then
// ends before it does.
func (a *Authority) RenewAfter() time.Time { return renewAfter(a.certificate) }

// issue makes a certificate with which a node is both server and client under a DNS name.
func (a *Authority) issue(name string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	// Without a subject: those have at most 64 characters. The name is where names belong.
	template, err := newTemplate(pkix.Name{}, now, LeafLife)
	if err != nil {
		return nil, nil, err
	}
	template.DNSNames = []string{name}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return sign(template, a)
}

func renewAfter(certificate *x509.Certificate) time.Time {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return certificate.NotBefore.Add(life / 3 * 2)
}

func newTemplate(subject pkix.Name, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-skew), NotAfter: now.Add(life)}, nil
}

// sign makes a key for the template and signs it, with the key itself when there is no authority.
func sign(template *x509.Certificate, by *Authority) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if by == nil {
		by = &Authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

func encodeCertificate(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der}), nil
}

func parseCertificate(content []byte) (*x509.Certificate, error) {
	certificates, err := parseCertificates(content)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 {
		return nil, fmt.Errorf("there are %d certificates, want one", len(certificates))
	}
	return certificates[0], nil
}

func parseCertificates(content []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}

func parseKey(content []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("there is no private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading a private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the private key is not of the kind ECDSA")
	}
	return key, nil
}
