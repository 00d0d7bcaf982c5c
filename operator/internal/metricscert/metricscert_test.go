package metricscert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	namespace = "livestash-system"
	service   = "livestash-operator"
)

// installed is an API server with what the chart makes.
func installed() client.Client {
	return fake.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-metrics"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-metrics-ca"}},
	).Build()
}

func replica(api client.Client, clock *clocktesting.FakeClock) *Certificate {
	return &Certificate{Reader: api, Writer: api, Namespace: namespace, Service: service, Clock: clock}
}

// verifies is whether who knows the ConfigMap alone takes the server for the operator.
func verifies(t *testing.T, api client.Client, server *Certificate, host string, now time.Time) bool {
	t.Helper()
	config := &corev1.ConfigMap{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: service + "-metrics-ca"}, config); err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM([]byte(config.Data[AuthorityKey]))
	at := func() time.Time { return now }
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	go func() {
		_ = tls.Server(theirs, &tls.Config{GetCertificate: server.Get, Time: at}).HandshakeContext(t.Context())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return tls.Client(ours, &tls.Config{RootCAs: known, ServerName: host, Time: at}).HandshakeContext(ctx) == nil
}

func renewed(t *testing.T, replica *Certificate) {
	t.Helper()
	if err := replica.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, api client.Client, object client.Object, name string) {
	t.Helper()
	object.SetNamespace(namespace)
	object.SetName(name)
	if err := api.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func TestWhoKnowsTheAuthorityCanVerify(t *testing.T) {
	api, clock := installed(), clocktesting.NewFakeClock(time.Now())
	one, other := replica(api, clock), replica(api, clock)
	host := "livestash-operator.livestash-system.svc"
	renewed(t, one)
	renewed(t, other)
	for name, server := range map[string]*Certificate{"the first replica": one, "the second": other} {
		if !verifies(t, api, server, host, clock.Now()) {
			t.Errorf("%s cannot be verified", name)
		}
		if verifies(t, api, server, "livestash-operator.elsewhere.svc", clock.Now()) {
			t.Errorf("%s is taken for another", name)
		}
	}
	stranger := replica(installed(), clock)
	renewed(t, stranger)
	if verifies(t, api, stranger, host, clock.Now()) {
		t.Error("somebody with an authority of his own is taken for the operator")
	}
}

func TestCertificateIsRenewed(t *testing.T) {
	api, clock := installed(), clocktesting.NewFakeClock(time.Now())
	server := replica(api, clock)
	for _, years := range []time.Duration{0, 0, 1, 3, 6, 7, 9, 12, 15} {
		clock.SetTime(time.Now().Add(years * 365 * 24 * time.Hour))
		renewed(t, server)
		if !verifies(t, api, server, server.Host(), clock.Now()) {
			t.Errorf("after %d years it cannot be verified", years)
		}
	}
}

func TestWhatWasEmptiedIsFilled(t *testing.T) {
	api, clock := installed(), clocktesting.NewFakeClock(time.Now())
	one, other := replica(api, clock), replica(api, clock)
	renewed(t, one)
	renewed(t, other)
	empty(t, api, &corev1.ConfigMap{}, service+"-metrics-ca")
	renewed(t, one)
	if !verifies(t, api, one, one.Host(), clock.Now()) || !verifies(t, api, other, other.Host(), clock.Now()) {
		t.Error("an emptied ConfigMap is not filled")
	}
	empty(t, api, &corev1.Secret{}, service+"-metrics")
	for range 4 {
		renewed(t, one)
		if !verifies(t, api, one, one.Host(), clock.Now()) || !verifies(t, api, other, other.Host(), clock.Now()) {
			t.Fatal("while one replica goes over to another authority, both must be verifiable")
		}
		clock.Step(lookAgain)
	}
	renewed(t, other)
	if !verifies(t, api, other, other.Host(), clock.Now()) {
		t.Error("the other replica does not follow")
	}
}

// Metrics of an installation without these objects are served as before: to whom does not verify.
func TestNotInstalled(t *testing.T) {
	server := replica(fake.NewClientBuilder().Build(), clocktesting.NewFakeClock(time.Now()))
	if _, err := server.Get(nil); err == nil {
		t.Error("there is a certificate before it was made")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Start(ctx); err != nil {
		t.Error(err)
	}
	if current, err := server.Get(nil); err != nil || current == nil {
		t.Errorf("Get = %v, %v", current, err)
	}
	if err := server.Renew(t.Context()); err == nil {
		t.Error("it does not say that the Secret is missing")
	}
}

// What is served while there is no authority that others know gives way to the first certificate that they can verify.
func TestMakeShiftGivesWay(t *testing.T) {
	api, clock := installed(), clocktesting.NewFakeClock(time.Now())
	server := replica(fake.NewClientBuilder().Build(), clock)
	server.makeShift()
	if verifies(t, api, server, server.Host(), clock.Now()) {
		t.Fatal("a certificate of an authority that nobody knows is verified: this test shows nothing")
	}
	server.Reader, server.Writer = api, api
	renewed(t, server)
	if !verifies(t, api, server, server.Host(), clock.Now()) {
		t.Error("the makeshift one is served though there is another")
	}
}

// Whoever empties the Secret again and again does not fill the ConfigMap.
func TestFewAuthoritiesAreKept(t *testing.T) {
	api, clock := installed(), clocktesting.NewFakeClock(time.Now())
	server := replica(api, clock)
	for range mostAuthorities + 3 {
		renewed(t, server)
		empty(t, api, &corev1.Secret{}, service+"-metrics")
		clock.Step(lookAgain)
	}
	config := &corev1.ConfigMap{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: service + "-metrics-ca"}, config); err != nil {
		t.Fatal(err)
	}
	if kept := strings.Count(config.Data[AuthorityKey], "BEGIN CERTIFICATE"); kept != mostAuthorities {
		t.Errorf("the ConfigMap has %d authorities, want %d", kept, mostAuthorities)
	}
}
