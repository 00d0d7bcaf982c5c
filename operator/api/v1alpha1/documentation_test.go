package v1alpha1_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// yamlBlock is a block of YAML in a page, or in a list on it.
var yamlBlock = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```")

// shown are the objects of this API that a block of YAML shows. Where it shows the spec of a LiveStashCluster alone, what it leaves out is added.
func shown(t *testing.T, block string, specs bool) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for text := range strings.SplitSeq(block, "\n---\n") {
		content := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &content); err != nil {
			t.Errorf("no YAML: %v\n%s", err, text)
			continue
		}
		object := &unstructured.Unstructured{Object: content}
		spec, isSpec := content["spec"].(map[string]any)
		if specs && isSpec && len(content) == 1 {
			object = clusterObject(t, "", "{image: a, adapter: ETS}")
			for field, value := range spec {
				object.Object["spec"].(map[string]any)[field] = value
			}
		}
		if object.GetAPIVersion() == "livestash.dev/v1alpha1" {
			objects = append(objects, object)
		}
	}
	return objects
}

// What the pages show is taken by the API server, every field of it.
func TestTheDocumentationsYAML(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	// Pages on which every block is a LiveStashCluster, or its spec; how many there are.
	onlyObjects := map[string]int{filepath.Join("docs", "how-to", "deploys.md"): 0, filepath.Join("docs", "how-to", "redis.md"): 0}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		for _, found := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
			_, all := onlyObjects[path]
			objects := shown(t, found[1], all)
			if all {
				onlyObjects[path] += len(objects)
				if len(objects) == 0 {
					t.Errorf("%s: not an object of this API, nor its spec:\n%s", path, found[1])
				}
			}
			for _, object := range objects {
				resource := map[string]dynamic.ResourceInterface{"LiveStashCluster": clusters, "LiveStashBenchmark": benchmarks}[object.GetKind()]
				object.SetNamespace("")
				_, err := resource.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
				if err != nil {
					t.Errorf("%s: %v\n%s", path, err, found[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, count := range onlyObjects {
		if count == 0 {
			t.Errorf("%s shows nothing", path)
		}
	}
}
