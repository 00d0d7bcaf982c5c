package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kustomize renders a kustomization of a user's with what the function gives for the path of config/.
func kustomize(t *testing.T, text func(config string) string) objects {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(folder, here+"/config")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, folder+"/kustomization.yaml", []byte(text(config)))
	program := here + "/bin/kubectl"
	if _, err := os.Stat(program); err != nil {
		program = "kubectl"
	}
	command := exec.Command(program, "kustomize", folder)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v (`make test-charts` builds kubectl)", err)
	}
	return read(t, out)
}

// TestMonitoringComponent: it adds what the charts make with their values for monitoring, and nothing else.
func TestMonitoringComponent(t *testing.T) {
	found := kustomize(t, func(config string) string {
		return fmt.Sprintf("resources: [%s/default]\ncomponents: [%s/components/monitoring]\n", config, config)
	})
	chart := render(t, root, "operator: {metrics: {serviceMonitor: {enabled: true}}}\n"+
		"observability: {dashboards: {enabled: false}, prometheusRules: {enabled: true}}")
	without := read(t, readFile(t, root+"/manifests/install.yaml"))
	for _, key := range []string{"ServiceMonitor livestash-system/livestash-operator", rulesKey} {
		if found[key] == nil {
			t.Fatalf("there is no %s", key)
		}
		if diff := cmp.Diff(withoutInstaller(chart[key]), withoutInstaller(found[key])); diff != "" {
			t.Errorf("%s (-chart +component):\n%s", key, diff)
		}
		delete(found, key)
	}
	if diff := cmp.Diff(without, found); diff != "" {
		t.Errorf("beside them (-install.yaml +kustomization):\n%s", diff)
	}
}

// TestReadmeKustomization: the kustomization in the README, with this checkout for the published one, gives pods the agent from the operator's
// own image.
func TestReadmeKustomization(t *testing.T) {
	published := regexp.MustCompile(`https://github\.com/livestash-dev/livestash//config(/[a-z/]+)\?ref=v` + regexp.QuoteMeta(chartVersion(t)))
	var shown string
	for _, found := range block.FindAllStringSubmatch(string(readFile(t, operatorChart+"/README.md")), -1) {
		if strings.Contains(found[2], "kind: Kustomization") {
			shown = found[2]
		}
	}
	found := kustomize(t, func(config string) string { return published.ReplaceAllString(shown, config+"$1") })
	want := "registry.example/you/livestash-operator:" + chartVersion(t)
	images := imagesOf(t, found)
	if images[""] != want || images["--agent-image"] != want {
		t.Errorf("the operator's image is %s, the agent's %s", images[""], images["--agent-image"])
	}
	if found[rulesKey] == nil {
		t.Error("there are no alerts")
	}
}
