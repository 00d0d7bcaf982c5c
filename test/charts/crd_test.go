package charts

import (
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	keepAnnotation = "helm.sh/resource-policy"
	// maxCRD is how large an object's annotations may be together.
	maxCRD = 256 << 10
)

// kinds are those of the API, with the names of their resources.
var kinds = map[string]string{"LiveStashBenchmark": "livestashbenchmarks", "LiveStashCluster": "livestashclusters"}

func crdFile(kind string) string {
	return root + "/config/crd/bases/livestash.dev_" + kinds[kind] + ".yaml"
}

func crdKey(kind string) string { return "CustomResourceDefinition /" + kinds[kind] + ".livestash.dev" }

// TestCRDs: the chart's CustomResourceDefinitions are the generated ones, number for number, and survive `helm uninstall`
// unless the user wants otherwise.
func TestCRDs(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) { testCRD(t, crdFile(kind), crdKey(kind)) })
	}
}

func testCRD(t *testing.T, file, key string) {
	t.Helper()
	text := readFile(t, file)
	if len(text) > maxCRD {
		t.Errorf("%s has %d bytes: kubectl apply keeps a copy of it in an annotation, which ends at %d", file, len(text), maxCRD)
	}
	source := read(t, text)[key]
	for text, keep := range map[string]string{"": "keep", "crds: {keep: false}": ""} {
		got := render(t, operatorChart, text)[key]
		if diff := cmp.Diff(source.Object["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%q: spec (-generated +chart):\n%s", text, diff)
		}
		want := maps.Clone(source.GetAnnotations())
		if keep != "" {
			want[keepAnnotation] = keep
		}
		if diff := cmp.Diff(want, got.GetAnnotations()); diff != "" {
			t.Errorf("%q: annotations (-want +got):\n%s", text, diff)
		}
	}
	if render(t, operatorChart, "crds: {enabled: false}")[key] != nil {
		t.Error("crds.enabled: false installs a CustomResourceDefinition")
	}
}

// TestNoFieldNamesANamespace: what a LiveStashCluster or a LiveStashBenchmark refers to is in its own namespace. A field that names another
// one would have the operator read there with its own rights. Whom a fleet's pods may connect to is no reference: nothing is read there. See
// docs/security.md.
func TestNoFieldNamesANamespace(t *testing.T) {
	for kind := range kinds {
		crd := typed[apiextensionsv1.CustomResourceDefinition](t, read(t, readFile(t, crdFile(kind))), crdKey(kind))
		for _, version := range crd.Spec.Versions {
			fields := 0
			for path := range fieldsOf("", version.Schema.OpenAPIV3Schema) {
				fields++
				if strings.Contains(strings.ToLower(path), "namespace") && !strings.HasPrefix(path, ".spec.networkPolicy.egress.allow[].to[]") {
					t.Errorf("%s %s has the field %s", kind, version.Name, path)
				}
			}
			if fields < 100 {
				t.Errorf("%s %s: looked at %d fields only", kind, version.Name, fields)
			}
		}
	}
}

// fieldsOf are the paths of all fields of a schema.
func fieldsOf(path string, schema *apiextensionsv1.JSONSchemaProps) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, field := range schema.Properties {
			at := path + "." + name
			if !yield(at) {
				return
			}
			for deeper := range fieldsOf(at, &field) {
				if !yield(deeper) {
					return
				}
			}
		}
		if schema.Items != nil && schema.Items.Schema != nil {
			for deeper := range fieldsOf(path+"[]", schema.Items.Schema) {
				if !yield(deeper) {
					return
				}
			}
		}
	}
}
