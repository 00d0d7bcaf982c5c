package cli

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/livestash-dev/livestash/operator/internal/cli/show"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

func (t *tool) statusCommand() *cobra.Command {
	everywhere := false
	command := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Pods, mesh, stashes, the last rollout, what is wrong and what to do",
		Long: "Pods, mesh, stashes, the last rollout, what is wrong and what to do. Without a NAME: of the only fleet of the namespace, " +
			"or a table of all.",
		Example:           "  kubectl livestash status shop\n  kubectl livestash status --all-namespaces",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE: func(command *cobra.Command, args []string) error {
			if everywhere || len(args) == 0 {
				return t.allStatuses(command, everywhere)
			}
			return t.status(command, args[0])
		},
	}
	command.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "a table of the fleets of all namespaces")
	return t.forScripts(command)
}

func (t *tool) status(command *cobra.Command, name string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	c, err := access.Cluster(command.Context(), name)
	if err != nil {
		return err
	}
	status := show.StatusOf(c)
	return t.print(status, func(w io.Writer, paint text.Paint) error { return status.Write(w, paint, time.Now()) })
}

func (t *tool) allStatuses(command *cobra.Command, everywhere bool) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	clusters, err := access.Clusters(command.Context(), everywhere)
	if err != nil {
		return err
	}
	if len(clusters) == 1 && !everywhere {
		return t.status(command, clusters[0].Name)
	}
	fleets := make([]show.Status, 0, len(clusters))
	for i := range clusters {
		fleets = append(fleets, show.StatusOf(&clusters[i]))
	}
	return t.print(fleets, func(w io.Writer, paint text.Paint) error {
		return show.Fleets(w, paint, fleets, everywhere, time.Now())
	})
}
