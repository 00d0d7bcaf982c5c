package fleet

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	strictjson "sigs.k8s.io/json"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// withOverride merges spec.podTemplate over the operator's template. The API has refused what it can see; what a
// strategic merge patch can still do to a fleet's identity, with its $patch directives, is refused here.
func withOverride(template corev1.PodTemplateSpec, c *v1alpha1.LiveStashCluster) (corev1.PodTemplateSpec, error) {
	override := c.Spec.PodTemplate
	if override == nil {
		return template, nil
	}

	template.Labels = render.Merged(override.Metadata.Labels, template.Labels)
	template.Annotations = render.Merged(override.Metadata.Annotations, template.Annotations)

	patch, err := patchOf(c)
	if patch == nil || err != nil {
		return template, err
	}
	if err := checkFields(patch); err != nil {
		return template, err
	}
	spec, err := mergedSpec(template.Spec, patch)
	if err != nil {
		return template, render.SpecErrorf("spec.podTemplate.spec is not a valid pod spec: %v", err)
	}
	if err := checkIdentity(template.Spec, spec); err != nil {
		return template, err
	}
	template.Spec = spec
	return template, nil
}

// checkFields refuses a patch with fields that a PodSpec does not have: they would be dropped without a word.
func checkFields(patch []byte) error {
	var fields any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return render.SpecErrorf("spec.podTemplate.spec is not a valid pod spec: %v", err)
	}
	plain, err := json.Marshal(withoutDirectives(fields))
	if err != nil {
		return render.SpecErrorf("spec.podTemplate.spec is not a valid pod spec: %v", err)
	}
	unknown, err := strictjson.UnmarshalStrict(plain, &corev1.PodSpec{})
	if err != nil {
		return render.SpecErrorf("spec.podTemplate.spec is not a valid pod spec: %v", err)
	}
	if len(unknown) > 0 {
		return render.SpecErrorf("spec.podTemplate.spec has an %v, which no pod spec has: correct its name, or remove it", unknown[0])
	}
	return nil
}

// withoutDirectives is a strategic merge patch without what tells how to merge, such as $patch.
func withoutDirectives(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if strings.HasPrefix(key, "$") {
				delete(value, key)
				continue
			}
			value[key] = withoutDirectives(field)
		}
	case []any:
		for i := range value {
			value[i] = withoutDirectives(value[i])
		}
	}
	return value
}

func mergedSpec(base corev1.PodSpec, patch []byte) (corev1.PodSpec, error) {
	original, err := json.Marshal(base)
	if err != nil {
		return base, err
	}
	result, err := strategicpatch.StrategicMergePatch(original, patch, corev1.PodSpec{})
	if err != nil {
		return base, err
	}
	var spec corev1.PodSpec
	if err := json.Unmarshal(result, &spec); err != nil {
		return base, err
	}
	// The merge puts new list entries first; the application's container is the pod's main one.
	slices.SortStableFunc(spec.Containers, func(a, b corev1.Container) int {
		return appFirst(a) - appFirst(b)
	})
	return spec, nil
}

func appFirst(c corev1.Container) int {
	if c.Name == AppContainer {
		return 0
	}
	return 1
}

// checkIdentity refuses a merged spec whose application container lost what its place in the BEAM cluster hangs on.
func checkIdentity(base, result corev1.PodSpec) error {
	if len(result.Containers) == 0 || result.Containers[0].Name != AppContainer {
		return render.SpecErrorf("spec.podTemplate.spec removes the container app: it is the application and must stay")
	}
	before, after := base.Containers[0], result.Containers[0]
	for _, want := range before.Env {
		at := slices.IndexFunc(after.Env, func(e corev1.EnvVar) bool { return e.Name == want.Name })
		if at < 0 || !equalJSON(after.Env[at], want) {
			return render.SpecErrorf("spec.podTemplate.spec changes the environment variable %s of the container app: set variables in spec.env", want.Name)
		}
	}
	for _, want := range before.Ports {
		if !slices.Contains(after.Ports, want) {
			return render.SpecErrorf("spec.podTemplate.spec changes the port %s of the container app: set ports in spec.http and spec.clustering", want.Name)
		}
	}
	return nil
}

func equalJSON(a, b any) bool {
	left, errA := json.Marshal(a)
	right, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(left) == string(right)
}
