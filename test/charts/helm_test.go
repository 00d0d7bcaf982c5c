// Package charts tests the Helm charts and the manifests: what they render, what they refuse, and that the two ways of
// installing agree. It needs helm (bin/helm, or the one on PATH, or the one named by HELM) and no cluster.
package charts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	root               = "../.."
	operatorChart      = root + "/charts/livestash-operator"
	observabilityChart = root + "/charts/livestash-observability"
)

// parts are the charts that the root chart installs.
var parts = []string{operatorChart, observabilityChart}

// helmProgram is HELM, else bin/helm of the checkout, else the one on PATH.
func helmProgram(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("HELM"); named != "" {
		return named
	}
	built, err := filepath.Abs(root + "/bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); err == nil {
		return built
	}
	found, err := exec.LookPath("helm")
	if err != nil {
		t.Fatal("There is neither bin/helm nor helm on PATH, and HELM is not set: `make test-charts` builds it, or install Helm 4.")
	}
	return found
}

// helm runs helm away from the user's own settings and from any cluster. It returns standard output; err holds standard
// error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	command := exec.Command(helmProgram(t), args...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + home + "/none"}
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// values writes a values file and returns its path.
func values(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// template renders a chart as the release livestash in the namespace livestash-system.
func template(t *testing.T, chart, text string) (string, error) {
	t.Helper()
	return helm(t, "template", "livestash", chart, "--namespace", "livestash-system", "--values", values(t, text))
}

// render is template for values that must be accepted, read as objects.
func render(t *testing.T, chart, text string) objects {
	t.Helper()
	out, err := template(t, chart, text)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, []byte(out))
}

// objects are manifests by "Kind namespace/name".
type objects map[string]*unstructured.Unstructured

func read(t *testing.T, manifests []byte) objects {
	t.Helper()
	found := objects{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := keyOf(object)
		if found[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		found[key] = object
	}
}

func keyOf(object *unstructured.Unstructured) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName()))
}

// typed reads an object into its Go type and fails on a field that the type does not have.
func typed[T any](t *testing.T, found objects, key string) *T {
	t.Helper()
	if found[key] == nil {
		t.Fatalf("there is no %s", key)
	}
	object := new(T)
	strictly(t, found[key], object)
	return object
}

func strictly(t *testing.T, from *unstructured.Unstructured, into any) {
	t.Helper()
	document, err := yaml.Marshal(from.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(document, into); err != nil {
		t.Fatalf("%s: %v", keyOf(from), err)
	}
}

// emptyOf is a new object of the Go type that a kind has. A kind that is not here is one that the charts do not make.
func emptyOf(t *testing.T, object *unstructured.Unstructured) metav1.Object {
	t.Helper()
	switch object.GetAPIVersion() + " " + object.GetKind() {
	case "v1 Namespace":
		return &corev1.Namespace{}
	case "v1 Pod":
		return &corev1.Pod{}
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	case "v1 Service":
		return &corev1.Service{}
	case "v1 Secret":
		return &corev1.Secret{}
	case "v1 ServiceAccount":
		return &corev1.ServiceAccount{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "apps/v1 Deployment":
		return &appsv1.Deployment{}
	case "policy/v1 PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		return &rbacv1.ClusterRole{}
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return &rbacv1.ClusterRoleBinding{}
	case "rbac.authorization.k8s.io/v1 Role":
		return &rbacv1.Role{}
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return &rbacv1.RoleBinding{}
	case "apiextensions.k8s.io/v1 CustomResourceDefinition":
		return &apiextensionsv1.CustomResourceDefinition{}
	}
	t.Fatalf("%s (%s) is of a kind that this test does not know", keyOf(object), object.GetAPIVersion())
	return nil
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
