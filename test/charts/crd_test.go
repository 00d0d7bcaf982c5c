package charts

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if render(t, operatorChart, "crds: {install: false}")[key] != nil {
		t.Error("crds.install: false installs a CustomResourceDefinition")
	}
}
