package charts

import (
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// metadata is what Artifact Hub and `helm show chart` tell of a chart.
type metadata struct {
	Name, Icon  string
	Maintainers []struct{ Name, URL string }
	Annotations map[string]string
}

func metadataOf(t *testing.T, chart string) metadata {
	t.Helper()
	var found metadata
	if err := yaml.Unmarshal(readFile(t, chart+"/Chart.yaml"), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// annotation reads an annotation that holds YAML.
func (m metadata) annotation(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/"+name]), into); err != nil {
		t.Errorf("%s: annotation %s: %v", m.Name, name, err)
	}
}

// inRepository is the path in the checkout of a file that an address leads to once it is published. Empty: another site's.
func inRepository(address string) string {
	found := regexp.MustCompile(`^https://(?:raw\.githubusercontent\.com/livestash-dev/livestash|github\.com/livestash-dev/livestash/blob)/main/(.+)$`).
		FindStringSubmatch(address)
	if found == nil {
		return ""
	}
	return filepath.Join(root, found[1])
}

// TestMetadata: what a chart says of itself is there, and true.
func TestMetadata(t *testing.T) {
	for _, chart := range append([]string{root, platformChart}, parts...) {
		m := metadataOf(t, chart)
		if len(m.Maintainers) == 0 || m.Maintainers[0].Name == "" || !strings.HasPrefix(m.Maintainers[0].URL, "https://") {
			t.Errorf("%s: maintainers %v", m.Name, m.Maintainers)
		}
		if err := xml.Unmarshal(readFile(t, inRepository(m.Icon)), new(struct {
			XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		})); err != nil {
			t.Errorf("%s: the icon is no SVG: %v", m.Name, err)
		}
		if license := m.Annotations["artifacthub.io/license"]; !strings.Contains(string(readFile(t, root+"/LICENSE")), strings.Replace(license, "Apache-", "Version ", 1)) {
			t.Errorf("%s: the licence is not %q", m.Name, license)
		}
		var links []struct{ Name, URL string }
		m.annotation(t, "links", &links)
		for _, link := range links {
			if path := inRepository(link.URL); path != "" {
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: link %s: %v", m.Name, link.Name, err)
				}
			}
		}
		if len(links) < 3 || m.Annotations["artifacthub.io/category"] == "" {
			t.Errorf("%s: %d links, annotations %v", m.Name, len(links), m.Annotations)
		}
	}
}

// TestOperatorMetadata: the images, definitions and examples in the annotations are those that the chart has.
func TestOperatorMetadata(t *testing.T) {
	images := slices.Compact(slices.Sorted(maps.Values(imagesOf(t, render(t, operatorChart, "")))))
	for _, chart := range []string{root, operatorChart} {
		m := metadataOf(t, chart)
		var told []struct{ Name, Image string }
		m.annotation(t, "images", &told)
		var got []string
		for _, image := range told {
			got = append(got, image.Image)
		}
		slices.Sort(got)
		if diff := cmp.Diff(images, got); diff != "" {
			t.Errorf("%s: images (-installed +annotated):\n%s", m.Name, diff)
		}

		var definitions []struct{ Kind, Name, Version, DisplayName, Description string }
		m.annotation(t, "crds", &definitions)
		described := map[string]string{}
		for _, definition := range definitions {
			described[definition.Kind] = strings.TrimSuffix(definition.Name, ".livestash.dev")
			if definition.Version != "v1alpha1" || definition.DisplayName == "" || !strings.HasSuffix(definition.Description, ".") {
				t.Errorf("%s: definition %v", m.Name, definition)
			}
		}
		if diff := cmp.Diff(kinds, described); diff != "" {
			t.Errorf("%s: definitions (-API +annotated):\n%s", m.Name, diff)
		}

		var examples []map[string]any
		m.annotation(t, "crdsExamples", &examples)
		if len(examples) != len(kinds) {
			t.Errorf("%s: %d examples for %d kinds", m.Name, len(examples), len(kinds))
		}
		for _, example := range examples {
			object := &unstructured.Unstructured{Object: example}
			for _, problem := range newDefinition(t, object.GetKind()).problems(object) {
				t.Errorf("%s: example of %s: %s", m.Name, object.GetKind(), problem)
			}
		}
	}
}
