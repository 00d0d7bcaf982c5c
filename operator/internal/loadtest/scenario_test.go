package loadtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Every scenario that the API takes has its type, and its script, which k6's folder has.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("../../api/v1alpha1/livestashbenchmark_types.go")
	if err != nil {
		t.Fatal(err)
	}
	enum := regexp.MustCompile(`Enum=([A-Za-z;]+)\ntype BenchmarkScenario`).FindSubmatch(text)
	if enum == nil {
		t.Fatal("the scenarios are not where they were")
	}
	for name := range strings.SplitSeq(string(enum[1]), ";") {
		scenario := ScenarioOf(v1alpha1.BenchmarkScenario(name))
		if scenario == nil {
			t.Errorf("there is no scenario %s", name)
			continue
		}
		if file := scenario.Script(); file != "" {
			if _, err := os.Stat(filepath.Join("../../..", file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if name != string(v1alpha1.ScenarioScript) {
			t.Errorf("%s has no script", name)
		}
	}
}
