package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/migrate"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

func (t *tool) migrateCommand() *cobra.Command {
	file, adapter := "", string(v1alpha1.AdapterETS)
	command := &cobra.Command{
		Use:   "migrate [DEPLOYMENT]",
		Short: "Write the LiveStashCluster for a Deployment",
		Long: "Write the LiveStashCluster for a Deployment, to standard output: image, replicas, environment, resources, probes, and what else a pod may have. What it " +
			"could not carry over, it says on standard error. It changes nothing in the cluster.",
		Example: "  kubectl livestash migrate shop > shop.yaml\n  kubectl livestash migrate -f deployment.yaml --adapter Redis",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return t.migrate(command.Context(), one(args), file, v1alpha1.Adapter(adapter))
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "a file with the Deployment, or - for standard input")
	command.Flags().StringVar(&adapter, "adapter", adapter, "ETS, BrowserMemory, Redis, Mnesia or None")
	_ = command.RegisterFlagCompletionFunc("adapter", cobra.FixedCompletions([]string{"ETS", "BrowserMemory", "Redis", "Mnesia", "None"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (t *tool) migrate(ctx context.Context, name, file string, adapter v1alpha1.Adapter) error {
	deployment, err := t.deployment(ctx, name, file)
	if err != nil {
		return err
	}
	out, notes, err := migrate.Cluster(deployment, adapter)
	if err != nil {
		return err
	}
	written, err := yaml.Marshal(out)
	if err != nil {
		return err
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(t.ErrOut, "# "+text.Safe(note))
	}
	_, err = t.Out.Write(written)
	return err
}

// deployment is one of the cluster, or of a file.
func (t *tool) deployment(ctx context.Context, name, file string) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	if (name == "") == (file == "") {
		return nil, fmt.Errorf("name a Deployment, or a file with one (-f)")
	}
	if file == "" {
		access, err := t.connect()
		if err != nil {
			return nil, err
		}
		return deployment, access.Get(ctx, client.ObjectKey{Namespace: access.Namespace, Name: name}, deployment)
	}
	in, err := t.read(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(in, deployment); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if deployment.Kind != "Deployment" {
		return nil, fmt.Errorf("%s has the kind %q: give it one Deployment", file, deployment.Kind)
	}
	return deployment, nil
}
