package cluster

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

const (
	// mostPrepared is how many templates are remembered that need no run of spec.rollout.before.
	mostPrepared = 20
	// mostLines and mostLog are how much of the log of a Job that failed is told: lines, bytes.
	mostLines, mostLog = 20, 1500
)

// before is what is to be done about spec.rollout.before.
type before struct {
	wanted *fleet.Before
	// withheld is whether no pod may have the wanted template yet.
	withheld bool
	// failed is whether that stays so until somebody does something.
	failed bool
	// message says how it goes with the Job.
	message string
	// make: the Job is wanted and there is none. end: the one that there is must go.
	make, end bool
}

// withholds says why no pod may have the wanted template yet. Empty: pods may.
func (b *before) withholds() string {
	if b.withheld {
		return b.message
	}
	return ""
}

// observeBefore looks at the Job, and at what is known of earlier ones.
func (r *Reconciler) observeBefore(ctx context.Context, c *v1alpha1.LiveStashCluster, seen *observation) error {
	identity := &corev1.ServiceAccount{}
	err := r.Get(ctx, client.ObjectKeyFromObject(c), identity)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking up the ServiceAccount: %w", err)
	}
	seen.prepared = preparedFor(c, seen.statefulSet, identity)

	job := &batchv1.Job{}
	err = r.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: fleet.BeforeName(c)}, job)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking up the Job that runs before a rollout: %w", err)
	}
	if err != nil || !metav1.IsControlledBy(job, c) {
		return nil
	}
	seen.beforeJob = job
	pods, err := r.podsOf(ctx, c, render.BeforeComponent)
	seen.beforePods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) })
	return err
}

// preparedFor are the digests of templates that the fleet's objects tell of.
func preparedFor(c *v1alpha1.LiveStashCluster, objects ...client.Object) []string {
	var prepared []string
	for _, object := range objects {
		if !metav1.IsControlledBy(object, c) {
			continue
		}
		for digest := range strings.SplitSeq(object.GetAnnotations()[fleet.PreparedAnnotation], ",") {
			if digest != "" && !slices.Contains(prepared, digest) {
				prepared = append(prepared, digest)
			}
		}
	}
	return prepared
}

// judgeTemplate decides whether pods may have the wanted template, and what is to be done for it.
func (r *Reconciler) judgeTemplate(_ context.Context, p *pass) error {
	wanted, err := fleet.BeforeRollout(p.cluster, p.inputs)
	if err != nil {
		return invalidSpec(err)
	}
	p.before, p.inputs.Prepared = judge(p.cluster, wanted, &p.seen)
	return nil
}

// judge is what is to be done for the wanted template, and which templates need no run any more. That goes into objects that are
// applied before a Job is ended or made, so an operator that dies at any point forgets none.
func judge(c *v1alpha1.LiveStashCluster, wanted *fleet.Before, seen *observation) (before, []string) {
	b, prepared, job := before{wanted: wanted}, seen.prepared, seen.beforeJob
	note := func(template string) {
		if !slices.Contains(prepared, template) {
			prepared = append([]string{template}, prepared...)
		}
	}
	if job != nil && finished(job) == batchv1.JobComplete {
		note(job.Annotations[fleet.TemplateAnnotation])
	}
	if c.Spec.Rollout.Before == nil {
		note(wanted.Template)
		b.end = job != nil
		return b, firstOf(prepared)
	}
	b.withheld = !slices.Contains(prepared, wanted.Template)
	b.look(seen)
	return b, firstOf(prepared)
}

func firstOf(prepared []string) []string { return prepared[:min(len(prepared), mostPrepared)] }

// look says what is to be done about the Job that there is, or that there should be.
func (b *before) look(seen *observation) {
	job := seen.beforeJob
	if job == nil {
		b.make, b.message = b.withheld, "the Job that runs before the rollout is being made"
		return
	}
	same, end := job.Annotations[fleet.AttemptAnnotation] == b.wanted.Attempt, finished(job)
	switch {
	case !job.DeletionTimestamp.IsZero():
		b.message = fmt.Sprintf("Job %s is being deleted, and its pod has not stopped yet", job.Name)
	case same && end == batchv1.JobFailed:
		b.failed, b.message = b.withheld, failure(job, seen.beforePods)
	case same:
		b.message = fmt.Sprintf("Job %s runs: pods get the new template when it has succeeded", job.Name)
	case end != "":
		b.end, b.message = b.withheld, fmt.Sprintf("Job %s of an earlier template makes way for the new one", job.Name)
	case firstTrouble(seen.beforePods) != "":
		// What nobody wants any more and cannot begin need not be waited for.
		b.end, b.message = true, fmt.Sprintf("Job %s of an earlier template cannot begin and makes way for the new one", job.Name)
	default:
		b.message = fmt.Sprintf("Job %s still runs for an earlier template or rollout.before: it is waited for until it ends, by its deadline or because you delete it", job.Name)
	}
}

// finished is how the Job ended: JobComplete or JobFailed. Empty: it has not.
func finished(job *batchv1.Job) batchv1.JobConditionType {
	for _, condition := range job.Status.Conditions {
		isEnd := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if isEnd && condition.Status == corev1.ConditionTrue {
			return condition.Type
		}
	}
	return ""
}

// runBefore makes the Job, or ends the one that is in its way. There is one name for all Jobs, and a Job's name is free when its
// pods are gone: so there are never two at the same time, whoever asks for them.
func (r *Reconciler) runBefore(ctx context.Context, p *pass) error {
	if p.lacking {
		return nil // what its pods need may be missing, and what is known of the Job that there is may not be noted yet
	}
	switch job := p.seen.beforeJob; {
	case p.before.end && job.DeletionTimestamp.IsZero():
		err := r.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Job %s: %w", job.Name, err)
		}
	case p.before.make:
		return r.makeJob(ctx, p)
	}
	return nil
}

// makeJob makes the Job, unless the API server knows better than the cache.
func (r *Reconciler) makeJob(ctx context.Context, p *pass) error {
	c, job := p.cluster, p.before.wanted.Job()
	pods := &corev1.PodList{}
	err := r.Live.List(ctx, pods, client.InNamespace(c.Namespace),
		client.MatchingLabels{render.ClusterLabel: c.Name, render.ComponentLabel: render.BeforeComponent})
	if err != nil {
		return fmt.Errorf("looking for pods of an earlier Job %s: %w", job.Name, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			p.before.message = fmt.Sprintf("pod %s of a deleted Job %s has not stopped yet", pod.Name, job.Name)
			p.DueIn(lookAtRollout)
			return nil
		}
	}
	identity := metadataObject("ServiceAccount")
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(c), identity); err != nil {
		return fmt.Errorf("looking up what has run before: %w", err)
	}
	if slices.Contains(preparedFor(c, identity), p.before.wanted.Template) {
		p.DueIn(lookAtRollout)
		return nil
	}
	err = r.Create(ctx, job, apply.FieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return r.jobOfSomebodyElse(ctx, p, err)
	}
	if err != nil {
		return fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	return reconcile.Await(ctx, r.Client, job, &batchv1.Job{})
}

// jobOfSomebodyElse is the error when the Job's name is taken: by another's Job, or by one that the cache does not know yet.
func (r *Reconciler) jobOfSomebodyElse(ctx context.Context, p *pass, taken error) error {
	live := &metav1.PartialObjectMetadata{TypeMeta: render.JobType}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.cluster.Namespace, Name: fleet.BeforeName(p.cluster)}, live)
	if err != nil {
		return fmt.Errorf("looking up the Job that is in the way: %w", err)
	}
	return cmp.Or(r.applier().CheckOwner(p.cluster, live), taken)
}

// failure says why the Job failed, and what to do.
func failure(job *batchv1.Job, pods []corev1.Pod) string {
	why := "it failed"
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobFailed {
			why = condition.Message
		}
	}
	last := lastEnded(pods)
	log := ""
	switch {
	case last == nil:
	case neverStarted(terminated(last)):
		why = startAdvice(last, terminated(last).Message)
	default:
		log = lastLines(terminated(last).Message)
		why = fmt.Sprintf("exit code %d", terminated(last).ExitCode)
		if last.Status.Reason != "" {
			why += ", " + last.Status.Reason
		}
	}
	text := fmt.Sprintf("Job %s failed (%s) and is not tried again: users stay on the pods that there are. "+
		"Change the template or spec.rollout.before, or delete the Job to try the same again", job.Name, why)
	if log == "" {
		return text + fmt.Sprintf(". It left no log: `kubectl describe job -n %s %s` tells more", job.Namespace, job.Name)
	}
	return text + ". Its last lines:\n" + log
}

// lastEnded is the newest of the pods whose command has ended. Nil: there is none.
func lastEnded(pods []corev1.Pod) *corev1.Pod {
	var last *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if terminated(pod) != nil && (last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			last = pod
		}
	}
	return last
}

// lastWord is what a pod of the Job said last, when it has ended.
func lastWord(pod *corev1.Pod) string {
	if pod.Labels[render.ComponentLabel] != render.BeforeComponent || terminated(pod) == nil {
		return ""
	}
	return "ended: " + terminated(pod).Message
}

// escapes are the sequences with which programs colour their lines.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]")

// lastLines is the end of a log, with nothing in it that a terminal would act on.
func lastLines(log string) string {
	log = strings.ToValidUTF8(escapes.ReplaceAllString(log, ""), "")
	log = strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ReplaceAll(log, "\t", " "))
	lines := strings.Split(strings.TrimSpace(log), "\n")
	lines = lines[max(0, len(lines)-mostLines):]
	text := strings.Join(lines, "\n")
	if len(text) <= mostLog {
		return text
	}
	return "…" + strings.ToValidUTF8(text[len(text)-mostLog:], "")
}
