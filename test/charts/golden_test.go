package charts

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata and the READMEs' tables instead of comparing with them")

// TestGolden shows in a review what a change of the chart does to an installation. What the chart only passes on from
// config/ is left out, so that a new rule needs no new testdata: TestCRD and TestRules compare it with its source.
func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			found := render(t, operatorChart, string(readFile(t, input))+"\ncrds: {enabled: false}\n")
			for _, object := range found {
				delete(object.Object, "rules")
			}
			compareGolden(t, filepath.Join("testdata", name+".golden.yaml"), write(t, found))
		})
	}
}

// write prints objects in an order and a form that do not depend on Helm's version.
func write(t *testing.T, found objects) string {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(found)) {
		document, err := yaml.Marshal(found[key].Object)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(document))
	}
	return text.String()
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(readFile(t, path)), got); diff != "" {
		t.Errorf("%s is not what is rendered (-is +rendered). Look at the difference, then run `go test ./charts -update`:\n%s", path, diff)
	}
}
