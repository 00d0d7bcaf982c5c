package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	wildcard = "*.shop-nodes.web.svc.cluster.local"
	host     = "shop-0.shop-nodes.web.svc.cluster.local"
)

var start = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

func newAuthority(t *testing.T, now time.Time) *Authority {
	t.Helper()
	authority, err := NewAuthority("shop distribution CA", now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func next(t *testing.T, authority *Authority, have Leaf, wait, now time.Time) (Leaf, time.Time) {
	t.Helper()
	want, again, err := authority.Next(have, wildcard, wait, now)
	if err != nil {
		t.Fatal(err)
	}
	if !again.After(now) {
		t.Fatalf("it is to be asked again at %s, and it is %s", again, now)
	}
	return want, again
}

// accepts is whether a node that has read mine takes the certificate of a node that has read theirs, as a server and as a
// client.
func accepts(mine, theirs Leaf, now time.Time) error {
	pair, err := tls.X509KeyPair(theirs.Certificate, theirs.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(mine.Authorities)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		options := x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := pair.Leaf.Verify(options); err != nil {
			return err
		}
	}
	return nil
}

func TestFirstCertificate(t *testing.T) {
	authority := newAuthority(t, start)
	leaf, again := next(t, authority, Leaf{}, time.Time{}, start)
	if err := accepts(leaf, leaf, start); err != nil {
		t.Error(err)
	}
	if err := accepts(leaf, leaf, start.Add(-skew/2)); err != nil {
		t.Errorf("a machine whose clock is a little behind refuses it: %v", err)
	}
	if left := start.Add(LeafLife).Sub(again); left < LeafLife/4 || left > LeafLife/2 {
		t.Errorf("it is renewed %s before its end", left)
	}
	stranger, _ := next(t, newAuthority(t, start), Leaf{}, time.Time{}, start)
	if accepts(leaf, stranger, start) == nil {
		t.Error("a certificate of another authority with the same name is accepted")
	}
	certificate, _ := leaf.parse()
	if !slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) || len(certificate.UnknownExtKeyUsage) > 0 {
		t.Errorf("it may be used for %v", certificate.ExtKeyUsage)
	}
}

func TestRenewal(t *testing.T) {
	authority := newAuthority(t, start)
	first, due := next(t, authority, Leaf{}, time.Time{}, start)

	// Nothing happens before it is due, also when the time to ask again is not known.
	for _, wait := range []time.Time{due, {}} {
		same, again := next(t, authority, first, wait, due.Add(-time.Second))
		if !bytes.Equal(same.Certificate, first.Certificate) || !again.Equal(due) {
			t.Errorf("with the wait %s it is renewed before it is due; to be asked again at %s, want %s", wait, again, due)
		}
	}

	second, again := next(t, authority, first, due, due)
	if bytes.Equal(second.Certificate, first.Certificate) || bytes.Equal(second.Key, first.Key) {
		t.Error("it is not renewed with a new key when it is due")
	}
	if !again.After(due.Add(LeafLife / 2)) {
		t.Errorf("the next renewal is at %s", again)
	}
	for _, pair := range [][2]Leaf{{first, second}, {second, first}} {
		if err := accepts(pair[0], pair[1], due); err != nil {
			t.Errorf("nodes with the old and the new certificate do not accept each other: %v", err)
		}
	}
}

// A fleet goes over to another authority in steps; in each, whoever has read the step and whoever has not accept each other.
func TestAnotherAuthority(t *testing.T) {
	older, newer := newAuthority(t, start), newAuthority(t, start)
	now := start
	leaf, wait := next(t, older, Leaf{}, time.Time{}, now)

	var steps []Leaf
	for range 3 {
		now = now.Add(time.Minute)
		before := leaf
		leaf, wait = next(t, newer, leaf, wait, now)
		for _, pair := range [][2]Leaf{{before, leaf}, {leaf, before}} {
			if err := accepts(pair[0], pair[1], now); err != nil {
				t.Errorf("step %d: nodes before and after it do not accept each other: %v", len(steps)+1, err)
			}
		}
		steps = append(steps, leaf)

		// Until all have read it, nothing more happens.
		if !wait.Equal(now.Add(Spread)) && len(steps) < 3 {
			t.Errorf("step %d is given %s", len(steps), wait.Sub(now))
		}
		same, _ := next(t, newer, leaf, wait, now.Add(Spread/2))
		if !bytes.Equal(same.Certificate, leaf.Certificate) || !bytes.Equal(same.Authorities, leaf.Authorities) {
			t.Errorf("step %d is not given time", len(steps))
		}
		now = wait
	}

	stranger, _ := next(t, older, Leaf{}, time.Time{}, now)
	if accepts(leaf, stranger, now) == nil {
		t.Error("the old authority is still accepted in the end")
	}
	if !bytes.Equal(steps[1].Certificate, steps[2].Certificate) {
		t.Error("the last step makes a certificate, which none of the nodes needs")
	}
	if bytes.Equal(steps[0].Certificate, steps[1].Certificate) {
		t.Error("the second step makes no certificate")
	}
}

// Where somebody still shows what was made before, none of those authorities goes, also when another certificate is made at once.
func TestAuthoritiesAreKept(t *testing.T) {
	older, newer := newAuthority(t, start), newAuthority(t, start)
	shown, due := next(t, older, Leaf{}, time.Time{}, start)
	end := start.Add(LeafLife)
	fresh, _ := next(t, newer, shown, due, end)
	if !fresh.KeepAuthorities(shown) {
		t.Error("the authority of what is shown was accepted anyway")
	}
	for _, made := range []Leaf{shown, fresh} {
		if err := accepts(fresh, made, end); err != nil {
			t.Error(err)
		}
	}
	before := fresh
	if fresh.KeepAuthorities(shown) || !bytes.Equal(fresh.Authorities, before.Authorities) {
		t.Error("it is kept twice")
	}
	stranger, _ := next(t, newAuthority(t, start), Leaf{}, time.Time{}, start)
	tampered := Leaf{Authorities: stranger.Authorities, Certificate: fresh.Certificate, Key: fresh.Key}
	if fresh.KeepAuthorities(tampered) {
		t.Error("an authority is kept that is nobody's")
	}
	if fresh.KeepAuthorities(Leaf{}) {
		t.Error("there was none to keep")
	}
}

func TestUnusableCertificatesAreReplaced(t *testing.T) {
	authority := newAuthority(t, start)
	good, due := next(t, authority, Leaf{}, time.Time{}, start)
	other, _ := next(t, newAuthority(t, start), Leaf{}, time.Time{}, start)
	elsewhere, _, err := authority.Next(Leaf{}, "*.shop-nodes.other.svc.cluster.local", time.Time{}, start)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		have Leaf
		now  time.Time
	}{
		"no key":                   {Leaf{Authorities: good.Authorities, Certificate: good.Certificate}, start},
		"the key of another":       {Leaf{Authorities: good.Authorities, Certificate: good.Certificate, Key: other.Key}, start},
		"no authorities":           {Leaf{Certificate: good.Certificate, Key: good.Key}, start},
		"the authority of another": {Leaf{Authorities: other.Authorities, Certificate: good.Certificate, Key: good.Key}, start},
		"no certificate":           {Leaf{Authorities: good.Authorities, Certificate: []byte("-----"), Key: good.Key}, start},
		"a broken certificate":     {Leaf{Authorities: good.Authorities, Certificate: bytes.Replace(good.Certificate, []byte("M"), []byte("N"), 1), Key: good.Key}, start},
		"another name":             {elsewhere, start},
		"past its end":             {good, start.Add(LeafLife)},
		"another's, past its end":  {other, start.Add(LeafLife)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fresh, _ := next(t, authority, c.have, due, c.now)
			if err := accepts(fresh, fresh, c.now); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(fresh.Authorities, good.Authorities) {
				t.Error("others than the fleet's own authority are accepted")
			}
		})
	}
}

func TestAuthorityIsReadAsWritten(t *testing.T) {
	written := newAuthority(t, start)
	certificate, key, err := written.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseAuthority(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	if read.Fingerprint() != written.Fingerprint() {
		t.Error("it is another one")
	}
	if !read.RenewAfter().Add(LeafLife).Before(start.Add(AuthorityLife)) {
		t.Error("it signs certificates that outlive it")
	}

	leaf, _ := next(t, written, Leaf{}, time.Time{}, start)
	_, otherKey, err := newAuthority(t, start).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for says, pair := range map[string][2][]byte{
		"not that of the certificate": {certificate, otherKey},
		"not that of an authority":    {leaf.Certificate, leaf.Key},
		"no private key":              {certificate, nil},
		"0 certificates":              {nil, key},
		"2 certificates":              {append(bytes.Clone(certificate), certificate...), key},
	} {
		if _, err := ParseAuthority(pair[0], pair[1]); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseAuthority = %v, want an error that says %q", err, says)
		}
	}
}

// A list of accepted authorities may hold several of one name.
func TestNoTwoAuthoritiesAreAlike(t *testing.T) {
	serials := map[string]bool{}
	for range 8 {
		subject := newAuthority(t, start).certificate.Subject
		if serials[subject.String()] || len(subject.SerialNumber) < 16 {
			t.Errorf("another one has been %s, or could be", subject)
		}
		serials[subject.String()] = true
	}
}

// Whoever gets hold of a node's key must not make certificates with it, nor an authority under the fleet's.
func TestAuthoritySignsNoAuthority(t *testing.T) {
	authority, err := NewAuthority("shop", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	template, err := newTemplate(pkix.Name{CommonName: "between"}, time.Now(), LeafLife)
	if err != nil {
		t.Fatal(err)
	}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	certificate, key, err := sign(template, authority)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := (&Authority{certificate: certificate, key: key}).issue("node", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if usage := authority.certificate.KeyUsage; usage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("the authority may be used for %b", usage)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority.certificate)
	between.AddCert(certificate)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err == nil {
		t.Error("a certificate of an authority below the fleet's is taken")
	}
}
