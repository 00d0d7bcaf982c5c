package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestManifestsAgreeWithChart: manifests/install.yaml, which is rendered from config/, and the root chart with its
// defaults install the same objects. They differ in the Namespace, in the labels and annotations that say who
// installed, and in the pods of `helm test`. The dashboards are the chart's alone.
func TestManifestsAgreeWithChart(t *testing.T) {
	manifests := read(t, readFile(t, root+"/manifests/install.yaml"))
	chart := render(t, root, "observability: {enabled: false}")

	namespace := manifests["Namespace /livestash-system"]
	if namespace == nil || namespace.GetLabels()["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("install.yaml does not make the namespace livestash-system with Pod Security restricted")
	}
	delete(manifests, "Namespace /livestash-system")
	maps.DeleteFunc(chart, func(_ string, object *unstructured.Unstructured) bool {
		return object.GetAnnotations()["helm.sh/hook"] != ""
	})

	if diff := cmp.Diff(slices.Sorted(maps.Keys(manifests)), slices.Sorted(maps.Keys(chart))); diff != "" {
		t.Fatalf("objects (-install.yaml +chart):\n%s", diff)
	}
	for key := range manifests {
		if diff := cmp.Diff(withoutInstaller(manifests[key]), withoutInstaller(chart[key])); diff != "" {
			t.Errorf("%s (-install.yaml +chart):\n%s", key, diff)
		}
	}
}

// withoutInstaller drops what says who installed an object. Comparing the rest needs no list of important fields.
func withoutInstaller(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	labels := object.GetLabels()
	for _, label := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
		delete(labels, label)
	}
	object.SetLabels(labels)
	annotations := object.GetAnnotations()
	delete(annotations, keepAnnotation)
	object.SetAnnotations(annotations)
	return object.Object
}

// chartVersion is the version of the charts, which must all have it: they are published together.
func chartVersion(t *testing.T) string {
	t.Helper()
	var versions []string
	for _, chart := range append([]string{root}, parts...) {
		var found struct {
			Version      string
			AppVersion   string
			Dependencies []struct{ Version string }
		}
		if err := yaml.Unmarshal(readFile(t, chart+"/Chart.yaml"), &found); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, found.Version, found.AppVersion)
		for _, dependency := range found.Dependencies {
			versions = append(versions, dependency.Version)
		}
	}
	if len(slices.Compact(slices.Clone(versions))) != 1 {
		t.Fatalf("the charts' versions differ: %q", versions)
	}
	return versions[0]
}

// The agent is part of the operator's image, so it has the same version.
func TestAgentHasTheChartsVersion(t *testing.T) {
	application := string(readFile(t, root+"/agent/src/livestash_agent.app.src"))
	if want := `{vsn, "` + chartVersion(t) + `"}`; !strings.Contains(application, want) {
		t.Errorf("agent/src/livestash_agent.app.src does not say %s", want)
	}
}

func TestPartsDisabled(t *testing.T) {
	if found := render(t, root, "operator: {enabled: false}\nobservability: {enabled: false}"); len(found) != 0 {
		t.Errorf("with both parts disabled %d objects are still installed", len(found))
	}
}

// TestNotes: the notes name the release, and the LiveStashCluster in them is valid.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		name, chart, values string
		want                []string
	}{
		{"root", root, "", []string{"all namespaces", "helm test -n there web", "deployment/web-livestash-operator", "image: ghcr.io/livestash-dev/livestash-workload-otp:"}},
		{"part", operatorChart, "", []string{"all namespaces", "helm test -n there web"}},
		{"mirror", operatorChart, "image: {repository: mirror.example/a/livestash-operator}", []string{"image: mirror.example/a/livestash-workload-otp:"}},
		{"namespaces", operatorChart, "watchNamespaces: [shop, cart]", []string{"namespaces shop, cart", "kubectl apply -n shop"}},
		{"not kept", operatorChart, "crds: {keep: false}", []string{"deletes every LiveStashCluster"}},
		{"disabled", root, "operator: {enabled: false}\nobservability: {enabled: false}", []string{"nothing is installed"}},
		{"dashboards", root, "", []string{"Dashboards: LiveStash in Grafana", "grafana_dashboard=1"}},
		{"platform elsewhere", platform(t), "install: {kube-prometheus-stack: true}", []string{"'operator.agentReaders={there}'"}},
		{"alerts", observabilityChart, "prometheusRules: {enabled: true}", []string{"PrometheusRule web-livestash", "prometheusRules.labels.release"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := helm(t, "install", "web", test.chart, "--namespace", "there", "--dry-run=client", "--values", values(t, test.values))
			if err != nil {
				t.Fatal(err)
			}
			_, notes, found := strings.Cut(out, "\nNOTES:\n")
			if !found {
				t.Fatal("no notes")
			}
			for _, want := range test.want {
				if !strings.Contains(notes, want) {
					t.Errorf("%q is not in the notes:\n%s", want, notes)
				}
			}
			_, sample, found := strings.Cut(notes, "<<'END'\n")
			if !found {
				return
			}
			sample, _, _ = strings.Cut(sample, "\nEND\n")
			for key, object := range read(t, []byte(sample)) {
				for _, problem := range newDefinition(t, object.GetKind()).problems(object) {
					t.Errorf("%s: %s", key, problem)
				}
			}
		})
	}
}
