package fleet

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Reference is a ConfigMap or Secret that the user has the pods read.
type Reference struct {
	// Kind is ConfigMap or Secret.
	Kind string
	Name string
	// Keys are those that are read. None: all.
	Keys []string
	// Optional is whether pods start without it.
	Optional bool
	// Uses are what it is read for.
	Uses []Use
}

// Use is what a ConfigMap or Secret is read for.
type Use struct {
	// Field is the field of the spec that names it.
	Field string
	// Key is the key that is read. Empty: all.
	Key string
	// Optional is whether pods start without it.
	Optional bool
	// Environment is whether it becomes a variable of the application, or where all keys are read, each of them does.
	Environment bool
	// Variable is the name of that variable, or what is put before the name of each.
	Variable string
}

// The kinds of References.
const (
	ConfigMapReference = "ConfigMap"
	SecretReference    = "Secret"
)

// References are what spec.env, spec.envFrom and spec.podTemplate name, in a fixed order. None when the user wants none of that to roll
// the fleet. What fields of the spec name is not among them: see SecretRefs.
func References(c *v1alpha1.LiveStashCluster) []Reference {
	if c.Spec.Rollout.ConfigChanges == v1alpha1.ConfigChangesIgnore {
		return nil
	}
	var found []Reference
	add := func(kind, name string, optional *bool, use Use) {
		if name != "" {
			use.Optional = optional != nil && *optional
			found = append(found, Reference{Kind: kind, Name: name, Uses: []Use{use}})
		}
	}
	variables("spec.env", corev1.Container{Name: AppContainer, Env: c.Spec.Env}, add)
	variables("spec.envFrom", corev1.Container{Name: AppContainer, EnvFrom: c.Spec.EnvFrom}, add)
	spec := overrideSpec(c)
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		variables(overrideField, container, add)
	}
	for _, volume := range spec.Volumes {
		files(volume, add)
	}
	return merged(found)
}

const overrideField = "spec.podTemplate.spec"

// overrideSpec is spec.podTemplate.spec as far as it is a PodSpec. What is wrong with it is told by withOverride.
func overrideSpec(c *v1alpha1.LiveStashCluster) corev1.PodSpec {
	var spec corev1.PodSpec
	if c.Spec.PodTemplate == nil {
		return spec
	}
	if patch := c.Spec.PodTemplate.Spec.Patch(); patch != nil && json.Unmarshal(patch, &spec) != nil {
		return corev1.PodSpec{}
	}
	return spec
}

type addReference func(kind, name string, optional *bool, use Use)

func variables(field string, container corev1.Container, add addReference) {
	use := Use{Field: field, Environment: container.Name == AppContainer}
	for _, env := range container.Env {
		if env.ValueFrom == nil {
			continue
		}
		use.Variable = env.Name
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			use.Key = ref.Key
			add(ConfigMapReference, ref.Name, ref.Optional, use)
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			use.Key = ref.Key
			add(SecretReference, ref.Name, ref.Optional, use)
		}
	}
	use.Key = ""
	for _, from := range container.EnvFrom {
		use.Variable = from.Prefix
		if ref := from.ConfigMapRef; ref != nil {
			add(ConfigMapReference, ref.Name, ref.Optional, use)
		}
		if ref := from.SecretRef; ref != nil {
			add(SecretReference, ref.Name, ref.Optional, use)
		}
	}
}

func files(volume corev1.Volume, add addReference) {
	if ref := volume.ConfigMap; ref != nil {
		addItems(ConfigMapReference, ref.Name, ref.Optional, ref.Items, add)
	}
	if ref := volume.Secret; ref != nil {
		addItems(SecretReference, ref.SecretName, ref.Optional, ref.Items, add)
	}
	if volume.Projected == nil {
		return
	}
	for _, source := range volume.Projected.Sources {
		if ref := source.ConfigMap; ref != nil {
			addItems(ConfigMapReference, ref.Name, ref.Optional, ref.Items, add)
		}
		if ref := source.Secret; ref != nil {
			addItems(SecretReference, ref.Name, ref.Optional, ref.Items, add)
		}
	}
}

// addItems adds a volume's files. None: all keys.
func addItems(kind, name string, optional *bool, items []corev1.KeyToPath, add addReference) {
	if len(items) == 0 {
		add(kind, name, optional, Use{Field: overrideField})
	}
	for _, item := range items {
		add(kind, name, optional, Use{Field: overrideField, Key: item.Key})
	}
}

// merged has each object once.
func merged(all []Reference) []Reference {
	slices.SortStableFunc(all, func(a, b Reference) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	var once []Reference
	for _, one := range all {
		last := len(once) - 1
		if last < 0 || once[last].Kind != one.Kind || once[last].Name != one.Name {
			once = append(once, one)
			continue
		}
		once[last].Uses = append(once[last].Uses, one.Uses...)
	}
	for i := range once {
		once[i].sumUp()
	}
	return once
}

// sumUp is what the uses are together.
func (r *Reference) sumUp() {
	r.Optional = true
	all := false
	for _, use := range r.Uses {
		r.Optional = r.Optional && use.Optional
		all = all || use.Key == ""
		r.Keys = append(r.Keys, use.Key)
	}
	slices.Sort(r.Keys)
	if r.Keys = slices.Compact(r.Keys); all {
		r.Keys = nil
	}
}
