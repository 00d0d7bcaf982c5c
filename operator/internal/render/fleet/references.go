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
	add := func(kind, name string, optional *bool, keys ...string) {
		if name != "" {
			found = append(found, Reference{Kind: kind, Name: name, Keys: keys, Optional: optional != nil && *optional})
		}
	}
	variables(corev1.Container{Env: c.Spec.Env, EnvFrom: c.Spec.EnvFrom}, add)
	spec := overrideSpec(c)
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		variables(container, add)
	}
	for _, volume := range spec.Volumes {
		files(volume, add)
	}
	return merged(found)
}

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

type addReference func(kind, name string, optional *bool, keys ...string)

func variables(container corev1.Container, add addReference) {
	for _, env := range container.Env {
		if env.ValueFrom == nil {
			continue
		}
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(ConfigMapReference, ref.Name, ref.Optional, ref.Key)
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			add(SecretReference, ref.Name, ref.Optional, ref.Key)
		}
	}
	for _, from := range container.EnvFrom {
		if ref := from.ConfigMapRef; ref != nil {
			add(ConfigMapReference, ref.Name, ref.Optional)
		}
		if ref := from.SecretRef; ref != nil {
			add(SecretReference, ref.Name, ref.Optional)
		}
	}
}

func files(volume corev1.Volume, add addReference) {
	if ref := volume.ConfigMap; ref != nil {
		add(ConfigMapReference, ref.Name, ref.Optional, keysOf(ref.Items)...)
	}
	if ref := volume.Secret; ref != nil {
		add(SecretReference, ref.SecretName, ref.Optional, keysOf(ref.Items)...)
	}
	if volume.Projected == nil {
		return
	}
	for _, source := range volume.Projected.Sources {
		if ref := source.ConfigMap; ref != nil {
			add(ConfigMapReference, ref.Name, ref.Optional, keysOf(ref.Items)...)
		}
		if ref := source.Secret; ref != nil {
			add(SecretReference, ref.Name, ref.Optional, keysOf(ref.Items)...)
		}
	}
}

func keysOf(items []corev1.KeyToPath) []string {
	var keys []string
	for _, item := range items {
		keys = append(keys, item.Key)
	}
	return keys
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
		if len(one.Keys) == 0 || len(once[last].Keys) == 0 {
			once[last].Keys = nil
		} else {
			once[last].Keys = append(once[last].Keys, one.Keys...)
		}
		once[last].Optional = once[last].Optional && one.Optional
	}
	for i := range once {
		slices.Sort(once[i].Keys)
		once[i].Keys = slices.Compact(once[i].Keys)
	}
	return once
}
