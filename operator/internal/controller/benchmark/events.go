package benchmark

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

const (
	// latestBegin is how late an event may begin: the runners take returns for those during the event by the time that was planned.
	latestBegin = 10 * time.Second
	// eventVariable is what a Rollout without an image changes: the pods' environment. Its value is the number of the event.
	eventVariable = "STASH_BENCHMARK_EVENT"

	reasonEventBegun = "EventBegun"
	reasonEventOver  = "EventOver"
)

// eventRows are the events of a run that is to begin.
func eventRows(run loadtest.Run) []v1alpha1.BenchmarkEventStatus {
	var rows []v1alpha1.BenchmarkEventStatus
	for _, event := range run.Events {
		rows = append(rows, v1alpha1.BenchmarkEventStatus{Kind: event.Kind})
	}
	return rows
}

// stageEvents does to the fleet what spec.events says, when its time has come, and sees that each is over in time.
func (r *Reconciler) stageEvents(ctx context.Context, p *pass) error {
	if p.row.Phase != v1alpha1.RunRunning || p.cluster == nil || p.seen.Over() {
		return nil
	}
	for i, event := range p.run.Events {
		if i < len(p.row.Events) && p.row.Events[i].FinishedAt == nil {
			return r.stageEvent(ctx, p, i, event)
		}
	}
	return nil
}

func (r *Reconciler) stageEvent(ctx context.Context, p *pass, number int, event loadtest.Event) error {
	row := &p.row.Events[number]
	elapsed := r.Clock.Since(p.row.LoadStartedAt.Time)
	if elapsed < event.Begins {
		p.DueIn(event.Begins - elapsed)
		return nil
	}
	if row.StartedAt == nil {
		return r.beginEvent(ctx, p, row, event, elapsed-event.Begins)
	}
	whole, lacks, err := r.makeEvent(ctx, p, number, event)
	if err != nil {
		return err
	}
	if whole {
		row.FinishedAt = r.now()
		r.Recorder.Eventf(p.benchmark, nil, corev1.EventTypeNormal, reasonEventOver, "Stage", "%s: %s is over after %s",
			p.row.Name, event.Kind, row.FinishedAt.Sub(row.StartedAt.Time))
		p.DueIn(0)
		return nil
	}
	if elapsed >= event.Ends {
		return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("%s was not over within %s: %s. Give it more time (spec.events[].within), or see what holds the fleet up.",
			nameOf(event), event.Ends-event.Begins, lacks)))
	}
	p.DueIn(event.Ends - elapsed)
	return nil
}

// beginEvent notes that an event begins. It is made in the next pass: what is in the status is made once, whoever makes it.
func (r *Reconciler) beginEvent(ctx context.Context, p *pass, row *v1alpha1.BenchmarkEventStatus, event loadtest.Event, late time.Duration) error {
	if late > latestBegin {
		return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("%s would have begun %s late, because the operator was away or slow, and the runners tell returns during it by its time.",
			nameOf(event), late.Round(time.Second))))
	}
	switch event.Kind {
	case v1alpha1.EventRollout:
		if event.Image != "" && event.Image == p.cluster.Spec.Image {
			return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("%s changes nothing, because the fleet has the image %s already: name another one, or remove image, and the same one is rolled out anew.",
				nameOf(event), event.Image)))
		}
	case v1alpha1.EventScale:
		if now := p.cluster.DesiredReplicas(); now == ptr.Deref(event.Replicas, 0) {
			return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("%s changes nothing, because the fleet has %d pods already: set another number of replicas.", nameOf(event), now)))
		}
	case v1alpha1.EventDeletePod:
		pods, err := r.podsOf(ctx, p.cluster)
		if err != nil {
			return err
		}
		ready := slices.IndexFunc(pods, serving)
		if ready < 0 {
			return p.wait("%s: %s waits for a pod that is ready", p.row.Name, event.Kind)
		}
		row.Pod, row.PodUID = pods[ready].Name, pods[ready].UID
	}
	row.StartedAt = r.now()
	r.Recorder.Eventf(p.benchmark, nil, corev1.EventTypeNormal, reasonEventBegun, "Stage", "%s: %s begins", p.row.Name, strings.TrimSpace(string(event.Kind)+" "+row.Pod))
	p.DueIn(0)
	return p.wait("%s: %s begins", p.row.Name, event.Kind)
}

// makeEvent asks for what the event is, if nobody has, and returns whether the fleet is whole again; else what it lacks.
func (r *Reconciler) makeEvent(ctx context.Context, p *pass, number int, event loadtest.Event) (whole bool, lacks string, err error) {
	if event.Kind == v1alpha1.EventDeletePod {
		lacks, err = r.replacePod(ctx, p, p.row.Events[number])
	} else {
		lacks, err = r.changeFleet(ctx, p, number, event)
	}
	if err != nil || lacks != "" {
		return false, lacks, err
	}
	lacks = unready(p.cluster)
	return lacks == "", lacks, nil
}

// changeFleet writes into the fleet's spec what a Rollout or Scale wants. Empty: the operator's other half knows of it.
func (r *Reconciler) changeFleet(ctx context.Context, p *pass, number int, event loadtest.Event) (lacks string, err error) {
	changed := p.cluster.DeepCopy()
	if event.Kind == v1alpha1.EventScale {
		if changed.DesiredReplicas() == *event.Replicas {
			return "", nil
		}
		changed.Spec.Replicas = event.Replicas
	} else if !deployed(changed, number, event.Image) {
		return "", nil
	}
	// A fleet of the benchmark's own: findCluster has seen to that.
	err = r.Patch(ctx, changed, client.MergeFrom(p.cluster), apply.FieldOwner)
	if err != nil {
		return "", fmt.Errorf("changing LiveStashCluster %s for %s: %w", changed.Name, nameOf(event), err)
	}
	return "the fleet was asked for it a moment ago", nil
}

// deployed changes the fleet's spec so that it is deployed anew, and returns whether it was not so already.
func deployed(c *v1alpha1.LiveStashCluster, number int, image string) bool {
	if image != "" && c.Spec.Image != image {
		c.Spec.Image = image
		return true
	}
	if image != "" {
		return false
	}
	value := strconv.Itoa(number + 1)
	for i := range c.Spec.Env {
		if one := &c.Spec.Env[i]; one.Name == eventVariable {
			differs := one.Value != value
			one.Value = value
			return differs
		}
	}
	c.Spec.Env = append(c.Spec.Env, corev1.EnvVar{Name: eventVariable, Value: value})
	return true
}

// replacePod deletes the pod of the event, and says what lacks until another one is ready in its place.
func (r *Reconciler) replacePod(ctx context.Context, p *pass, row v1alpha1.BenchmarkEventStatus) (lacks string, err error) {
	pods, err := r.podsOf(ctx, p.cluster)
	if err != nil {
		return "", err
	}
	place := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == row.Pod })
	if place < 0 {
		return fmt.Sprintf("pod %s is gone, and no other has taken its place", row.Pod), nil
	}
	pod := &pods[place]
	switch {
	case pod.UID != row.PodUID && serving(*pod):
		return "", nil
	case pod.UID != row.PodUID:
		return fmt.Sprintf("the new pod %s is not ready", row.Pod), nil
	case pod.DeletionTimestamp.IsZero():
		err = client.IgnoreNotFound(r.Delete(ctx, pod, client.Preconditions{UID: &row.PodUID}))
	}
	if err != nil {
		return "", fmt.Errorf("deleting pod %s: %w", row.Pod, err)
	}
	return fmt.Sprintf("pod %s still stops", row.Pod), nil
}

// serving is whether a pod is ready and not told to stop.
func serving(pod corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// nameOf is an event in words: Rollout at 1m0s.
func nameOf(event loadtest.Event) string { return fmt.Sprintf("%s at %s", event.Kind, event.Begins) }

// unfinishedEvent says which event was not over when the runners were. Empty: all were.
func unfinishedEvent(p *pass) string {
	for i, row := range p.row.Events {
		if row.FinishedAt == nil && i < len(p.run.Events) {
			return fmt.Sprintf("%s was not over when the run was: the operator was away, or the fleet took longer.", nameOf(p.run.Events[i]))
		}
	}
	return ""
}

// madeDuring is whether something was made while one of the events went on. Times are whole seconds, of two clocks.
func madeDuring(events []v1alpha1.BenchmarkEventStatus, made time.Time) bool {
	return slices.ContainsFunc(events, func(event v1alpha1.BenchmarkEventStatus) bool {
		return event.StartedAt != nil && !made.Before(event.StartedAt.Add(-time.Second)) &&
			(event.FinishedAt == nil || !made.After(event.FinishedAt.Time))
	})
}

// eventsOf are the events of the run that came to an end, for the report.
func eventsOf(p *pass) []report.Event {
	var all []report.Event
	for _, row := range p.row.Events {
		if row.StartedAt == nil || row.FinishedAt == nil || p.row.LoadStartedAt == nil {
			continue
		}
		all = append(all, report.Event{
			Kind: string(row.Kind), AtSeconds: row.StartedAt.Sub(p.row.LoadStartedAt.Time).Seconds(), TookSeconds: row.FinishedAt.Sub(row.StartedAt.Time).Seconds(),
		})
	}
	return all
}

// eventsNote is what a run's events cost, in a sentence. Empty when there were none.
func eventsNote(run report.Run) string {
	if len(run.Events) == 0 {
		return ""
	}
	words := make([]string, 0, len(run.Events))
	for _, event := range run.Events {
		words = append(words, fmt.Sprintf("%s after %.0f s took %.0f s", event.Kind, event.AtSeconds, event.TookSeconds))
	}
	text := " " + strings.Join(words, ", ") + "."
	if run.Counts == nil {
		return text
	}
	text += fmt.Sprintf(" Sockets that it cut: %d. Returns that found nothing: %d.", run.Counts.Of[report.CountCut], run.Counts.Of[report.CountNotRecovered])
	during, outside := run.Durations["reconnect_during"], run.Durations["reconnect_outside"]
	if during.Count > 0 && outside.Count > 0 && !run.ClientBound {
		text += fmt.Sprintf(" p99 of a return: %.1f ms during, %.1f ms outside.", during.P99, outside.P99)
	}
	return text
}
