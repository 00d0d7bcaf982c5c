package charts

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	crdFile        = root + "/config/crd/bases/livestash.dev_livestashclusters.yaml"
	keepAnnotation = "helm.sh/resource-policy"
)

// TestCRD: the chart's CustomResourceDefinition is the generated one, number for number, and survives `helm uninstall`
// unless the user wants otherwise.
func TestCRD(t *testing.T) {
	source := read(t, readFile(t, crdFile))[crdKey]
	for text, keep := range map[string]string{"": "keep", "crds: {keep: false}": ""} {
		got := render(t, operatorChart, text)[crdKey]
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
	if render(t, operatorChart, "crds: {install: false}")[crdKey] != nil {
		t.Error("crds.install: false installs a CustomResourceDefinition")
	}
}
