package charts

import (
	"context"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// definition checks custom resources as the API server does, with its own code: defaults, unknown fields, schema, CEL.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newDefinition(t *testing.T, kind string) *definition {
	t.Helper()
	crd := typed[apiextensionsv1.CustomResourceDefinition](t, read(t, readFile(t, crdFile(kind))), crdKey(kind))
	internal := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return &definition{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// problems are the sentences that the API server would refuse the object with.
func (d *definition) problems(object *unstructured.Unstructured) []string {
	// As the API server reads it: whole numbers are no floats.
	text, err := object.MarshalJSON()
	if err != nil {
		return []string{err.Error()}
	}
	decoded := &unstructured.Unstructured{}
	if err := decoded.UnmarshalJSON(text); err != nil {
		return []string{err.Error()}
	}
	content := decoded.Object
	var found []string
	unknown := pruning.PruneWithOptions(content, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		found = append(found, "unknown field "+path)
	}
	defaulting.Default(content, d.structural)
	for _, problem := range validation.ValidateCustomResource(nil, content, d.schema) {
		found = append(found, problem.Error())
	}
	problems, _ := d.rules.Validate(context.Background(), field.NewPath(""), d.structural, content, nil, celconfig.RuntimeCELCostBudget)
	for _, problem := range problems {
		found = append(found, problem.Error())
	}
	return found
}

// TestDefinitionRefuses shows that the check can fail in each of its ways.
func TestDefinitionRefuses(t *testing.T) {
	checker := newDefinition(t, "LiveStashCluster")
	for name, spec := range map[string]map[string]any{
		"unknown field": {"image": "a", "adapter": "ETS", "replica": int64(3)},
		"schema":        {"image": "a", "adapter": "Mongo"},
		"CEL":           {"image": "a", "adapter": "ETS", "redis": map[string]any{"external": map[string]any{"urlSecretRef": map[string]any{"name": "a", "key": "b"}}}},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster", "metadata": map[string]any{"name": "shop"}, "spec": spec,
		}}
		if len(checker.problems(object)) == 0 {
			t.Errorf("%s: the bad object is accepted", name)
		}
	}
}
