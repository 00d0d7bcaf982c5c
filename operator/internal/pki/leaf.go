package pki

import (
	"bytes"
	"crypto/x509"
	"slices"
	"time"
)

// Spread is the time after which every node has read a changed Secret: the kubelet refreshes the mounted files within two
// minutes, and Erlang forgets the files that it has read within two more. The rest is reserve.
const Spread = 10 * time.Minute

// Leaf is what nodes need: a certificate with its key, and the authorities whose certificates they accept from others.
// All are PEM.
type Leaf struct {
	Authorities, Certificate, Key []byte
}

// Next is what the nodes of a DNS name should have now, given what they have, and when to ask again. wait is when the last
// call said to ask again; zero when that is not known.
//
// When the authority is not the one that signed what they have, nodes go over in three steps that are Spread apart, so that
// none ever has a certificate that another one refuses: they accept both authorities, take a certificate of the new one,
// accept the new one only.
func (a *Authority) Next(have Leaf, name string, wait, now time.Time) (want Leaf, again time.Time, err error) {
	leaf, authorities := have.parse()
	if leaf == nil || !now.Before(leaf.NotAfter) || !slices.Equal(leaf.DNSNames, []string{name}) {
		return a.renew(encodeCertificate(a.certificate), name, now)
	}
	if !holds(authorities, a.certificate) {
		have.Authorities = slices.Concat(encodeCertificate(a.certificate), have.Authorities)
		return have, now.Add(Spread), nil
	}
	if now.Before(wait) {
		return have, wait, nil
	}
	if leaf.CheckSignatureFrom(a.certificate) != nil {
		want, _, err = a.renew(have.Authorities, name, now)
		return want, now.Add(Spread), err
	}
	have.Authorities = encodeCertificate(a.certificate)
	if due := renewAfter(leaf); now.Before(due) {
		return have, due, nil
	}
	return a.renew(have.Authorities, name, now)
}

func (a *Authority) renew(authorities []byte, name string, now time.Time) (Leaf, time.Time, error) {
	certificate, key, err := a.issue(name, now)
	if err != nil {
		return Leaf{}, time.Time{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Leaf{}, time.Time{}, err
	}
	return Leaf{Authorities: authorities, Certificate: encodeCertificate(certificate), Key: keyPEM}, renewAfter(certificate), nil
}

// KeepAuthorities has nodes go on to accept the authorities that they have accepted before, and returns whether they would not have. It is
// for the time in which somebody may not have read the certificate yet, and shows one of such an authority.
func (l *Leaf) KeepAuthorities(before Leaf) bool {
	_, known := before.parse()
	_, accepted := l.parse()
	kept := false
	for _, authority := range known {
		if !holds(accepted, authority) {
			l.Authorities = slices.Concat(l.Authorities, encodeCertificate(authority))
			kept = true
		}
	}
	return kept
}

// NotAfter is when the certificate ends: the zero time when there is none that nodes could connect with.
func (l Leaf) NotAfter() time.Time {
	leaf, _ := l.parse()
	if leaf == nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// parse is the certificate and the accepted authorities. Nil when nodes could not connect to each other with them.
func (l Leaf) parse() (leaf *x509.Certificate, authorities []*x509.Certificate) {
	leaf, err := parseCertificate(l.Certificate)
	if err != nil {
		return nil, nil
	}
	key, err := parseKey(l.Key)
	if err != nil || !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, nil
	}
	authorities, err = parseCertificates(l.Authorities)
	if err != nil {
		return nil, nil
	}
	signed := func(authority *x509.Certificate) bool { return leaf.CheckSignatureFrom(authority) == nil }
	if !slices.ContainsFunc(authorities, signed) {
		return nil, nil
	}
	return leaf, authorities
}

func holds(certificates []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(certificates, func(c *x509.Certificate) bool { return bytes.Equal(c.Raw, wanted.Raw) })
}
