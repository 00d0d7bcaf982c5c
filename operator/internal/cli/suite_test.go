package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// The verbs run against a real API server, as a user runs them. There is no operator and no kubelet: what needs pods is the end-to-end
// tests' business.
var (
	api        client.Client
	connection *rest.Config
	kubeconfig string
)

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need an API server, see `make test-operator`:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	if connection, err = environment.Start(); err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "cli")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	kubeconfig = filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return 0, err
	}
	scheme, err := kube.Scheme()
	if err != nil {
		return 0, err
	}
	if api, err = client.New(connection, client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// run runs the plugin in a namespace, and returns what it writes.
func run(t *testing.T, namespace string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := runTo(t, &out, namespace, args...)
	return out.String(), err
}

func runTo(t *testing.T, out io.Writer, namespace string, args ...string) error {
	t.Helper()
	command := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}, "test")
	command.SetArgs(append([]string{"--kubeconfig", kubeconfig, "--cache-dir", t.TempDir(), "-n", namespace}, args...))
	return command.ExecuteContext(t.Context())
}

// must is run, for what must work.
func must(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	out, err := run(t, namespace, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// newFleet makes a LiveStashCluster in a namespace of its own, with a status as the operator would write it.
func newFleet(t *testing.T, status v1alpha1.LiveStashClusterStatus) *v1alpha1.LiveStashCluster {
	t.Helper()
	c := &v1alpha1.LiveStashCluster{}
	c.Name, c.Namespace = "shop", suite.Namespace(t, api)
	c.Spec.Image, c.Spec.Adapter = "ghcr.io/acme/shop:1.4.2", v1alpha1.AdapterETS
	suite.Must(t, api.Create(t.Context(), c))
	status.ObservedGeneration = c.Generation
	c.Status = status
	suite.Must(t, api.Status().Update(t.Context(), c))
	return c
}

func reload(t *testing.T, object client.Object) {
	t.Helper()
	suite.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(object), object))
}

// wants fails unless a text has all of these parts.
func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in\n%s", part, text)
		}
	}
}

// refused fails unless there is an error with all of these parts.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it is not refused")
	}
	wants(t, err.Error(), parts...)
}
