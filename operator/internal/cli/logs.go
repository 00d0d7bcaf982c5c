package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// longestLine of a log is kept whole. What is longer comes in several.
const longestLine = 64 << 10

// logOptions are the flags of the verb logs.
type logOptions struct {
	follow, previous bool
	container        string
	tail             int64
	since            time.Duration
}

func (t *tool) logsCommand() *cobra.Command {
	o := logOptions{}
	command := &cobra.Command{
		Use:               "logs [NAME]",
		Short:             "The logs of all pods, each line with its pod's name before it",
		Long:              "The logs of all pods, each line with its pod's name before it. With --follow pods that come later and containers that are restarted are followed too.",
		Example:           "  kubectl livestash logs shop --follow --tail 20",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.logs(command.Context(), one(args), o) },
	}
	command.Flags().BoolVarP(&o.follow, "follow", "f", false, "until it is stopped")
	command.Flags().BoolVarP(&o.previous, "previous", "p", false, "of the containers that ended last")
	command.Flags().StringVarP(&o.container, "container", "c", fleet.AppContainer, "the container")
	command.Flags().Int64Var(&o.tail, "tail", -1, "how many of the last lines of each pod; -1: all")
	command.Flags().DurationVar(&o.since, "since", 0, "how old the lines are at most, for example 10m; 0: any age")
	return command
}

func (t *tool) logs(ctx context.Context, name string, o logOptions) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	reader := &logReader{access: access, options: o, out: t.Out, terminal: t.terminal(), paint: t.paint(), known: map[string]bool{}}
	if o.follow {
		return reader.follow(ctx, c)
	}
	pods, err := access.FleetPods(ctx, c)
	if err != nil {
		return err
	}
	var failures []error
	for i := range pods {
		failures = append(failures, reader.read(ctx, &pods[i]))
	}
	return errors.Join(failures...)
}

// logReader writes the lines of several pods, each whole.
type logReader struct {
	access  *kube.Access
	options logOptions
	paint   text.Paint
	// terminal is whether somebody looks at them there.
	terminal bool

	mutex sync.Mutex
	out   io.Writer
	// known are the containers that are, or were, read: one that is restarted is another.
	known map[string]bool
}

// podColours tell pods apart.
var podColours = []text.Colour{"36", "33", "35", "32", "34", "31"}

func (r *logReader) read(ctx context.Context, pod *corev1.Pod) error {
	options := &corev1.PodLogOptions{Container: r.options.container, Follow: r.options.follow, Previous: r.options.previous}
	if r.options.tail >= 0 {
		options.TailLines = &r.options.tail
	}
	if r.options.since > 0 {
		seconds := int64(r.options.since.Seconds())
		options.SinceSeconds = &seconds
	}
	stream, err := r.access.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", pod.Name, err)
	}
	defer func() { _ = stream.Close() }()
	last := pod.Name[len(pod.Name)-1]
	prefix := r.paint.In(podColours[int(last)%len(podColours)], "["+pod.Name+"]") + " "
	lines := bufio.NewReaderSize(stream, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			r.write(prefix, line)
		}
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("%s: %w", pod.Name, err)
		}
	}
}

func (r *logReader) write(prefix string, line []byte) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if line[len(line)-1] != '\n' {
		line = append(append([]byte(nil), line...), '\n')
	}
	if r.terminal {
		line = []byte(text.Lines(string(line)))
	}
	_, _ = io.WriteString(r.out, prefix)
	_, _ = r.out.Write(line)
}

// follow reads the log of every pod from when it runs.
func (r *logReader) follow(ctx context.Context, c *v1alpha1.LiveStashCluster) error {
	var reads sync.WaitGroup
	defer reads.Wait()
	selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(render.SelectorLabels(c))}
	for ctx.Err() == nil {
		changes, err := r.access.Watch(ctx, &corev1.PodList{}, client.InNamespace(c.Namespace), selector)
		if err != nil {
			return err
		}
		for change := range changes.ResultChan() {
			pod, is := change.Object.(*corev1.Pod)
			if !is || change.Type == watch.Deleted {
				continue
			}
			container := started(pod, r.options.container)
			if container == "" || r.known[container] {
				continue
			}
			r.known[container] = true
			reads.Go(func() { r.followed(r.read(ctx, pod)) })
		}
		changes.Stop()
	}
	return nil
}

func (r *logReader) followed(err error) {
	if err != nil {
		r.write("", []byte(err.Error()))
	}
}

// started is the container of that name which has, or had, something to say. Empty: none.
func started(pod *corev1.Pod, container string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container && (status.State.Running != nil || status.State.Terminated != nil) {
			return fmt.Sprintf("%s of %s, restarted %d times", container, pod.UID, status.RestartCount)
		}
	}
	return ""
}
