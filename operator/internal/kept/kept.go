// Package kept decides whether the pods of a StatefulSet keep the template that they were made from, though the operator that runs now
// would render another one. It is pure: a StatefulSet carries in two annotations all that the decision needs.
//
// A change of the rendering is the user's or the operator's. It is the user's when the operator has not changed since the last look and
// would render something else than it would have then; or when it has changed, and the spec, or what is outside of it, has too.
package kept

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// Rendering is what the pods of a StatefulSet are made of.
type Rendering struct {
	// Template is theirs.
	Template corev1.PodTemplateSpec `json:"template"`

	// Files are what the operator's own ConfigMaps hold that the pods read when they start, by the ConfigMaps' names. They are kept
	// with the template: an older Redis would not start with a newer one's configuration.
	Files map[string]map[string]string `json:"files,omitempty"`
}

// Of is the rendering of pods of that template, among the objects that are wanted.
func Of(template corev1.PodTemplateSpec, objects []client.Object) Rendering {
	rendering := Rendering{Template: template}
	for _, object := range objects {
		if config, ok := object.(*corev1.ConfigMap); ok && slices.Contains(rendering.mounts(), config.Name) {
			rendering.add(config.Name, config.Data)
		}
	}
	return rendering
}

func (r *Rendering) add(name string, data map[string]string) {
	if r.Files == nil {
		r.Files = map[string]map[string]string{}
	}
	r.Files[name] = data
}

// mounts are the names of the ConfigMaps that the pods mount.
func (r *Rendering) mounts() []string {
	var names []string
	for _, volume := range r.Template.Spec.Volumes {
		if volume.ConfigMap != nil {
			names = append(names, volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				names = append(names, source.ConfigMap.Name)
			}
		}
	}
	return names
}

// Digest tells two renderings apart.
func (r Rendering) Digest() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is made of what the API server has taken, or of what is rendered for it
	}
	return render.Digest(string(text))
}

// Operator is one that renders.
type Operator struct {
	// Version is told to people.
	Version string
	// Identity changes with everything of the operator's own that a rendering depends on: its version, the images that it uses.
	Identity string
}

// Wanted is what the operator that runs now would render.
type Wanted struct {
	Operator  Operator
	Rendering Rendering
	// Digest is the rendering's.
	Digest string
	// Generation is that of the LiveStashCluster, Spec the digest of its spec.
	Generation int64
	Spec       string
}

// Want is what the operator would render: pods of that template, among the objects that are wanted.
func Want(operator Operator, c *v1alpha1.LiveStashCluster, template corev1.PodTemplateSpec, objects []client.Object) Wanted {
	rendering := Of(template, objects)
	return Wanted{Operator: operator, Rendering: rendering, Digest: rendering.Digest(), Generation: c.Generation, Spec: specDigest(c)}
}

// Note is the wanted rendering as the StatefulSet's annotations tell it.
func (w Wanted) Note() Note {
	return Note{
		Version: w.Operator.Version, Digest: w.Digest, By: w.Operator.Identity, Base: w.Digest, Generation: w.Generation, Spec: w.Spec,
	}
}

// Keeps is whether pods of the noted rendering keep it, and what is to be noted then.
func (w Wanted) Keeps(note Note, had Rendering) (Note, bool) {
	if w.Digest == note.Digest {
		return note, false
	}
	mine := w.Operator.Identity == note.By
	if w.Digest != note.Base && (mine || !w.specIsOf(note) || outsideDiffers(had.Template, w.Rendering.Template)) {
		return note, false
	}
	note.By, note.Base, note.Generation, note.Spec = w.Operator.Identity, w.Digest, w.Generation, w.Spec
	return note, true
}

// specIsOf is whether the spec is the one that was last acted on. Its generation tells, also when this operator's API gives new fields
// their defaults. While no operator ran, an autoscaler may have raised it all the same: then what is in it tells.
func (w Wanted) specIsOf(note Note) bool {
	return w.Generation == note.Generation || w.Spec == note.Spec
}

// outside are the annotations of pod templates with which pods are replaced when something changes that is not in the spec, such as a
// Secret's value. How one is computed must stay as it is: a digest that is to tell something else gets another name.
var outside = []string{fleet.SecretsDigestAnnotation, fleet.ConfigDigestAnnotation, fleet.StoreAnnotation, redis.AccessAnnotation}

// outsideDiffers is whether what is not in the spec has changed. An annotation that the old template does not have is new in this
// operator, and tells nothing.
func outsideDiffers(before, now corev1.PodTemplateSpec) bool {
	return slices.ContainsFunc(outside, func(name string) bool {
		was, had := before.Annotations[name]
		return had && was != now.Annotations[name]
	})
}

// specDigest tells a change of a spec that may change a template. What no template depends on is left out: replicas above all, which an
// autoscaler changes.
func specDigest(c *v1alpha1.LiveStashCluster) string {
	text, err := json.Marshal(relevant(c.Spec))
	if err != nil {
		panic(err) // it came as JSON
	}
	return render.Digest(string(text))
}

// relevant is the spec without what no template depends on.
func relevant(spec v1alpha1.LiveStashClusterSpec) v1alpha1.LiveStashClusterSpec {
	spec.Replicas, spec.Paused, spec.Upgrade, spec.WhenDeleted = nil, false, "", ""
	spec.Rollout, spec.DisruptionBudget = v1alpha1.RolloutSpec{}, v1alpha1.DisruptionBudgetSpec{}
	spec.NetworkPolicy, spec.Monitoring = v1alpha1.NetworkPolicySpec{}, v1alpha1.MonitoringSpec{}
	return spec
}
