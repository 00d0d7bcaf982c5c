package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/livestash-dev/livestash/operator/internal/cli/show"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

func (t *tool) sessionsCommand() *cobra.Command {
	return t.forScripts(&cobra.Command{
		Use:   "sessions [NAME]",
		Short: "Connections, stashes and returning users, per pod",
		Long: "Connections, stashes and returning users, per pod, as the agents count at this moment. With Mnesia each pod has every stash; with Redis " +
			"and BrowserMemory the pods hold none.",
		Example:           "  kubectl livestash sessions shop",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              t.sessions,
	})
}

func (t *tool) sessions(command *cobra.Command, args []string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	c, err := access.Cluster(command.Context(), one(args))
	if err != nil {
		return err
	}
	pods, err := access.FleetPods(command.Context(), c)
	if err != nil {
		return err
	}
	answers := access.Agents(command.Context(), pods, c.Spec.Agent.Port)
	all := make([]show.Sessions, 0, len(pods))
	for i := range pods {
		answer := answers[pods[i].Name]
		all = append(all, show.SessionsOf(&pods[i], answer.Status, answer.Err))
	}
	return t.print(all, func(w io.Writer, paint text.Paint) error { return show.WriteSessions(w, paint, all) })
}
