package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/show"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

func (t *tool) rolloutCommand() *cobra.Command {
	command := &cobra.Command{Use: "rollout", Short: "Watch a rollout, stop it, let it go on, take it back"}
	command.AddCommand(t.rolloutStatusCommand(), t.rolloutPauseCommand(true), t.rolloutPauseCommand(false), t.rolloutUndoCommand())
	return command
}

func (t *tool) rolloutStatusCommand() *cobra.Command {
	follow, timeout := false, time.Duration(0)
	command := &cobra.Command{
		Use:   "status [NAME]",
		Short: "How far the rollout is, and the last ten",
		Long: "How far the rollout is, and the last ten: pods replaced, stashes held, handed over and lost. With --watch until it is complete; it " +
			"fails when somebody has to do something first.",
		Example:           "  kubectl livestash rollout status shop --watch --timeout 10m",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE: func(command *cobra.Command, args []string) error {
			if follow {
				return t.watchRollout(command.Context(), one(args), timeout)
			}
			return t.rolloutStatus(command.Context(), one(args))
		},
	}
	command.Flags().BoolVarP(&follow, "watch", "w", false, "until the rollout is complete")
	command.Flags().DurationVar(&timeout, "timeout", 0, "with --watch: for how long at most; 0: without an end")
	return t.forScripts(command)
}

func (t *tool) rolloutStatus(ctx context.Context, name string) error {
	_, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	return t.printProgress(show.ProgressOf(c))
}

func (t *tool) printProgress(p show.Progress) error {
	return t.print(p, func(w io.Writer, paint text.Paint) error { return p.Write(w, paint, time.Now()) })
}

// watchRollout shows the progress whenever it has changed.
func (t *tool) watchRollout(ctx context.Context, name string, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the rollout is not complete after %s", timeout))
		defer cancel()
	}
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return because(ctx, err)
	}
	bar := progressBar{tool: t}
	for ctx.Err() == nil {
		p := show.ProgressOf(c)
		bar.draw(p)
		if p.Ended || p.Failed {
			bar.end()
			return t.rolloutEnded(p)
		}
		if err := nextOf(ctx, access, c); err != nil {
			bar.end()
			return err
		}
	}
	bar.end()
	return context.Cause(ctx)
}

func (t *tool) rolloutEnded(p show.Progress) error {
	if err := t.printProgress(p); err != nil {
		return err
	}
	if p.Failed {
		return fmt.Errorf("%s: %s; `kubectl livestash status %s` says what to do", p.Phase, p.Says, p.Name)
	}
	return nil
}

// because is why something could not be done: why ctx has ended, if it has.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// nextOf waits until a LiveStashCluster has another version, and puts that in its place.
func nextOf(ctx context.Context, access *kube.Access, c *v1alpha1.LiveStashCluster) error {
	changes, err := access.Watch(ctx, &v1alpha1.LiveStashClusterList{}, client.InNamespace(c.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", c.Name), Raw: &metav1.ListOptions{ResourceVersion: c.ResourceVersion},
	})
	if err != nil {
		return because(ctx, err)
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		next, is := change.Object.(*v1alpha1.LiveStashCluster)
		if !is { // the version is too old to be watched from
			return because(ctx, access.Get(ctx, client.ObjectKeyFromObject(c), c))
		}
		if change.Type == "DELETED" {
			return fmt.Errorf("%s was deleted", c.Name)
		}
		if next.ResourceVersion != c.ResourceVersion {
			*c = *next
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil // the API server ends watches after a while
}

// progressBar is one line that changes on a terminal, and a line for each change elsewhere.
type progressBar struct {
	tool *tool
	last string
}

func (b *progressBar) draw(p show.Progress) {
	line := p.Line(b.tool.paint())
	if line == b.last || b.tool.output != "" {
		return
	}
	b.last = line
	if b.tool.terminal() {
		_, _ = fmt.Fprintf(b.tool.Out, "\r\x1b[K%s", line)
		return
	}
	b.tool.draw(line)
}

func (b *progressBar) end() {
	if b.last != "" && b.tool.terminal() {
		b.tool.draw("")
	}
}

func (t *tool) rolloutPauseCommand(pause bool) *cobra.Command {
	command := &cobra.Command{
		Use:   "pause [NAME]",
		Short: "Stop the rollout between two pods (spec.rollout.paused)",
		Long:  "Stop the rollout between two pods: sets spec.rollout.paused. The pod that is just being replaced gets ready, and no other one goes.",
		RunE:  func(command *cobra.Command, args []string) error { return t.pause(command.Context(), one(args), true) },
	}
	if !pause {
		command.Use = "resume [NAME]"
		command.Short = "Let the rollout go on (spec.rollout.paused)"
		command.Long = "Let the rollout go on: sets spec.rollout.paused to false."
		command.RunE = func(command *cobra.Command, args []string) error { return t.pause(command.Context(), one(args), false) }
	}
	command.Args, command.ValidArgsFunction = cobra.MaximumNArgs(1), t.names
	return command
}

func (t *tool) pause(ctx context.Context, name string, pause bool) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	if c.Spec.Rollout.Paused != pause {
		if err := change(ctx, access, c, func() { c.Spec.Rollout.Paused = pause }); err != nil {
			return err
		}
	}
	switch {
	case pause:
		t.sayf("Rollouts of %s are paused: `kubectl livestash rollout resume %s` lets them go on.", c.Name, c.Name)
	case c.Spec.Paused:
		return errors.New("spec.paused is set too, and with it the operator changes nothing at all: set that to false, when the fleet is to be looked after again")
	default:
		t.sayf("Rollouts of %s go on.", c.Name)
	}
	return nil
}

// change patches what the function changes in a LiveStashCluster, and nothing if somebody else has changed it meanwhile.
func change(ctx context.Context, access *kube.Access, c *v1alpha1.LiveStashCluster, edit func()) error {
	before := c.DeepCopy()
	edit()
	return access.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
}
