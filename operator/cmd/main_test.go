package main

import (
	"crypto/tls"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/metricscert"
)

// TestProgramStaysSmall: what a program does not contain, no node has to load or keep in memory.
func TestProgramStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	heavy := map[string]string{
		"text/template":          "its reflection makes the linker keep each method of each type: 24 MB",
		"k8s.io/apiserver/":      "the API server's own packages: 10 MB",
		"google.golang.org/grpc": "nobody is asked over gRPC",
		"go.opentelemetry.io/":   "nobody is told of traces",
	}
	for name := range strings.Lines(string(out)) {
		for prefix, why := range heavy {
			if strings.HasPrefix(name, prefix) {
				t.Errorf("the operator contains %s: %s", strings.TrimSpace(name), why)
			}
		}
	}
}

// The collector must know of the container's limit, or else the kernel kills the operator with garbage in its memory.
func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]int64{"268435456": 241591905, "": 0, "lots": 0, "-1": 0} {
		t.Setenv("CONTAINER_MEMORY_LIMIT", limit)
		if got := memoryLimit(); got != want {
			t.Errorf("%q bytes: the limit is %d, want %d", limit, got, want)
		}
	}
	t.Setenv("CONTAINER_MEMORY_LIMIT", "268435456")
	t.Setenv("GOMEMLIMIT", "100MiB")
	if got := memoryLimit(); got != 0 {
		t.Errorf("GOMEMLIMIT is set, and the limit is %d", got)
	}
}

// Metrics tell the names of all fleets: whoever is to be asked for a token is, over TLS, and shows a certificate that can be verified.
func TestMetricsAreProtected(t *testing.T) {
	known := &metricscert.Certificate{Namespace: "livestash-system", Service: "livestash-operator"}
	for name, c := range map[string]struct {
		opts                  options
		certificate           *metricscert.Certificate
		asksWho, isVerifiable bool
	}{
		"as the chart has it": {options{metricsSecure: true, metricsAddress: ":8443"}, known, true, true},
		"outside of a pod":    {options{metricsSecure: true, metricsAddress: ":8443"}, &metricscert.Certificate{Service: "livestash-operator"}, true, false},
		"without a Service":   {options{metricsSecure: true, metricsAddress: ":8443"}, &metricscert.Certificate{Namespace: "livestash-system"}, true, false},
		"over HTTP":           {options{metricsAddress: ":8080"}, known, false, false},
		"switched off":        {options{metricsSecure: true, metricsAddress: "0"}, known, true, false},
	} {
		served := metricsOptions(c.opts, c.certificate)
		if (served.FilterProvider != nil) != c.asksWho || served.SecureServing != c.opts.metricsSecure || served.BindAddress != c.opts.metricsAddress {
			t.Errorf("%s: who reads is asked: %t, secure: %t, at %s", name, served.FilterProvider != nil, served.SecureServing, served.BindAddress)
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		for _, option := range served.TLSOpts {
			option(config)
		}
		if (config.GetCertificate != nil) != c.isVerifiable || verifiable(c.opts, c.certificate) != c.isVerifiable {
			t.Errorf("%s: the certificate can be verified: %t", name, config.GetCertificate != nil)
		}
	}
}

// Who names namespaces has nothing of others read.
func TestOnlyNamedNamespacesAreCached(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string
	}{{"", nil}, {"shop", []string{"shop"}}, {" cart, shop,", []string{"cart", "shop"}}} {
		options := cacheOptions(c.list)
		if got := slices.Sorted(maps.Keys(options.DefaultNamespaces)); !slices.Equal(got, c.want) {
			t.Errorf("%q: the cache has %q, want %q", c.list, got, c.want)
		}
		for object, by := range options.ByObject {
			if len(by.Namespaces) > 0 {
				t.Errorf("%q: %T has namespaces of its own: %v", c.list, object, by.Namespaces)
			}
		}
	}
}
