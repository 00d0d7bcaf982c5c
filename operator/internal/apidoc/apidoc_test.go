package apidoc

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// The pages in the repository are those that `make generate` writes.
func TestPages(t *testing.T) {
	for name, kind := range map[string]any{"livestashcluster": v1alpha1.LiveStashCluster{}, "livestashbenchmark": v1alpha1.LiveStashBenchmark{}} {
		page, err := Markdown(definition(t, name), reflect.TypeOf(kind))
		if err != nil {
			t.Fatal(err)
		}
		rendertest.Golden(t, "../../../../docs/reference/"+name+".md", []byte(page))
	}
}

// lines are a type of which the definition below tells more.
type lines struct {
	Spec   linesSpec `json:"spec"`
	Status struct{}  `json:"status"`
}

type linesSpec struct {
	lineOptions `json:",inline"`
	Lines       []line                 `json:"lines,omitempty"`
	Wait        *metav1.Duration       `json:"wait,omitempty"`
	Probe       *corev1.Probe          `json:"probe,omitempty"`
	Labels      map[string]string      `json:"labels,omitempty"`
	Size        *resource.Quantity     `json:"size,omitempty"`
	internal    map[string]lineOptions //nolint:unused // it has no name in JSON
}

type lineOptions struct {
	Colour string `json:"colour"`
}

type line struct {
	Width int `json:"width,omitempty"`
}

const linesDefinition = `
metadata: {name: lines.example.com}
spec:
  names: {kind: Lines, singular: lines, shortNames: [ln]}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          status: {type: object}
          spec:
            type: object
            description: "spec is <what> is *drawn*, in ` + "`a<b`" + `."
            required: [colour]
            properties:
              colour: {type: string, enum: [Red, Blue], description: "colour is one | of two. It is seen."}
              lines:
                type: array
                maxItems: 3
                items:
                  type: object
                  x-kubernetes-validations: [{rule: "true", message: "a line must have a width"}]
                  properties: {width: {type: integer, minimum: 1, maximum: 4, default: 2}}
              wait: {type: string, maxLength: 32, default: 5s}
              probe: {type: object, default: {}, properties: {periodSeconds: {type: integer}}}
              labels: {type: object, additionalProperties: {type: string}}
              size: {anyOf: [{type: integer}, {type: string}]}
`

const linesPage = `# The fields of a Lines

What each field means, its default, and what the API server refuses. The address of a field is its path, for example
` + "`lines.md#spec.colour`. On a cluster: `kubectl explain ln.spec`. Made by `make generate`" + ` from
[the types](../../operator/api/v1alpha1).

| field | |
|---|---|
| [` + "`spec.colour`" + `](#spec.colour) | colour is one \| of two |
| [` + "`spec.lines`" + `](#spec.lines) |  |
| [` + "`spec.wait`" + `](#spec.wait) |  |
| [` + "`spec.probe`" + `](#spec.probe) |  |
| [` + "`spec.labels`" + `](#spec.labels) |  |
| [` + "`spec.size`" + `](#spec.size) |  |

<a id="spec"></a>

## ` + "`spec`" + `

object

spec is &lt;what> is \*drawn\*, in ` + "`a<b`" + `.
`

// A page has the fields of our types, also of embedded and repeated ones, and ends at those of Kubernetes.
func TestMarkdown(t *testing.T) {
	var d apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(linesDefinition), &d); err != nil {
		t.Fatal(err)
	}
	page, err := Markdown(&d, reflect.TypeFor[lines]())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(page, linesPage) {
		t.Errorf("the page does not begin as it should:\n%s", page)
	}
	for _, part := range []string{
		"### `spec.colour`\n\n`Red`, `Blue` · required\n\ncolour is one | of two. It is seen.\n",
		"### `spec.lines`\n\nlist of: object · at most 3 items\n\nRefused with:\n\n- a line must have a width\n",
		"<a id=\"spec.lines.width\"></a>\n\n#### `spec.lines[].width`\n\ninteger · default `2` · from 1 to 4\n",
		"### `spec.wait`\n\nduration, such as `90s` or `5m` · default `5s`\n",
		"### `spec.probe`\n\n[Probe](" + kubernetesReference + "probe-v1-core)\n",
		"### `spec.labels`\n\nmap, to: string\n",
		"### `spec.size`\n\nquantity, such as `500m` or `256Mi`\n",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page does not have\n%s", part)
		}
	}
	if strings.Contains(page, "periodSeconds") || strings.Contains(page, "internal") {
		t.Errorf("the page has fields of Kubernetes, or without a name:\n%s", page)
	}
	delete(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "wait")
	if _, err := Markdown(&d, reflect.TypeFor[lines]()); err == nil || !strings.Contains(err.Error(), "spec.wait") {
		t.Errorf("a field that the definition does not have: %v", err)
	}
}

func definition(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "livestash.dev_"+name+"s.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var d apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}
