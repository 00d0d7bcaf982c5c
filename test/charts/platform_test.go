package charts

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const platformChart = root + "/charts/livestash-platform"

// platform is a copy of the platform chart that renders without a network: in the place of each part stands a chart of
// the same name and version with the values in testdata/platform, which makes a ConfigMap of what it is given.
func platform(t *testing.T) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "livestash-platform")
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json"} {
		writeFile(t, filepath.Join(chart, name), readFile(t, platformChart+"/"+name))
	}
	if err := os.CopyFS(filepath.Join(chart, "templates"), os.DirFS(platformChart+"/templates")); err != nil {
		t.Fatal(err)
	}
	for name, version := range platformParts(t) {
		part := filepath.Join(chart, "charts", name)
		writeFile(t, filepath.Join(part, "Chart.yaml"), []byte("apiVersion: v2\nname: "+name+"\nversion: "+version+"\n"))
		writeFile(t, filepath.Join(part, "values.yaml"), readFile(t, partValues(name, version)))
		writeFile(t, filepath.Join(part, "templates/given.yaml"), []byte("kind: ConfigMap\nmetadata: {name: "+name+"}\ndata: {values: {{ .Values | toJson | quote }}}\n"))
	}
	return chart
}

// partValues is the file with a part's own values. The version is in its name, so that with another version somebody has
// to look whether the names are still right.
func partValues(name, version string) string {
	return "testdata/platform/" + name + "-" + version + ".yaml"
}

// platformParts are the versions of the platform chart's parts by their names.
func platformParts(t *testing.T) map[string]string {
	t.Helper()
	var chart struct {
		Dependencies []struct{ Name, Version string }
	}
	if err := yaml.Unmarshal(readFile(t, platformChart+"/Chart.yaml"), &chart); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, part := range chart.Dependencies {
		parts[part.Name] = part.Version
	}
	return parts
}

func TestPlatformParts(t *testing.T) {
	const (
		stack, redis, k6        = "ConfigMap /kube-prometheus-stack", "ConfigMap /redis-operator", "ConfigMap /k6-operator"
		closed                  = "NetworkPolicy livestash-system/livestash-prometheus"
		redisMonitor, k6Monitor = "PodMonitor livestash-system/livestash-redis-operator", "PodMonitor livestash-system/livestash-k6-operator"
	)
	chart := platform(t)
	for text, want := range map[string][]string{
		"": {closed, stack, redis, k6, redisMonitor, k6Monitor},
		"install: {kube-prometheus-stack: false}":                                                                         {redis, k6},
		"install: {kube-prometheus-stack: false}\npodMonitors: {always: true}":                                            {redis, k6, redisMonitor, k6Monitor},
		"install: {redis-operator: false}":                                                                                {closed, stack, k6, k6Monitor},
		"install: {k6-operator: false}":                                                                                   {closed, stack, redis, redisMonitor},
		"prometheusNetworkPolicy: {enabled: false}":                                                                       {stack, redis, k6, redisMonitor, k6Monitor},
		"install: {kube-prometheus-stack: false, redis-operator: false, k6-operator: false}":                              {},
		"install: {kube-prometheus-stack: false, redis-operator: false, k6-operator: false}\npodMonitors: {always: true}": {},
	} {
		slices.Sort(want)
		if diff := cmp.Diff(want, append([]string{}, slices.Sorted(maps.Keys(render(t, chart, text)))...)); diff != "" {
			t.Errorf("%q (-want +rendered):\n%s", text, diff)
		}
	}
}

// TestPlatformValues: what values.yaml sets arrives in the parts, under names that they have.
func TestPlatformValues(t *testing.T) {
	found := render(t, platform(t), "")
	var set map[string]map[string]any
	if err := yaml.Unmarshal(readFile(t, platformChart+"/values.yaml"), &set); err != nil {
		t.Fatal(err)
	}
	for name, version := range platformParts(t) {
		own := leaves(t, readFile(t, partValues(name, version)))
		given := leaves(t, []byte(partGiven(t, found, name)))
		wanted := leaves(t, marshal(t, set[name]))
		if len(wanted) == 0 {
			t.Errorf("%s is given nothing", name)
		}
		if misnamed := misnamed(wanted, own); len(misnamed) > 0 {
			t.Errorf("%s has no values %v", name, misnamed)
		}
		for path, want := range wanted {
			if given[path] != want {
				t.Errorf("%s: %s arrives as %q, want %q", name, path, given[path], want)
			}
			if own[path] == want {
				t.Errorf("%s: %s is %s without us: leave it out", name, path, want)
			}
		}
	}
	if misnamed(map[string]string{"featureGate.X": "true"}, map[string]string{"featureGates": "{}"}) == nil {
		t.Error("a misspelt name is not noticed: this test shows nothing")
	}
}

// TestPlatformPrometheusIsClosed: who reaches it can write to it, so that is its own namespace, runners, and who was named.
func TestPlatformPrometheusIsClosed(t *testing.T) {
	policy := render(t, platform(t), "prometheusNetworkPolicy: {namespaces: [edge]}")["NetworkPolicy livestash-system/livestash-prometheus"]
	want := `
podSelector:
  matchLabels:
    app.kubernetes.io/name: prometheus
policyTypes: [Ingress]
ingress:
- from:
  - podSelector: {}
  - namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: edge
- from:
  - namespaceSelector: {}
    podSelector:
      matchExpressions:
      - {key: livestash.dev/benchmark-test, operator: Exists}
  ports:
  - {port: 9090, protocol: TCP}
`
	var wanted map[string]any
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(marshal(t, wanted)), string(marshal(t, policy.Object["spec"]))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPlatformFits: the values agree with those of the other charts, and with what the parts call things.
func TestPlatformFits(t *testing.T) {
	found := render(t, platform(t), "podMonitors: {labels: {release: mine}}")
	stack := leaves(t, []byte(partGiven(t, found, "kube-prometheus-stack")))
	redis := leaves(t, []byte(partGiven(t, found, "redis-operator")))
	k6 := leaves(t, []byte(partGiven(t, found, "k6-operator")))
	dashboards := leaves(t, readFile(t, observabilityChart+"/values.yaml"))
	operator := leaves(t, readFile(t, operatorChart+"/values.yaml"))

	const sidecar = "grafana.sidecar.dashboards."
	if want := dashboards["dashboards.folderAnnotation"]; stack[sidecar+"folderAnnotation"] != want || stack[sidecar+"annotations."+strings.Trim(want, `"`)] == "" {
		t.Errorf("dashboards name their folder in the annotation %s, which Grafana does not read", want)
	}
	if label := strings.Trim(stack[sidecar+"label"], `"`); dashboards["dashboards.labels."+label] != stack[sidecar+"labelValue"] {
		t.Errorf("Grafana looks for dashboards by the label %s, which ours do not have", label)
	}
	if _, version, _ := strings.Cut(operator["benchmark.starterImage"], ":starter-"); k6["manager.image.tag"] != `"controller-`+version {
		t.Errorf("k6-operator is %s, and benchmarks start runners with %s", k6["manager.image.tag"], operator["benchmark.starterImage"])
	}
	for name, want := range map[string][2]string{
		"redis-operator": {`{"name":` + redis["redisOperator.name"] + `}`, `[{"port":"metrics"}]`},
		"k6-operator":    {`{"app.kubernetes.io/instance":"livestash","app.kubernetes.io/name":"k6-operator"}`, `[{"port":` + k6["service.portName"] + `}]`},
	} {
		object := found["PodMonitor livestash-system/livestash-"+name]
		if object.GetLabels()["release"] != "mine" || object.GetLabels()["app.kubernetes.io/component"] != name {
			t.Errorf("the PodMonitor of %s has the labels %v", name, object.GetLabels())
		}
		spec := object.Object["spec"].(map[string]any)
		got := [2]string{string(marshal(t, spec["selector"].(map[string]any)["matchLabels"])), string(marshal(t, spec["podMetricsEndpoints"]))}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the PodMonitor of %s (-want +rendered):\n%s", name, diff)
		}
	}
}

func TestPlatformRefusals(t *testing.T) {
	chart := platform(t)
	for text, want := range map[string]string{
		"instal: {redis-operator: false}":      "'instal' not allowed",
		"install: {redis: false}":              "'redis' not allowed",
		"install: {redis-operator: 'no'}":      "want boolean",
		"redis_operator: {featureGates: {}}":   "'redis_operator' not allowed",
		"podMonitors: {labels: {release: 1}}":  "podMonitors/labels/release",
		"podMonitors: {enabled: true}":         "'enabled' not allowed",
		"install: {k6-operator: null}\nfoo: 1": "'foo' not allowed",
	} {
		if _, err := template(t, chart, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := helm(t, "template", "platform", chart, "--namespace", "default"); err == nil || !strings.Contains(err.Error(), "--create-namespace") {
		t.Errorf("in the namespace default: %v", err)
	}
	if _, err := helm(t, "template", "platform", chart, "--namespace", "default", "--set", "install.k6-operator=false"); err != nil {
		t.Errorf("in the namespace default, without k6-operator: %v", err)
	}
}

func TestPlatformLint(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", "--namespace", "monitoring", platform(t)); err != nil {
		t.Error(err, out)
	}
}

func TestPlatformReadme(t *testing.T) {
	for _, value := range valuesOf(t, readFile(t, platformChart+"/values.yaml")) {
		if !strings.HasSuffix(value.meaning, ".") {
			t.Errorf("%s is explained by %q, which is not a sentence", value.name, value.meaning)
		}
	}
	compareReadme(t, platformChart)
}

// partGiven are the values that a part was given, as JSON.
func partGiven(t *testing.T, found objects, name string) string {
	t.Helper()
	object := found["ConfigMap /"+name]
	if object == nil {
		t.Fatalf("%s is not installed", name)
	}
	values, _, err := unstructured.NestedString(object.Object, "data", "values")
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// leaves are the values in a document, as JSON, by their names. An empty mapping is one too.
func leaves(t *testing.T, document []byte) map[string]string {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal(document, &content); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	var walk func(prefix string, node map[string]any)
	walk = func(prefix string, node map[string]any) {
		for name, value := range node {
			if group, ok := value.(map[string]any); ok && len(group) > 0 {
				walk(prefix+name+".", group)
				continue
			}
			found[prefix+name] = string(marshal(t, value))
		}
	}
	walk("", content)
	return found
}

// misnamed are the values that are not among the known ones, nor in a mapping there that is empty and so is free.
func misnamed(set, known map[string]string) []string {
	var wrong []string
	for path := range set {
		parent := path
		if cut := strings.LastIndex(path, "."); cut > 0 {
			parent = path[:cut]
		}
		if _, ok := known[path]; !ok && known[parent] != "{}" {
			wrong = append(wrong, path)
		}
	}
	return wrong
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestMonitoringHowTo: Prometheus takes the configuration in docs/how-to/monitoring.md.
func TestMonitoringHowTo(t *testing.T) {
	_, rest, _ := strings.Cut(string(readFile(t, root+"/docs/how-to/monitoring.md")), "```yaml\nscrape_configs:\n")
	jobs, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("it has no configuration")
	}
	if out, err := promtool(t, "check", "config", "--syntax-only", values(t, "scrape_configs:\n"+jobs)); err != nil {
		t.Error(err, out)
	}
}
