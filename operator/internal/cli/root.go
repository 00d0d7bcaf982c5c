// Package cli is `kubectl livestash`: what somebody who runs fleets asks and does every day. It talks to the API server with the rights
// of whoever runs it; what a verb changes is a documented field or annotation that could be set by hand.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// fieldManager is whom the API server notes for what a verb changes.
const fieldManager = "kubectl-livestash"

// tool is what all verbs share.
type tool struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// output is the flag of that name.
	output string
	// version is that of the plugin.
	version string
}

// NewCommand is the whole program.
func NewCommand(streams genericiooptions.IOStreams, version string) *cobra.Command {
	t := &tool{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), version: version}
	root := &cobra.Command{
		Use:           "kubectl-livestash",
		Short:         "Look after fleets of Phoenix LiveView pods",
		Long:          "Look after fleets of Phoenix LiveView pods (LiveStashClusters). A verb without a NAME takes the only fleet of the namespace.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl livestash"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	t.flags.AddFlags(root.PersistentFlags())
	root.AddCommand(t.statusCommand(), t.doctorCommand(), t.rolloutCommand(), t.sessionsCommand(), t.openCommand(), t.drainCommand(), t.restartCommand(),
		t.rpcCommand(), t.remoteCommand(), t.logsCommand(), t.crashdumpCommand(), t.benchCommand(), t.reportCommand(), t.migrateCommand())
	return root
}

// forScripts gives a verb the flag --output.
func (t *tool) forScripts(command *cobra.Command) *cobra.Command {
	command.Flags().StringVarP(&t.output, "output", "o", "", "json or yaml, for scripts; a table when it is not set")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// controls are the control characters that Go's JSON does not escape. They are in its strings alone.
var controls = regexp.MustCompile(`[\x{7f}-\x{9f}]`)

// print writes a value as -o asks for, or draws it.
func (t *tool) print(value any, draw func(io.Writer, text.Paint) error) error {
	switch t.output {
	case "":
		return draw(t.Out, t.paint())
	case "json":
		out, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return err
		}
		t.draw(controls.ReplaceAllStringFunc(string(out), func(c string) string { return fmt.Sprintf(`\u%04x`, []rune(c)[0]) }))
		return nil
	case "yaml":
		out, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = t.Out.Write(out)
		return err
	}
	return fmt.Errorf("--output is %q: set it to json or yaml", t.output)
}

// sayf says something on a line of its own, with what others wrote in it.
func (t *tool) sayf(format string, args ...any) { t.draw(text.Safe(fmt.Sprintf(format, args...))) }

// draw writes a line that may have colours.
func (t *tool) draw(line string) { _, _ = fmt.Fprintln(t.Out, line) }

// Fail says why a verb failed, and returns the program's exit code: that of the command which ran in a pod, if one did; it has said itself what
// was wrong.
func Fail(to io.Writer, err error) int {
	var ended exec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	}
	_, _ = fmt.Fprintln(to, "Error:", text.Lines(err.Error()))
	return 1
}

// terminal is whether somebody looks at the output.
func (t *tool) terminal() bool {
	file, is := t.Out.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// paint has colours on a terminal, unless NO_COLOR (no-color.org) is set.
func (t *tool) paint() text.Paint {
	return text.Paint{Colours: t.terminal() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (t *tool) connect() (*kube.Access, error) { return kube.Connect(t.flags) }

// fleet is the LiveStashCluster of this name, or the only one of the namespace, with the access to all else.
func (t *tool) fleet(ctx context.Context, name string) (*kube.Access, *v1alpha1.LiveStashCluster, error) {
	access, err := t.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := access.Cluster(ctx, name)
	return access, c, err
}

// one is the only argument, if there is one.
func one(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// names completes the name of a LiveStashCluster.
func (t *tool) names(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	access, err := t.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(command.Context(), 2*time.Second)
	defer cancel()
	clusters, err := access.Clusters(ctx, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, c := range clusters {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
