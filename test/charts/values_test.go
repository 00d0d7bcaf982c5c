package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// value is one line of the table of values.
type value struct{ name, fallback, meaning string }

// valuesOf reads a values.yaml. A mapping is a group when something in it has a comment, else it is a value.
func valuesOf(t *testing.T, content []byte) []value {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	var found []value
	var walk func(prefix string, node *yaml.Node)
	walk = func(prefix string, node *yaml.Node) {
		for i := 0; i < len(node.Content); i += 2 {
			key, content := node.Content[i], node.Content[i+1]
			name := prefix + key.Value
			if content.Kind == yaml.MappingNode && commented(content) {
				walk(name+".", content)
				continue
			}
			// A comment that an empty line parts from the value is about the file.
			comment := key.HeadComment[strings.LastIndex(key.HeadComment, "\n\n")+1:]
			comment = strings.ReplaceAll(strings.TrimSpace(comment), "\n# ", " ")
			found = append(found, value{name, oneLine(t, content), strings.TrimPrefix(comment, "# ")})
		}
	}
	walk("", document.Content[0])
	return found
}

func commented(node *yaml.Node) bool {
	for i, child := range node.Content {
		if child.HeadComment != "" || i%2 == 1 && child.Kind == yaml.MappingNode && commented(child) {
			return true
		}
	}
	return false
}

func oneLine(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var content any
	if err := node.Decode(&content); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestValuesHaveMeanings: every value is explained, in full sentences.
func TestValuesHaveMeanings(t *testing.T) {
	for _, chart := range append([]string{root}, parts...) {
		for _, value := range valuesOf(t, readFile(t, chart+"/values.yaml")) {
			if !strings.HasSuffix(value.meaning, ".") {
				t.Errorf("%s/values.yaml: %s is explained by %q, which is not a sentence", chart, value.name, value.meaning)
			}
		}
	}
}

// TestReadme: the table in a chart's README is made from values.yaml.
func TestReadme(t *testing.T) {
	for _, chart := range parts {
		compareReadme(t, chart)
	}
}

func compareReadme(t *testing.T, chart string) {
	t.Helper()
	const begin, end = "<!-- values: written by `go test ./charts -update` in test/ from values.yaml -->\n", "<!-- end of values -->\n"
	path := chart + "/README.md"
	readme := string(readFile(t, path))
	before, rest, found := strings.Cut(readme, begin)
	_, after, foundEnd := strings.Cut(rest, end)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table", path)
	}
	var table bytes.Buffer
	table.WriteString("| Value | Meaning | Default |\n|---|---|---|\n")
	for _, value := range valuesOf(t, readFile(t, chart+"/values.yaml")) {
		fmt.Fprintf(&table, "| `%s` | %s | `%s` |\n", value.name, strings.ReplaceAll(value.meaning, "|", "\\|"), value.fallback)
	}
	compareGolden(t, path, before+begin+table.String()+end+after)
}

// TestSchemaIsComplete: a schema knows the values of values.yaml and no others, and is strict about every group.
func TestSchemaIsComplete(t *testing.T) {
	for _, chart := range parts {
		t.Run(filepath.Base(chart), func(t *testing.T) { compareSchema(t, chart) })
	}
}

func compareSchema(t *testing.T, chart string) {
	t.Helper()
	schema := map[string]any{}
	if err := json.Unmarshal(readFile(t, chart+"/values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	// What is global may also be another chart's.
	properties := schema["properties"].(map[string]any)
	if global := properties["global"].(map[string]any); global["properties"] == nil {
		delete(properties, "global")
	} else {
		global["additionalProperties"] = false
	}
	delete(properties, "enabled") // the parent chart's

	groups := map[string][]string{}
	for _, value := range valuesOf(t, readFile(t, chart+"/values.yaml")) {
		path := strings.Split(value.name, ".")
		for depth, name := range path {
			group := strings.Join(path[:depth], ".")
			if !slices.Contains(groups[group], name) {
				groups[group] = append(groups[group], name)
			}
		}
	}
	for group, names := range groups {
		node := schema
		for name := range strings.SplitSeq(group, ".") {
			if name != "" {
				node = node["properties"].(map[string]any)[name].(map[string]any)
			}
		}
		if node["additionalProperties"] != false {
			t.Errorf("the schema lets unknown values pass in the group %q", group)
		}
		slices.Sort(names)
		if diff := cmp.Diff(names, slices.Sorted(maps.Keys(node["properties"].(map[string]any)))); diff != "" {
			t.Errorf("group %q (-values.yaml +schema):\n%s", group, diff)
		}
	}
}

// TestRefusals: a bad value is refused with a sentence that names it.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		values string
		want   []string
	}{
		{"replcas: 2", []string{"replcas", "not allowed"}},
		{"nameOverride: Stash", []string{"nameOverride"}},
		{"commonAnnotations: {team: 1}", []string{"commonAnnotations/team", "want string"}},
		{"strategy: {type: Restart}", []string{"strategy/type", "Recreate"}},
		{"dnsPolicy: Cluster", []string{"dnsPolicy", "ClusterFirst"}},
		{"dnsConfig: {nameserver: [1.1.1.1]}", []string{"dnsConfig", "nameserver"}},
		{"extraVolumes: [{emptyDir: {}}]", []string{"extraVolumes/0", "name"}},
		{"extraVolumeMounts: [{name: ca}]", []string{"extraVolumeMounts/0", "mountPath"}},
		{"extraObjects: {kind: ConfigMap}", []string{"extraObjects", "want array"}},
		{"metrics: {serviceMonitor: {scrapeTimeout: 10 s}}", []string{"metrics/serviceMonitor/scrapeTimeout"}},
		{"metrics: {serviceMonitor: {relabelings: [drop]}}", []string{"metrics/serviceMonitor/relabelings/0", "want object"}},
		{"replicaCount: -1", []string{"replicaCount", "minimum"}},
		{"replicaCount: 11", []string{"replicaCount", "maximum"}},
		{"replicaCount: two", []string{"replicaCount", "want integer"}},
		{"upgrade:\n  fleets: Now\n  atOnce: 0", []string{"fleets", "atOnce", "minimum"}},
		{"allowPrivilegedPodTemplates: sometimes", []string{"allowPrivilegedPodTemplates", "boolean"}},
		{"replicaCount: null\nconcurrency: 0", []string{"concurrency", "minimum"}},
		{"image: {pullPolicy: always}", []string{"image/pullPolicy", "IfNotPresent"}},
		{"image: {repository: ''}", []string{"image/repository"}},
		{"image: {tag: 'v 1'}", []string{"image/tag"}},
		{"image: {digest: abc}", []string{"image/digest", "sha256"}},
		{"image: {name: x}", []string{"image", "name"}},
		{"imagePullSecrets: [registry]", []string{"imagePullSecrets/0", "want object"}},
		{"watchNamespaces: shop", []string{"watchNamespaces", "want array"}},
		{"watchNamespaces: [Shop]", []string{"watchNamespaces/0"}},
		{"agentReaders: monitoring", []string{"agentReaders", "want array"}},
		{"agentReaders: ['mon*']", []string{"agentReaders/0"}},
		{"watchNamespaces: [shop, shop]", []string{"watchNamespaces"}},
		{"clusterDomain: cluster.local.", []string{"clusterDomain"}},
		{"redis: {image: ''}", []string{"redis/image"}},
		{"redis: {exporterImage: 'redis_exporter v1'}", []string{"redis/exporterImage"}},
		{"benchmark: {image: 'livestash-k6 v1'}", []string{"benchmark/image"}},
		{"benchmark: {starterImage: ''}", []string{"benchmark/starterImage"}},
		{"redis: {tag: 9.1.4}", []string{"redis", "tag"}},
		{"logging: {level: verbose}", []string{"logging/level"}},
		{"logging: {format: xml}", []string{"logging/format", "console"}},
		{"extraArgs: [zap-log-level=debug]", []string{"extraArgs/0"}},
		{"extraEnv: [{value: x}]", []string{"extraEnv/0", "name"}},
		{"crds: {install: true}", []string{"crds", "install"}},
		{"crds: {keep: 'yes'}", []string{"crds/keep", "want boolean"}},
		{"serviceAccount: {create: false}", []string{"serviceAccount/name"}},
		{"serviceAccount: {annotations: {a: 1}}", []string{"serviceAccount/annotations/a", "want string"}},
		{"podDisruptionBudget: {maxUnavailable: half}", []string{"podDisruptionBudget/maxUnavailable"}},
		{"resources: {request: {}}", []string{"resources", "request"}},
		{"resources: {limits: {memory: 1 GB}}", []string{"resources/limits/memory"}},
		{"nodeSelector: {gpu: true}", []string{"nodeSelector/gpu", "want string"}},
		{"affinity: {antiAffinity: {}}", []string{"affinity", "antiAffinity"}},
		{"terminationGracePeriodSeconds: 10s", []string{"terminationGracePeriodSeconds", "want integer"}},
		{"fullnameOverride: Stash", []string{"fullnameOverride"}},
	} {
		t.Run(test.values, func(t *testing.T) {
			_, err := template(t, operatorChart, test.values)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
		t.Run("root/"+test.values, func(t *testing.T) {
			nested := "operator:\n  " + strings.ReplaceAll(test.values, "\n", "\n  ")
			if _, err := template(t, root, nested); err == nil {
				t.Fatal("accepted by the root chart")
			}
		})
	}
}

func TestRootRefusals(t *testing.T) {
	for _, text := range []string{
		"replicaCount: 2", "operator: true", "livestash-operator: {replicaCount: 2}",
		"global: {imageRegistry: 'https://registry.example'}", "global: {imagePullSecrets: registry}", "global: {imagePullSecrets: [{key: x}]}",
	} {
		if _, err := template(t, root, text); err == nil {
			t.Errorf("%q is accepted by the root chart", text)
		}
	}
}

// TestDefaultsPassSchema: writing down a default changes nothing.
func TestDefaultsPassSchema(t *testing.T) {
	for _, chart := range parts {
		without, err := template(t, chart, "")
		if err != nil {
			t.Fatal(err)
		}
		with, err := template(t, chart, string(readFile(t, chart+"/values.yaml")))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(without, with); diff != "" {
			t.Error(diff)
		}
	}
}
