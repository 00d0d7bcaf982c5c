package inputs

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// schemas are those of the kinds' specs.
func schemas(t *testing.T) map[string]*properties {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "config", "crd", "bases", "*.yaml"))
	suite.Must(t, err)
	all := map[string]*properties{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		suite.Must(t, err)
		kind := &apiextensionsv1.CustomResourceDefinition{}
		suite.Must(t, yaml.Unmarshal(text, kind))
		spec := kind.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		if template, has := spec.Properties["podTemplate"]; has {
			open := template.Properties["spec"]
			withPods(t, &open)
			template.Properties["spec"] = open
		}
		all[kind.Spec.Names.Kind] = &spec
	}
	return all
}

// withPods adds to the schema of spec.podTemplate.spec what the API server knows of pods, which the kind's own leaves open.
func withPods(t *testing.T, patch *properties) {
	t.Helper()
	paths, err := known.Paths()
	suite.Must(t, err)
	text, err := paths["apis/apps/v1"].Schema("application/json")
	suite.Must(t, err)
	var document struct {
		Components struct {
			Schemas map[string]properties `json:"schemas"`
		} `json:"components"`
	}
	suite.Must(t, json.Unmarshal(text, &document))
	pod := resolved(document.Components.Schemas, document.Components.Schemas["io.k8s.api.core.v1.PodSpec"])
	if len(pod.Properties) == 0 {
		t.Fatal("the API server tells nothing of pods")
	}
	maps.Copy(patch.Properties, pod.Properties)
}

// resolved is a schema with what it refers to in its place.
func resolved(all map[string]properties, schema properties) properties {
	ref := schema.Ref
	if len(schema.AllOf) == 1 {
		ref = schema.AllOf[0].Ref
	}
	if ref != nil {
		name := strings.TrimPrefix(*ref, "#/components/schemas/")
		schema = resolved(all, all[name])
		schema.XIntOrString = strings.HasSuffix(name, ".Quantity") || strings.HasSuffix(name, ".IntOrString")
		return schema
	}
	fields := map[string]properties{}
	for name, field := range schema.Properties {
		fields[name] = resolved(all, field)
	}
	schema.Properties = fields
	if schema.Items != nil {
		items := resolved(all, *schema.Items.Schema)
		schema.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	}
	if more := schema.AdditionalProperties; more != nil && more.Schema != nil {
		values := resolved(all, *more.Schema)
		schema.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &values}
	}
	return schema
}
