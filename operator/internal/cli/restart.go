package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restartedAt is the annotation of the pods' template by which kubectl asks for a restart.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

func (t *tool) restartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart [NAME]",
		Short: "Replace every pod, one at a time, with its users handed over",
		Long: "Replace every pod, one at a time, with its users handed over. The same as `kubectl rollout restart statefulset/NAME`: it sets the annotation " +
			restartedAt + " of the StatefulSet's template. It also has a template tried again that a canary has rejected.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.restart(command.Context(), one(args)) },
	}
}

func (t *tool) restart(ctx context.Context, name string) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	set := &appsv1.StatefulSet{}
	if err := access.Get(ctx, client.ObjectKeyFromObject(c), set); err != nil {
		if apierrors.IsNotFound(err) {
			return errNoStatefulSet
		}
		return err
	}
	before := set.DeepCopy()
	if set.Spec.Template.Annotations == nil {
		set.Spec.Template.Annotations = map[string]string{}
	}
	set.Spec.Template.Annotations[restartedAt] = time.Now().Format(time.RFC3339)
	if err := access.Patch(ctx, set, client.StrategicMergeFrom(before), client.FieldOwner("kubectl-rollout")); err != nil {
		return err
	}
	t.sayf("The pods of %s are replaced, one at a time. Watch it: kubectl livestash rollout status %s --watch", c.Name, c.Name)
	if c.Spec.Rollout.Paused || c.Spec.Paused {
		t.sayf("But it is paused: nothing happens until `kubectl livestash rollout resume %s`.", c.Name)
	}
	return nil
}
