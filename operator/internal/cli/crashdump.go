package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/show"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// listTime is how long a pod may take to say which dumps it keeps.
const listTime = 10 * time.Second

var errNoDumps = errors.New("this fleet keeps no crash dumps: set spec.beam.crashDumps: {}, which replaces its pods, and look again after the next crash. " +
	"A dump holds what was in memory, secrets included")

func (t *tool) crashdumpCommand() *cobra.Command {
	command := t.forScripts(&cobra.Command{
		Use:   "crashdump [NAME]",
		Short: "Which crash dumps the pods keep, and fetch one",
		Long: "Which crash dumps the pods keep, with the virtual machine's own word for why it crashed. The fleet needs spec.beam.crashDumps. Who may see them is a matter " +
			"of Kubernetes' rights (create pods/exec).",
		Example:           "  kubectl livestash crashdump shop\n  kubectl livestash crashdump get shop-1",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.crashes(command.Context(), one(args)) },
	})
	out := ""
	get := &cobra.Command{
		Use:   "get POD [DUMP]",
		Short: "Write a crash dump to a file",
		Long: "Write a crash dump of a pod to a file, the newest unless another one is named. It holds what was in the pod's memory, secrets and users' state included: " +
			"keep it where those may be, and delete it when you have read it. `crashdump_viewer:start()` of Erlang's observer reads it.",
		Example: "  kubectl livestash crashdump get shop-1\n  kubectl livestash crashdump get shop-1 erl_crash-20261123T185500.000Z.dump --out shop.dump",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			return t.fetchDump(command.Context(), args[0], one(args[1:]), out)
		},
	}
	get.Flags().StringVar(&out, "out", "", "the file; default: POD-DUMP")
	command.AddCommand(get)
	return command
}

func (t *tool) crashes(ctx context.Context, name string) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	if c.Spec.BEAM.CrashDumps == nil {
		return errNoDumps
	}
	pods, err := access.FleetPods(ctx, c)
	if err != nil {
		return err
	}
	all := make([]show.Crashes, len(pods))
	var asked sync.WaitGroup
	for i := range pods {
		asked.Go(func() {
			dumps, err := dumpsOf(ctx, access, &pods[i])
			all[i] = show.CrashesOf(&pods[i], fleet.AppContainer, dumps, err)
		})
	}
	asked.Wait()
	return t.print(all, func(w io.Writer, paint text.Paint) error { return show.WriteCrashes(w, paint, all, time.Now()) })
}

// dumpsOf are the dumps that a pod keeps, the newest first.
func dumpsOf(ctx context.Context, access *kube.Access, pod *corev1.Pod) ([]show.CrashDump, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("no answer after %s", listTime))
	defer cancel()
	container, command := fleet.CrashDumps()
	if !has(pod, container) {
		return nil, errors.New("the pod was made without spec.beam.crashDumps")
	}
	var said, wrong bytes.Buffer
	if err := access.Exec(ctx, pod, container, command, kube.Session{Out: &said, Err: &wrong}); err != nil {
		return nil, explained(ctx, err, wrong.String())
	}
	return parseDumps(said.Bytes())
}

// parseDumps reads what a pod says of its dumps. Each becomes a file of that name here: a name that leads elsewhere is refused.
func parseDumps(said []byte) ([]show.CrashDump, error) {
	var dumps []show.CrashDump
	if err := json.Unmarshal(said, &dumps); err != nil {
		return nil, fmt.Errorf("what the pod says of its dumps: %w", err)
	}
	for _, dump := range dumps {
		if strings.ContainsAny(dump.Name, `/\:`) {
			return nil, fmt.Errorf("the pod says that it keeps %q: that is no dump", dump.Name)
		}
	}
	return dumps, nil
}

// has is whether a pod keeps crash dumps in that container.
func has(pod *corev1.Pod, container string) bool {
	for _, of := range pod.Spec.Containers {
		if of.Name == container && strings.Contains(strings.Join(of.Command, " "), "--crash-dump") {
			return true
		}
	}
	return false
}

// explained is what the program in the pod said, or why it could not be asked.
func explained(ctx context.Context, err error, said string) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.TrimSpace(said) != "":
		return errors.New(strings.TrimSpace(said))
	}
	return err
}

func (t *tool) fetchDump(ctx context.Context, podName, name, out string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	if _, err := access.Owner(ctx, podName); err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := access.Get(ctx, client.ObjectKey{Namespace: access.Namespace, Name: podName}, pod); err != nil {
		return err
	}
	dumps, err := dumpsOf(ctx, access, pod)
	if err != nil {
		return fmt.Errorf("%s: %w", podName, err)
	}
	if len(dumps) == 0 {
		return fmt.Errorf("%s keeps no crash dump: it has not crashed since it was made, or was ended from outside, which leaves none", podName)
	}
	if name == "" {
		name = dumps[0].Name
	}
	if out == "" {
		out = podName + "-" + name
	}
	// For nobody else's eyes, and never over another file.
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	container, command := fleet.CrashDumps(name)
	var wrong bytes.Buffer
	err = access.Exec(ctx, pod, container, command, kube.Session{Out: file, Err: &wrong})
	if err != nil {
		err = explained(ctx, err, wrong.String())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	t.sayf("%s: it holds what was in the pod's memory, secrets included. Delete it when you have read it.", out)
	return nil
}
