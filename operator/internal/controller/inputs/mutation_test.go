package inputs

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// chance makes bad objects of good ones, along the schema of their kind.
type chance struct {
	*rand.Rand
	// touched are the names of the fields and the texts that it put in: what a message about them speaks of.
	touched []string
}

type properties = apiextensionsv1.JSONSchemaProps

// one is one of several values.
func one[T any](c *chance, of []T) T { return of[c.IntN(len(of))] }

// happens is whether something happens that does so in so many of a hundred cases.
func (c *chance) happens(percent int) bool { return c.IntN(100) < percent }

// mutate changes something in the value: it goes down to a random field, and through fields that are not there yet.
func (c *chance) mutate(schema *properties, value any) any {
	if c.happens(2) {
		return one(c, []any{"", "x", int64(1), true, []any{}, map[string]any{}, nil})
	}
	switch {
	case len(schema.Properties) > 0:
		return c.mutateObject(schema, value)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return c.mutateMap(schema.AdditionalProperties.Schema, value)
	case schema.Type == "array":
		return c.mutateArray(schema.Items.Schema, value)
	case schema.Type == "object":
		return map[string]any{c.text(): c.text()}
	}
	return c.leaf(schema)
}

func (c *chance) mutateObject(schema *properties, value any) any {
	fields, _ := value.(map[string]any)
	if fields == nil {
		fields = c.required(schema)
	}
	names := slices.Sorted(maps.Keys(schema.Properties))
	if set := slices.Sorted(maps.Keys(fields)); len(set) > 0 && c.happens(40) {
		names = set
	}
	name := one(c, names)
	if _, has := schema.Properties["podTemplate"]; has && c.happens(20) {
		name = "podTemplate" // most fields are there
	}
	c.touched = append(c.touched, name)
	field, known := schema.Properties[name]
	switch {
	case c.happens(1):
		fields[name+"s"] = "x"
	case !known || fields[name] != nil && c.happens(8):
		delete(fields, name)
	default:
		fields[name] = c.mutate(&field, fields[name])
	}
	return fields
}

// required has the fields of the schema that must be given.
func (c *chance) required(schema *properties) map[string]any {
	fields := map[string]any{}
	for _, name := range schema.Required {
		field := schema.Properties[name]
		fields[name] = c.good(&field)
	}
	return fields
}

// good is a value that the schema would probably take.
func (c *chance) good(schema *properties) any {
	switch {
	case len(schema.Enum) > 0:
		return strings.Trim(string(schema.Enum[0].Raw), `"`)
	case schema.Type == "object":
		return c.required(schema)
	case schema.Type == "array":
		return []any{c.good(schema.Items.Schema)}
	case schema.Type == "integer":
		return int64(max(1, floor(schema)))
	case schema.Type == "boolean":
		return true
	}
	return "a"
}

func (c *chance) mutateMap(items *properties, value any) any {
	fields, _ := value.(map[string]any)
	if fields == nil {
		fields = map[string]any{}
	}
	if items.XIntOrString {
		fields[one(c, []string{"cpu", "memory", "ephemeral-storage", "example.com/a", c.text()})] = c.quantity()
		return fields
	}
	fields[c.text()] = one(c, []any{c.text(), "x", "1"})
	return fields
}

func (c *chance) mutateArray(items *properties, value any) any {
	list, _ := value.([]any)
	if len(list) == 0 || c.happens(30) {
		return append(list, c.mutate(items, nil))
	}
	i := c.IntN(len(list))
	switch c.IntN(10) {
	case 0:
		return append(list, list[i])
	case 1:
		return []any{}
	}
	list[i] = c.mutate(items, list[i])
	return list
}

func (c *chance) leaf(schema *properties) any {
	switch {
	case len(schema.Enum) > 0 && c.happens(80):
		return strings.Trim(string(one(c, schema.Enum).Raw), `"`)
	case schema.Type == "boolean":
		return c.happens(50)
	case schema.Type == "integer" || schema.Type == "number":
		return c.number(schema)
	case schema.XIntOrString:
		return c.quantity()
	case isDuration(schema) && c.happens(90):
		return c.duration()
	}
	return c.text()
}

// isDuration is whether a rule of the schema reads the text as a duration, or the field's description calls it one.
func isDuration(schema *properties) bool {
	return strings.Contains(schema.Description, "how long") || slices.ContainsFunc(schema.XValidations, func(rule apiextensionsv1.ValidationRule) bool {
		return strings.Contains(rule.Rule, "duration(")
	})
}

func floor(schema *properties) float64 {
	if schema.Minimum == nil {
		return 0
	}
	return *schema.Minimum
}

func (c *chance) number(schema *properties) any {
	all := []int64{0, 1, 2, 3, 7, 10, 100, 1000, 8080, 65535, -1, 1<<31 - 1, 1 << 31, 1<<63 - 1, -1 << 63}
	for _, bound := range []*float64{schema.Minimum, schema.Maximum} {
		if bound != nil {
			at := int64(*bound)
			all = append(all, at, at, at-1, at+1)
		}
	}
	return one(c, all)
}

func (c *chance) quantity() any {
	return one(c, []any{
		"64Mi", "1Gi", "1", "500m", "0", "-1", "1Ki", "67108863", "1Ei", "9223372036854775807", "1e30", "0.5", "1e-9", "1.5Gi", "lots", "", "25%", "100%", "101%", int64(0), int64(1), int64(-1),
		int64(5), int64(1 << 40), "1e99", "1e-99", "1e100", "1e999999999", "1e-999999999", "1e0.5", "1e30Ki", strings.Repeat("9", 40), strings.Repeat("9", 5000), 0.5, 1e300,
	})
}

func (c *chance) duration() any {
	return one(c, []any{
		"1s", "10s", "90s", "1m30s", "5m", "1h", "24h", "168h", "720h", "1.5h", "500ms", "0s", "0", "1ns", "1us", "1µs", "-1s", "24h0m1s", "2540400h", "2562047h", "99999999h", "5", "", "soon", "1d", " 1s", "1S",
		"0.0000001s", "9223372036854775807ms",
	})
}

func (c *chance) text() string {
	text := one(c, texts)
	c.touched = append(c.touched, text)
	return text
}

// texts are what people write, and what they never meant to.
var texts = []string{
	"a", "a", "web", "web", "shop-1", "s", "k", "A", "MINE", "app", "default", "/healthz", "shop.example.com", "ghcr.io/acme/shop:1.4.2", "http://shop:4000", "1", "true", "null",
	"", " ", "a b", "-a", "a-", "a..b", ".", "..", "/", "a/b", "a/b/c", "_", "Ab", "a_b", "a=b", "a,b", "$(A)", "${A}", "%", "'", `"`, "\\", "a\nb", "a\r\nb", "a\tb", "a\x00b", "\x7f", "\u202e", "ümläut", "日本語", "🙂",
	"e\u0301", "\ufeff", "livestash.dev/a", "app.kubernetes.io/name", "kubernetes.io/a", "example.com/a", "LIVESTASH_X", "PORT", "RELEASE_NODE", "+P 5", "-name x", "; rm -rf /", "{{.}}", "<script>",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254), strings.Repeat("a", 5000), strings.Repeat("é", 300), strings.Repeat("a.", 130) + "a",
}
