package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// drained is how the drain of a pod ended.
type drained struct {
	Pod string `json:"pod"`
	// Report is the agent's own. Nil: it left none.
	Report *agentclient.Report `json:"report,omitempty"`
}

func (t *tool) drainCommand() *cobra.Command {
	timeout := time.Duration(0)
	command := &cobra.Command{
		Use:   "drain POD",
		Short: "Move the users of one pod to the others, and replace it",
		Long: "Move the users of one pod to the others, and replace it: evicts the pod, as `kubectl drain` does, so that the fleet's PodDisruptionBudget holds. " +
			"Says how many stashes were handed over. The pod comes back with the template that it had.",
		Example: "  kubectl livestash drain shop-1",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return t.drain(ctx, args[0])
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "for how long to wait until the pod is gone")
	return t.forScripts(command)
}

func (t *tool) drain(ctx context.Context, name string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	owner, err := access.Owner(ctx, name)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := access.Get(ctx, client.ObjectKey{Namespace: access.Namespace, Name: name}, pod); err != nil {
		return err
	}
	// Before the eviction: a pod may be gone at once.
	changes, err := watchPod(ctx, access, pod)
	if err != nil {
		return err
	}
	if err := evict(ctx, access, pod, owner); err != nil {
		changes.Stop()
		return err
	}
	report, err := awaitEnd(ctx, access, changes, pod)
	if err != nil {
		return err
	}
	result := drained{Pod: name, Report: report}
	return t.print(result, func(w io.Writer, _ text.Paint) error {
		_, err := fmt.Fprintln(w, text.Safe(result.sentence()))
		return err
	})
}

func (d drained) sentence() string {
	if d.Report == nil {
		return d.Pod + " has stopped, and its agent left no report."
	}
	sentence := fmt.Sprintf("%s was drained in %.1f s: of %s, %d handed over and %d lost; %s closed.", d.Pod, d.Report.Seconds,
		text.Count(d.Report.SessionsBefore, "stash", "stashes"), d.Report.HandedOff, d.Report.NotHandedOff, text.Count(d.Report.SocketsClosed, "connection", "connections"))
	if d.Report.Reason != "" {
		sentence += " " + d.Report.Reason
	}
	return sentence
}

// evict asks for the end of a pod, as `kubectl drain` does.
func evict(ctx context.Context, access *kube.Access, pod *corev1.Pod, owner string) error {
	err := access.Clientset.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("the PodDisruptionBudget of %s does not let %s go: another pod is away, or it is the only one. Wait until the fleet is ready, or replace the only pod with "+
			"`kubectl livestash restart %s`, which brings a second one first (%w)", owner, pod.Name, owner, err)
	}
	return err
}

// watchPause is between the end of a watch and the next.
const watchPause = time.Second

// watchPod tells of all changes of a pod since it was read.
func watchPod(ctx context.Context, access *kube.Access, pod *corev1.Pod) (watch.Interface, error) {
	return access.Watch(ctx, &corev1.PodList{}, client.InNamespace(pod.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name), Raw: &metav1.ListOptions{ResourceVersion: pod.ResourceVersion},
	})
}

// awaitEnd waits until a pod is gone, and reads what its agent said last. Nil: nothing. An API server ends a watch when it likes to: the pod
// is looked up then, and watched again.
func awaitEnd(ctx context.Context, access *kube.Access, changes watch.Interface, pod *corev1.Pod) (*agentclient.Report, error) {
	var report *agentclient.Report
	for {
		said, gone := reportOf(changes, pod)
		changes.Stop()
		report = cmp.Or(said, report)
		if gone {
			return report, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("the pod is not gone yet: it goes on draining; --timeout has the time to wait")
		case <-time.After(watchPause):
		}
		now := &corev1.Pod{}
		err := access.Get(ctx, client.ObjectKeyFromObject(pod), now)
		switch {
		case apierrors.IsNotFound(err), err == nil && now.UID != pod.UID:
			return report, nil
		case err == nil:
			report = cmp.Or(saidAtEnd(now), report)
			changes, err = watchPod(ctx, access, now)
		}
		if err != nil {
			return nil, err
		}
	}
}

// reportOf is what a pod's agent said last, and whether the pod is gone, as far as the watch tells.
func reportOf(changes watch.Interface, pod *corev1.Pod) (report *agentclient.Report, gone bool) {
	for change := range changes.ResultChan() {
		seen, is := change.Object.(*corev1.Pod)
		if !is {
			return report, false
		}
		if seen.UID != pod.UID {
			return report, true
		}
		report = cmp.Or(saidAtEnd(seen), report)
		if change.Type == watch.Deleted {
			return report, true
		}
	}
	return report, false
}

// saidAtEnd is what the agent said when the application ended. Nil: nothing yet.
func saidAtEnd(pod *corev1.Pod) *agentclient.Report {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; status.Name == fleet.AppContainer && ended != nil {
			if said, is := agentclient.ParseReport([]byte(ended.Message)); is {
				return &said
			}
		}
	}
	return nil
}
