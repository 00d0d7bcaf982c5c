package charts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestSamples: every sample is one that the API server takes, and there is a fleet for every adapter.
func TestSamples(t *testing.T) {
	checkers := map[string]*definition{}
	for kind := range kinds {
		checkers[kind] = newDefinition(t, kind)
	}
	var adapters, names, files []string
	paths, err := filepath.Glob(root + "/config/samples/livestash*_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		files = append(files, filepath.Base(path))
		for key, object := range read(t, readFile(t, path)) {
			if object.GetKind() == "Secret" {
				strictly(t, object, &corev1.Secret{})
				continue
			}
			for _, problem := range checkers[object.GetKind()].problems(object) {
				t.Errorf("%s: %s: %s", path, key, problem)
			}
			adapter, _, _ := unstructured.NestedString(object.Object, "spec", "adapter")
			fields := []string{"spec", "image"}
			if object.GetKind() == "LiveStashBenchmark" {
				fields = []string{"spec", "target", "template", "spec", "image"}
			}
			image, _, _ := unstructured.NestedString(object.Object, fields...)
			if strings.HasPrefix(image, "ghcr.io/livestash-dev/") && !strings.HasSuffix(image, ":"+chartVersion(t)) {
				t.Errorf("%s: %s is not of this version", path, image)
			}
			if object.GetKind() == "LiveStashCluster" {
				adapters = append(adapters, adapter)
				// The operator generates that one for the cookie, and never takes over what is not its own.
				if generated := "name: " + object.GetName() + "-secrets\n"; strings.Contains(string(readFile(t, path)), generated) {
					t.Errorf("%s: %s needs a Secret %s-secrets of the user's, which is the name of the one that the operator makes", path, key, object.GetName())
				}
			}
			names = append(names, key)
		}
	}
	slices.Sort(adapters)
	if diff := cmp.Diff([]string{"BrowserMemory", "ETS", "Mnesia", "None", "Redis"}, slices.Compact(adapters)); diff != "" {
		t.Errorf("adapters (-want +got):\n%s", diff)
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("two samples have one name: %q", names)
	}

	var list struct{ Resources []string }
	if err := yaml.Unmarshal(readFile(t, root+"/config/samples/kustomization.yaml"), &list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files, list.Resources); diff != "" {
		t.Errorf("kustomization.yaml (-files +listed):\n%s", diff)
	}
}
