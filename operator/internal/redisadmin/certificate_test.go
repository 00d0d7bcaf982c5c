package redisadmin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/livestash-dev/livestash/operator/internal/pki"
)

const redisHost = "shop-redis.web.svc.cluster.local"

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("shop redis CA", time.Now().Add(-pki.LeafLife*2))
	must(t, err)
	return authority
}

// signed is a certificate of Redis that was made then.
func signed(t *testing.T, authority *pki.Authority, made time.Time) pki.Leaf {
	t.Helper()
	leaf, _, err := authority.Next(pki.Leaf{}, redisHost, time.Time{}, made)
	must(t, err)
	return leaf
}

// put brings a certificate into the server's folder, as the kubelet does into a pod.
func (s *realServer) put(t *testing.T, leaf pki.Leaf) {
	t.Helper()
	for name, content := range map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": leaf.Authorities} {
		must(t, os.WriteFile(filepath.Join(s.files, name), content, 0o600))
	}
}

// A hand-over over TLS loses as little as one without.
func TestHandOverWithTLS(t *testing.T) {
	access, leaf := testAccess(), signed(t, newAuthority(t), time.Now())
	handOver(t, startServer(t, access, leaf), startServer(t, access, leaf))
}

// Who does not speak TLS learns nothing, and a server that shows another certificate is told nothing.
func TestTLSIsChecked(t *testing.T) {
	authority := newAuthority(t)
	leaf := signed(t, authority, time.Now())
	server := startServer(t, testAccess(), leaf)
	if seen := server.look(t); seen.Stashes != 0 {
		t.Errorf("it has %d stashes", seen.Stashes)
	}

	plain := redis.NewClient(&redis.Options{Addr: server.Address, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, Protocol: 2})
	defer func() { _ = plain.Close() }()
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("it answers without TLS")
	}
	for name, change := range map[string]func(*Login){
		"another authority": func(login *Login) {
			login.Authorities = string(signed(t, newAuthority(t), time.Now()).Authorities)
		},
		"another name": func(login *Login) { login.Host = "cart-redis.web.svc.cluster.local" },
		"no authority": func(login *Login) { login.Authorities = "none" },
	} {
		login := server.Login
		change(&login)
		_, err := patient().Look(t.Context(), login)
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
		if shows, err := patient().Renew(t.Context(), login, server.files+"/tls.crt", leaf.Certificate); shows || err == nil {
			t.Errorf("%s: it is told to renew its certificate", name)
		}
	}
}

// A server shows the certificate of before until the kubelet has brought another one, and that one without a restart. Connections stay.
func TestRenew(t *testing.T) {
	authority := newAuthority(t)
	for name, made := range map[string]time.Time{"in time": time.Now().Add(-time.Hour), "after its end": time.Now().Add(-pki.LeafLife - 24*time.Hour)} {
		t.Run(name, func(t *testing.T) {
			first, second := signed(t, authority, time.Now()), signed(t, authority, time.Now())
			server := startServer(t, testAccess(), first)
			connected := server.fleet(t)
			must(t, connected.Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
			file := server.files + "/tls.crt"
			if made.Before(time.Now().Add(-pki.LeafLife)) {
				first = signed(t, authority, made)
				server.put(t, first)
				must(t, patient().ask(t.Context(), server.Login, "", func(c *redis.Client) error { return c.ConfigSet(t.Context(), "tls-cert-file", file).Err() }))
			}

			if shows, err := patient().Renew(t.Context(), server.Login, file, second.Certificate); shows || err != nil {
				t.Errorf("before the kubelet has brought it, the server shows it: %t, %v", shows, err)
			}
			server.put(t, second)
			for range 2 {
				if shows, err := patient().Renew(t.Context(), server.Login, file, second.Certificate); !shows || err != nil {
					t.Errorf("the server shows it: %t, %v", shows, err)
				}
			}
			must(t, patient().ask(t.Context(), server.Login, "", func(c *redis.Client) error {
				must(t, c.Do(t.Context(), "ACL", "SETUSER", server.User, "+config|get").Err())
				files, err := c.ConfigGet(t.Context(), "tls-*-file").Result()
				if files["tls-cert-file"] != file || files["tls-ca-cert-file"] != server.files+"/ca.crt" {
					t.Errorf("the server's files are %v", files)
				}
				return err
			}))
			if n, err := connected.Exists(t.Context(), "live_stash:a").Result(); n != 1 || err != nil {
				t.Errorf("a connection that was open says %d, %v", n, err)
			}
		})
	}
}

// A server's image may be the user's, and old. What it speaks must be TLS as it is thought safe today.
func TestOldTLSIsRefused(t *testing.T) {
	leaf := signed(t, newAuthority(t), time.Now())
	pair, err := tls.X509KeyPair(leaf.Certificate, leaf.Key)
	must(t, err)
	for version, taken := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: version})
		must(t, err)
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { _ = connection.(*tls.Conn).Handshake() }()
			}
		}()
		connection, err := dial(t.Context(), "tcp", listener.Addr().String(), Login{Authorities: string(leaf.Authorities), Host: redisHost}, time.Minute)
		if (err == nil) != taken {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = connection.Close()
		}
		_ = listener.Close()
	}
}

// One that accepts and says nothing does not hold up the operator.
func TestSilentTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	login := Login{Address: listener.Addr().String(), Authorities: string(signed(t, newAuthority(t), time.Now()).Authorities), Host: redisHost}
	started := time.Now()
	if _, err := dial(context.Background(), "tcp", login.Address, login, timeout); err == nil || time.Since(started) > 10*timeout {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
}

// shows is a server that shows a certificate, asks nothing and answers nothing, and says of each connection whether it was closed.
func shows(t *testing.T, certificate tls.Certificate) (address string, closed <-chan bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	ends := make(chan bool, 8)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = connection.Close() }()
				_ = tls.Server(connection, &tls.Config{Certificates: []tls.Certificate{certificate}}).Handshake()
				_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, err := io.Copy(io.Discard, connection)
				ends <- !errors.Is(err, os.ErrDeadlineExceeded)
			}()
		}
	}()
	return listener.Addr().String(), ends
}

// Servers are looked at again and again. One that shows what it should is told nothing, and no connection stays open.
func TestLookingAtCertificates(t *testing.T) {
	leaf, other := signed(t, newAuthority(t), time.Now()), signed(t, newAuthority(t), time.Now())
	pair, err := tls.X509KeyPair(leaf.Certificate, leaf.Key)
	must(t, err)
	address, closed := shows(t, pair)
	isClosed := func() {
		t.Helper()
		if !<-closed {
			t.Error("the connection stays open")
		}
	}
	login := Login{Address: address, Authorities: string(leaf.Authorities), Host: redisHost}
	if shows, err := patient().Renew(t.Context(), login, "tls.crt", leaf.Certificate); !shows || err != nil {
		t.Errorf("the server shows it: %t, %v", shows, err)
	}
	isClosed()
	if shows, err := patient().showsCertificate(t.Context(), login, []byte("no certificate")); shows || err != nil {
		t.Errorf("it shows what is no certificate: %t, %v", shows, err)
	}
	isClosed()
	login.Authorities = string(other.Authorities)
	if shows, err := patient().Renew(t.Context(), login, "tls.crt", leaf.Certificate); shows || err == nil {
		t.Errorf("of another authority: %t, %v", shows, err)
	}
	isClosed()
}

// Who answers need not be the fleet's server. What names a certificate has is not told, nor what Go cannot read of it.
func TestCertificatesAreNotQuoted(t *testing.T) {
	authority := newAuthority(t)
	authorities := string(signed(t, authority, time.Now()).Authorities)
	const mark = "marked"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	made := func(template *x509.Certificate) tls.Certificate {
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		must(t, err)
		return tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}
	}
	unreadable, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte("http://[" + mark)}})
	must(t, err)
	for want, certificate := range map[string]tls.Certificate{
		"another name":      made(&x509.Certificate{DNSNames: []string{mark + ".web.svc"}}),
		"another authority": made(&x509.Certificate{DNSNames: []string{redisHost}, Subject: pkix.Name{CommonName: mark}}),
		"does not answer":   made(&x509.Certificate{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: unreadable}}}),
	} {
		address, _ := shows(t, certificate)
		login := Login{Address: address, User: "operator", Authorities: authorities, Host: redisHost}
		_, looking := patient().Look(t.Context(), login)
		_, renewing := patient().Renew(t.Context(), login, "tls.crt", nil)
		for _, err := range []error{looking, renewing} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), mark) {
				t.Errorf("got %v, want that it says %q, and no name", err, want)
			}
		}
	}
}
