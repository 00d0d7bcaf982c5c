package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

func (t *tool) rolloutUndoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "undo [NAME]",
		Short: "Go back to the image of before (spec.image)",
		Long: "Go back to the image that the pods had before the last rollout: sets spec.image. Everything else of the spec stays as it is, and the verb says " +
			"what else the last rollout changed. Whoever keeps the spec in a repository takes the change back there too.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.undo(command.Context(), one(args)) },
	}
}

func (t *tool) undo(ctx context.Context, name string) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	if len(c.Status.Rollouts) == 0 || c.Status.Rollouts[0].From == "" {
		return fmt.Errorf("%s has had no rollout: there is nothing to go back to", c.Name)
	}
	last := c.Status.Rollouts[0]
	before, err := templateOf(ctx, access, c, last.From)
	if err != nil {
		return err
	}
	after, err := templateOf(ctx, access, c, last.To)
	if err != nil {
		return err
	}
	image, others := appOf(before).Image, otherChanges(before, after)
	if image == c.Spec.Image {
		return fmt.Errorf("the pods of before had the image %s too; the last rollout changed %s: take that back where it was changed", image, describe(others))
	}
	if err := change(ctx, access, c, func() { c.Spec.Image = image }); err != nil {
		return err
	}
	t.sayf("%s goes back to the image %s.", c.Name, image)
	if len(others) > 0 {
		t.sayf("The last rollout also changed %s. That stays as it is.", describe(others))
	}
	t.sayf("Watch it: kubectl livestash rollout status %s --watch", c.Name)
	return nil
}

// templateOf is the template of pods with a revision.
func templateOf(ctx context.Context, access *kube.Access, c *v1alpha1.LiveStashCluster, name string) (*corev1.PodTemplateSpec, error) {
	revision := &appsv1.ControllerRevision{}
	if err := access.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, revision); err != nil {
		return nil, fmt.Errorf("the template of revision %s: %w", name, err)
	}
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("the template of revision %s: %w", name, err)
	}
	if appOf(&data.Spec.Template).Image == "" {
		return nil, fmt.Errorf("the template of revision %s has no container %s with an image", name, fleet.AppContainer)
	}
	return &data.Spec.Template, nil
}

func appOf(template *corev1.PodTemplateSpec) *corev1.Container {
	for i := range template.Spec.Containers {
		if template.Spec.Containers[i].Name == fleet.AppContainer {
			return &template.Spec.Containers[i]
		}
	}
	return &corev1.Container{}
}

// otherChanges is what differs between two templates besides the image, by name and without values.
func otherChanges(before, after *corev1.PodTemplateSpec) []string {
	var found []string
	old, recent := appOf(before), appOf(after)
	for _, variable := range recent.Env {
		if !slices.ContainsFunc(old.Env, func(e corev1.EnvVar) bool { return equality.Semantic.DeepEqual(e, variable) }) {
			found = append(found, "the variable "+variable.Name)
		}
	}
	for _, variable := range old.Env {
		if !slices.ContainsFunc(recent.Env, func(e corev1.EnvVar) bool { return e.Name == variable.Name }) {
			found = append(found, "the variable "+variable.Name)
		}
	}
	if !equality.Semantic.DeepEqual(old.Resources, recent.Resources) {
		found = append(found, "resources")
	}
	if before.Annotations[fleet.ConfigDigestAnnotation] != after.Annotations[fleet.ConfigDigestAnnotation] {
		found = append(found, "a ConfigMap or Secret that the pods read")
	}
	if before.Annotations[fleet.SecretsDigestAnnotation] != after.Annotations[fleet.SecretsDigestAnnotation] {
		found = append(found, "a Secret that the spec names")
	}
	return found
}

func describe(changes []string) string {
	switch len(changes) {
	case 0:
		return "something else"
	case 1:
		return changes[0]
	}
	text := changes[0]
	for _, next := range changes[1:] {
		text += ", " + next
	}
	return text
}

var errNoStatefulSet = errors.New("the fleet has no StatefulSet yet: nothing can be restarted")
