package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// inRelease is a shell program that runs the start script of the release that the container runs, with the arguments. Where that is, the
// environment of the release's own processes says. The cookie stays where it is: the script finds it in the container's environment.
const inRelease = `for environ in /proc/1/environ /proc/[0-9]*/environ; do
  root=$(tr '\0' '\n' <"$environ" 2>/dev/null | sed -n 's/^RELEASE_ROOT=//p')
  name=$(tr '\0' '\n' <"$environ" 2>/dev/null | sed -n 's/^RELEASE_NAME=//p')
  [ -x "$root/bin/$name" ] && [ -n "$name" ] && exec "$root/bin/$name" "$@"
done
echo "No release runs in this container: no process has RELEASE_ROOT and RELEASE_NAME, which the start script of an Elixir release sets." >&2
exit 127`

// within is how long an expression may take, the start of the release's tool included.
const within = 10 * time.Second

func (t *tool) rpcCommand() *cobra.Command {
	pod, timeout := "", within
	command := &cobra.Command{
		Use:   "rpc [NAME] EXPRESSION",
		Short: "Evaluate an Elixir expression in a pod that runs",
		Long: "Evaluate an Elixir expression in the application's virtual machine, by the release's own `rpc`. It prints what the expression prints: use IO.inspect. " +
			"Who may do that is a matter of Kubernetes' rights (create pods/exec); the Erlang cookie stays in the pod.",
		Example:           "  kubectl livestash rpc shop 'IO.inspect(Node.list())'\n  kubectl livestash rpc shop --pod shop-1 ':erlang.memory() |> IO.inspect()'",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: t.names,
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeoutCause(command.Context(), timeout, fmt.Errorf("no answer after %s (--timeout): the expression may still run in the pod", timeout))
			defer cancel()
			err := t.rpc(ctx, one(args[:len(args)-1]), pod, args[len(args)-1])
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		},
	}
	command.Flags().StringVar(&pod, "pod", "", "the pod; default: the first that is ready")
	command.Flags().DurationVar(&timeout, "timeout", within, "for how long to wait for an answer")
	return command
}

func (t *tool) rpc(ctx context.Context, name, podName, expression string) error {
	access, pod, err := t.podOf(ctx, name, podName)
	if err != nil {
		return err
	}
	return access.Exec(ctx, pod, fleet.AppContainer, inReleaseDo("rpc", expression), kube.Session{Out: t.Out, Err: t.ErrOut})
}

func inReleaseDo(args ...string) []string {
	return append([]string{"sh", "-c", inRelease, "sh"}, args...)
}

// podOf is a pod of a fleet, or the first that is ready.
func (t *tool) podOf(ctx context.Context, name, podName string) (*kube.Access, *corev1.Pod, error) {
	access, err := t.connect()
	if err != nil {
		return nil, nil, err
	}
	if name == "" && podName != "" {
		if name, err = access.Owner(ctx, podName); err != nil {
			return nil, nil, err
		}
	}
	c, err := access.Cluster(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	pod, err := access.FleetPod(ctx, c, podName)
	return access, pod, err
}

func (t *tool) remoteCommand() *cobra.Command {
	pod := ""
	command := &cobra.Command{
		Use:   "remote [NAME]",
		Short: "A remote IEx shell in a pod that runs",
		Long: "A remote IEx shell in the application's virtual machine, by the release's own `remote`. Who may have one is a matter of Kubernetes' rights " +
			"(create pods/exec); the Erlang cookie stays in the pod. Leave it with Ctrl-C twice, or Ctrl-\\.",
		Example:           "  kubectl livestash remote shop --pod shop-1",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.remote(command.Context(), one(args), pod) },
	}
	command.Flags().StringVar(&pod, "pod", "", "the pod; default: the first that is ready")
	return command
}

func (t *tool) remote(ctx context.Context, name, podName string) error {
	in, is := t.In.(*os.File)
	if !is || !term.IsTerminal(int(in.Fd())) || !t.terminal() {
		return errors.New("remote needs a terminal: `kubectl livestash rpc` does not")
	}
	access, pod, err := t.podOf(ctx, name, podName)
	if err != nil {
		return err
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("setting up the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), state) }()
	size, stop := watchSize(int(in.Fd()))
	defer stop()
	return access.Exec(ctx, pod, fleet.AppContainer, inReleaseDo("remote"), kube.Session{In: in, Out: t.Out, Size: size})
}
