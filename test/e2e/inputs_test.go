package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// inputCase is a case of test/inputs, as far as those with pods have fields. Its README says what they mean.
type inputCase struct {
	Name      string           `json:"name"`
	Pods      bool             `json:"pods"`
	Given     []map[string]any `json:"given"`
	Spec      map[string]any   `json:"spec"`
	Within    string           `json:"within"`
	Condition struct {
		Type, Status, Reason string
		Says                 []string
	} `json:"condition"`
	There  []string `json:"there"`
	Mended *struct {
		Spec map[string]any `json:"spec"`
	} `json:"mended"`
}

// The inputs that only pods tell to be wrong. The others are the operator's own tests, on an API server alone.
func TestInputsWithPods(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(repository(), "test", "inputs", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var table struct {
			Cases []inputCase `json:"cases"`
		}
		if err := yaml.Unmarshal(text, &table); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range table.Cases {
			if !c.Pods {
				continue
			}
			number++
			namespace := fmt.Sprintf("inputs-%d", number)
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				c.run(newSpace(t, namespace))
			})
		}
	}
	if number == 0 {
		t.Error("no case has pods")
	}
}

func (c inputCase) run(s space) {
	s.t.Helper()
	for _, object := range c.Given {
		s.must(inJSON(s.t, object), "apply", "-f", "-")
	}
	s.must(shopOf(s.t, c.Spec), "apply", "-f", "-")
	within, err := time.ParseDuration(c.Within)
	if err != nil {
		s.t.Fatal(err)
	}
	want := strings.TrimSpace(c.Condition.Status + " " + c.Condition.Reason)
	s.eventually(within, func() error {
		got := s.condition(c.Condition.Type)
		if !strings.HasPrefix(got, want+" ") {
			return fmt.Errorf("condition %s is %q, want %s", c.Condition.Type, got, want)
		}
		for _, part := range c.Condition.Says {
			if !strings.Contains(got, part) {
				return fmt.Errorf("condition %s does not say %q: %s", c.Condition.Type, part, got)
			}
		}
		return nil
	})
	for _, child := range c.There {
		s.must("", append([]string{"get"}, strings.Fields(child)...)...)
	}
	if c.Mended != nil {
		s.must(shopOf(s.t, c.Mended.Spec), "apply", "-f", "-")
		s.settled()
	}
}

// shopOf is the LiveStashCluster shop with this spec, of the OTP workload unless the spec has an image.
func shopOf(t *testing.T, spec map[string]any) string {
	t.Helper()
	if spec["image"] == nil {
		spec["image"] = workload()
	}
	return inJSON(t, map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster", "metadata": map[string]any{"name": "shop"}, "spec": spec,
	})
}

func inJSON(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
