// Package apidoc writes the pages that list every field of a kind: what it means, its default, its limits.
package apidoc

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// kubernetesReference has the types of Kubernetes' own that fields are of.
const kubernetesReference = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#"

// maxLevel is the deepest heading of Markdown.
const maxLevel = 6

// Markdown is the page of a kind, from its definition and from its Go type. The definition has defaults and limits; only the Go type
// tells where our own fields end and those of Kubernetes' types begin, which are not listed.
func Markdown(definition *apiextensionsv1.CustomResourceDefinition, kind reflect.Type) (string, error) {
	if len(definition.Spec.Versions) != 1 {
		return "", fmt.Errorf("%s has %d versions instead of one", definition.Name, len(definition.Spec.Versions))
	}
	p := page{ours: kind.PkgPath()}
	schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	p.head(definition.Spec.Names, schema.Properties["spec"], deref(fieldOf(kind, "spec")))
	for _, top := range []string{"spec", "status"} {
		if err := p.field(top, top, 2, schema, fieldOf(kind, top)); err != nil {
			return "", err
		}
	}
	return p.text.String(), nil
}

type page struct {
	text strings.Builder
	// ours is the package whose types are walked into.
	ours string
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

func (p *page) head(names apiextensionsv1.CustomResourceDefinitionNames, spec apiextensionsv1.JSONSchemaProps, goType reflect.Type) {
	short := names.Singular
	if len(names.ShortNames) > 0 {
		short = names.ShortNames[0]
	}
	p.printf("# The fields of a %s\n\n", names.Kind)
	p.printf("What each field means, its default, and what the API server refuses. The address of a field is its path, for example\n"+
		"`%s.md#spec.%s`. On a cluster: `kubectl explain %s.spec`. Made by `make generate` from\n[the types](../../operator/api/v1alpha1).\n",
		names.Singular, inOrder(goType)[0], short)
	p.printf("\n| field | |\n|---|---|\n")
	for _, name := range inOrder(goType) {
		first, _, _ := strings.Cut(strings.ReplaceAll(spec.Properties[name].Description, "\n", " "), ". ")
		p.printf("| [`spec.%s`](#spec.%s) | %s |\n", name, name, strings.ReplaceAll(escaped(strings.TrimSuffix(first, ".")), "|", `\|`))
	}
}

// field writes a field of the parent, and what is below it.
func (p *page) field(full, name string, level int, parent *apiextensionsv1.JSONSchemaProps, goType reflect.Type) error {
	schema, has := parent.Properties[name]
	if !has || goType == nil {
		return fmt.Errorf("%s is not in both the definition and the Go type", full)
	}
	anchor := strings.NewReplacer("[]", "", "{}", "").Replace(full)
	p.printf("\n<a id=\"%s\"></a>\n\n%s `%s`\n", anchor, strings.Repeat("#", min(level, maxLevel)), full)
	p.printf("\n%s\n", strings.Join(p.facts(name, parent, &schema, goType), " · "))
	if text := escaped(schema.Description); text != "" {
		p.printf("\n%s\n", text)
	}
	p.refusals(&schema)

	inner, innerType, suffix := &schema, deref(goType), ""
	for {
		switch {
		case innerType.Kind() == reflect.Slice && inner.Items != nil:
			inner, innerType, suffix = inner.Items.Schema, deref(innerType.Elem()), suffix+"[]"
		case innerType.Kind() == reflect.Map && inner.AdditionalProperties != nil && inner.AdditionalProperties.Schema != nil:
			inner, innerType, suffix = inner.AdditionalProperties.Schema, deref(innerType.Elem()), suffix+"{}"
		default:
			if suffix != "" {
				p.refusals(inner)
			}
			return p.below(full+suffix, level+1, inner, innerType)
		}
	}
}

// below writes the fields of a type of ours. One that the API server does not look into has none.
func (p *page) below(full string, level int, schema *apiextensionsv1.JSONSchemaProps, goType reflect.Type) error {
	if goType.Kind() != reflect.Struct || goType.PkgPath() != p.ours || len(schema.Properties) == 0 {
		return nil
	}
	for _, name := range inOrder(goType) {
		if err := p.field(full+"."+name, name, level, schema, fieldOf(goType, name)); err != nil {
			return err
		}
	}
	return nil
}

// facts are the type, whether it must be given, the default and the limits, in a few words each.
func (p *page) facts(name string, parent, schema *apiextensionsv1.JSONSchemaProps, goType reflect.Type) []string {
	facts := []string{p.typeName(schema, deref(goType))}
	if slices.Contains(parent.Required, name) {
		facts = append(facts, "required")
	}
	if schema.Default != nil && string(schema.Default.Raw) != "{}" { // that is the defaults of the fields below
		facts = append(facts, "default `"+strings.Trim(string(schema.Default.Raw), `"`)+"`")
	}
	if limits := rangeOf(schema.Minimum, schema.Maximum, ""); limits != "" {
		facts = append(facts, limits)
	}
	if schema.Type == "string" && !isTime(goType) {
		if limits := rangeOf(schema.MinLength, schema.MaxLength, " characters"); limits != "" {
			facts = append(facts, limits)
		}
	}
	if limits := rangeOf(schema.MinItems, schema.MaxItems, " items"); limits != "" {
		facts = append(facts, limits)
	}
	if limits := rangeOf(schema.MinProperties, schema.MaxProperties, " entries"); limits != "" {
		facts = append(facts, limits)
	}
	return facts
}

// typeName is what a value looks like.
func (p *page) typeName(schema *apiextensionsv1.JSONSchemaProps, goType reflect.Type) string {
	switch {
	case goType.Kind() == reflect.Slice && schema.Items != nil:
		return "list of: " + p.typeName(schema.Items.Schema, deref(goType.Elem()))
	case goType.Kind() == reflect.Map && schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map, to: " + p.typeName(schema.AdditionalProperties.Schema, deref(goType.Elem()))
	case len(schema.Enum) > 0:
		var values []string
		for _, value := range schema.Enum {
			values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
		}
		return strings.Join(values, ", ")
	case goType.Kind() != reflect.String && goType.PkgPath() != "" && goType.PkgPath() != p.ours:
		return foreign(goType)
	}
	return schema.Type
}

// foreign is a type that is not ours.
func foreign(goType reflect.Type) string {
	switch name := goType.Name(); name {
	case "Duration":
		return "duration, such as `90s` or `5m`"
	case "Quantity":
		return "quantity, such as `500m` or `256Mi`"
	case "IntOrString":
		return "number or percentage"
	case "Time", "MicroTime":
		return "time"
	case "JSON", "RawExtension":
		return "any"
	default:
		group := path.Base(path.Dir(goType.PkgPath())) // k8s.io/api/core/v1, k8s.io/apimachinery/pkg/apis/meta/v1
		return fmt.Sprintf("[%s](%s%s-%s-%s)", name, kubernetesReference, strings.ToLower(name), path.Base(goType.PkgPath()), group)
	}
}

// refusals are the sentences with which the API server refuses a value.
func (p *page) refusals(schema *apiextensionsv1.JSONSchemaProps) {
	if len(schema.XValidations) == 0 {
		return
	}
	p.printf("\nRefused with:\n\n")
	for _, rule := range schema.XValidations {
		p.printf("- %s\n", escaped(rule.Message))
	}
}

func isTime(goType reflect.Type) bool {
	name := deref(goType).Name()
	return name == "Duration" || name == "Time" || name == "MicroTime"
}

func rangeOf[N int64 | float64](least, most *N, unit string) string {
	number := func(n N) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)), ".0") }
	switch {
	case least != nil && most != nil && *least == *most:
		return number(*least) + unit
	case least != nil && most != nil:
		return "from " + number(*least) + " to " + number(*most) + unit
	case most != nil:
		return "at most " + number(*most) + unit
	case least != nil:
		return "at least " + number(*least) + unit
	}
	return ""
}

// deref is the type that a pointer points to.
func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// fieldOf is the type of a struct's field by its name in JSON; nil when it has none.
func fieldOf(t reflect.Type, name string) reflect.Type {
	for field := range fields(t) {
		if field.name == name {
			return field.goType
		}
	}
	return nil
}

// inOrder are the names of a struct's fields, as they stand in its Go type.
func inOrder(t reflect.Type) []string {
	var names []string
	for field := range fields(t) {
		names = append(names, field.name)
	}
	return names
}

type namedField struct {
	name   string
	goType reflect.Type
}

// fields are those of a struct as JSON has them, also of structs inside of it that have no name there.
func fields(t reflect.Type) func(yield func(namedField) bool) {
	return func(yield func(namedField) bool) {
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "-" && !yield(namedField{name, field.Type}) {
				return
			}
		}
	}
}

// escaped is a comment as Markdown that shows the same.
func escaped(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 { // the others are code
		parts[i] = strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
