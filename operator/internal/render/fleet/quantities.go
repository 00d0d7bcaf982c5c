package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// farQuantity is the beginning of a text that would take hours and all memory to read if a Quantity were to be made of it, such as
// 1e-999999999. The API refuses those in fields that it knows (hack/generate); of spec.podTemplate.spec it does not know most.
var farQuantity = regexp.MustCompile(`^\s*[+-]?[0-9.]*([0-9.]{41}|[eE][+-]?[0-9.]{3})`)

// noQuantity is a text that no Quantity can be made of.
const noQuantity = "?"

// patchOf is spec.podTemplate.spec. Nil: there is none. Before its quantities are looked at, nobody may decode it as what it is.
func patchOf(c *v1alpha1.LiveStashCluster) ([]byte, error) {
	if c.Spec.PodTemplate == nil {
		return nil, nil
	}
	patch := c.Spec.PodTemplate.Spec.Patch()
	var fields any
	if patch == nil || json.Unmarshal(patch, &fields) != nil {
		return patch, nil // what is no JSON is told when it is merged
	}
	far := ""
	fields = withoutFar(fields, &far)
	if far == "" {
		return patch, nil
	}
	// A text of that kind may be a name or an argument. What takes the other text in its place is no quantity.
	plain, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("writing spec.podTemplate.spec: %w", err)
	}
	if errors.Is(json.Unmarshal(plain, &corev1.PodSpec{}), resource.ErrFormatWrong) {
		return nil, render.SpecErrorf("spec.podTemplate.spec has the quantity %.60q: it must have at most 40 digits and an exponent of at most two, for example 512Mi", far)
	}
	return patch, nil
}

// withoutFar is a value with other texts for those that no computer could count with. The last one is noted.
func withoutFar(value any, far *string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			value[key] = withoutFar(field, far)
		}
	case []any:
		for i := range value {
			value[i] = withoutFar(value[i], far)
		}
	case string:
		if farQuantity.MatchString(value) {
			*far = value
			return noQuantity
		}
	}
	return value
}
