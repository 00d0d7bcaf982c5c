package charts

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// block is YAML in a page: its indent, and its text.
var block = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```")

// TestPages: what the pages show of our kinds is what the API server takes, and all other YAML can be read. A spec alone is a part of a
// LiveStashCluster, unless only a LiveStashBenchmark has its fields.
func TestPages(t *testing.T) {
	checkers := map[string]*definition{}
	for kind := range kinds {
		checkers[kind] = newDefinition(t, kind)
	}
	checked := 0
	for _, path := range markdown(t) {
		for _, found := range block.FindAllStringSubmatch(string(readFile(t, path)), -1) {
			text := regexp.MustCompile("(?m)^"+found[1]).ReplaceAllString(found[2], "")
			for part := range strings.SplitSeq(text, "\n---\n") {
				object, err := shown(part, checkers["LiveStashBenchmark"])
				if err != nil {
					t.Errorf("%s: %v\n%s", path, err, part)
					continue
				}
				checker := checkers[object.GetKind()]
				if checker == nil || !strings.HasPrefix(object.GetAPIVersion(), "livestash.dev/") {
					continue
				}
				checked++
				for _, problem := range checker.problems(object) {
					t.Errorf("%s: %s\n%s", path, problem, part)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d objects of ours were found", checked)
	}
}

// shown is the object that YAML in a page shows, or that it shows a part of. One without a kind is none of Kubernetes'.
func shown(text string, benchmark *definition) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
		var list []any // some pages show the items of a list
		return object, errWithout(yaml.Unmarshal([]byte(text), &list), err)
	}
	spec, isPart := object.Object["spec"].(map[string]any)
	if !isPart || len(object.Object) != 1 || benchmark.hasAll(spec) {
		return object, nil
	}
	whole := map[string]any{"image": "ghcr.io/acme/shop:1.4.2", "adapter": "ETS"}
	if spec["redis"] != nil {
		whole["adapter"] = "Redis"
	}
	maps.Copy(whole, spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster", "metadata": map[string]any{"name": "shop"}, "spec": whole,
	}}, nil
}

// hasAll is whether the kind's spec has all of these fields.
func (d *definition) hasAll(fields map[string]any) bool {
	for name := range fields {
		if _, has := d.structural.Properties["spec"].Properties[name]; !has {
			return false
		}
	}
	return true
}

// errWithout is nil if there was another way, else the first error.
func errWithout(other, first error) error {
	if other == nil {
		return nil
	}
	return first
}

func markdown(t *testing.T) []string {
	t.Helper()
	found := []string{root + "/README.md"}
	for _, folder := range []string{"docs", "charts", "agent", "loadtests"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
