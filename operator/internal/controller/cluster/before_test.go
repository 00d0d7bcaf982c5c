package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// What the Job controller and the garbage collector would do, a test does itself.

func migrates(spec *v1alpha1.LiveStashClusterSpec) {
	spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"migrate"}}
}

// jobFor waits for the Job that runs that image.
func jobFor(t *testing.T, cluster *v1alpha1.LiveStashCluster, image string) *batchv1.Job {
	t.Helper()
	var job *batchv1.Job
	suite.Eventually(t, func() error {
		job = await(t, cluster.Namespace, "shop-before", &batchv1.Job{})
		if got := job.Spec.Template.Spec.Containers[0].Image; got != image || !job.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the Job runs %s, want %s", got, image)
		}
		return nil
	})
	return job
}

// podOfJob makes the pod of a Job.
func podOfJob(t *testing.T, job *batchv1.Job, status corev1.PodStatus) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.GenerateName = job.Namespace, job.Name+"-"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	suite.Must(t, api.Create(t.Context(), pod))
	pod.Status = status
	suite.Must(t, api.Status().Update(t.Context(), pod))
	return pod
}

// ends ends a Job.
func ends(t *testing.T, job *batchv1.Job, how batchv1.JobConditionType) {
	t.Helper()
	now := metav1.Now()
	job.Status.StartTime = &now
	first := batchv1.JobFailureTarget
	if how == batchv1.JobComplete {
		first, job.Status.CompletionTime, job.Status.Succeeded = batchv1.JobSuccessCriteriaMet, &now, 1
	}
	for _, one := range []batchv1.JobConditionType{first, how} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: one, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: "Played", Message: "Job has reached the specified backoff limit",
		})
	}
	suite.Must(t, api.Status().Update(t.Context(), job))
}

// collected lets the garbage collector do its work on a Job that is being deleted with all that belongs to it.
func collected(t *testing.T, job *batchv1.Job) {
	t.Helper()
	suite.Eventually(t, func() error {
		if err := get(t, job); err != nil || job.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the Job is not being deleted: %w", err)
		}
		suite.Must(t, api.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(job.Namespace),
			client.MatchingLabels(job.Spec.Template.Labels), client.GracePeriodSeconds(0)))
		job.Finalizers = nil
		return api.Update(t.Context(), job)
	})
}

func imageOf(t *testing.T, cluster *v1alpha1.LiveStashCluster) string {
	t.Helper()
	return fleetTemplate(t, cluster).Spec.Containers[0].Image
}

const second = "ghcr.io/acme/shop:2"

func TestNewFleetWaitsForTheCommand(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), migrates)
	job := jobFor(t, cluster, cluster.Spec.Image)
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonBeforeRunning)
	if err := get(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop"}}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a StatefulSet before the command has succeeded: %v", err)
	}
	ends(t, job, batchv1.JobComplete)
	if set := fleetSet(t, cluster); *set.Spec.Replicas != 2 || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		t.Errorf("the StatefulSet is %+v", set.Spec)
	}
	// Who deletes the Job, or the StatefulSet, does not have it run again.
	suite.Must(t, api.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	suite.Must(t, api.Delete(t.Context(), fleetSet(t, cluster)))
	if set := fleetSet(t, cluster); *set.Spec.Replicas != 2 {
		t.Errorf("the StatefulSet is %+v", set.Spec)
	}
	if err := get(t, job); !apierrors.IsNotFound(err) {
		t.Errorf("the command runs again: %v", err)
	}
}

func TestCommandBeforeARollout(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, migrates)
	looks(t, cluster, "with a command and nothing to roll out")
	if err := get(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-before"}}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Job: %v", err)
	}

	newImage(t, cluster, second)
	job := jobFor(t, cluster, second)
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeRunning, "Job shop-before runs")
	looks(t, cluster, "while the command runs")

	podOfJob(t, job, ended(1, "\x1b[31mboot\x1b[0m\n\x00** (Postgrex.Error) relation \"users\" exists\r\n"))
	ends(t, job, batchv1.JobFailed)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeFailed,
		"Job shop-before failed (exit code 1)", "Its last lines:\nboot\n** (Postgrex.Error) relation \"users\" exists")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonBeforeFailed)
	condition(t, cluster, v1alpha1.ConditionReconciling, metav1.ConditionFalse, v1alpha1.ReasonBeforeFailed)
	looks(t, cluster, "when the command has failed")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](3) })
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 3)
	acted(t, cluster, "a", "b")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](2) })
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)

	// The way back needs no command.
	newImage(t, cluster, "ghcr.io/acme/shop:1")
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	newImage(t, cluster, second)
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeFailed, "exit code 1")

	// Another command is another try.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Rollout.Before.Args = []string{"--force"} })
	collected(t, job)
	again := jobFor(t, cluster, second)
	if diff := cmp.Diff([]string{"--force"}, again.Spec.Template.Spec.Containers[0].Args); diff != "" || again.UID == job.UID {
		t.Errorf("arguments of the second Job (-want +got):\n%s", diff)
	}
	ends(t, again, batchv1.JobComplete)
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, pods[1].Name)
}

// ended is the status of a pod whose command has ended.
func ended(code int32, log string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: log}},
	}}}
}

func TestCommandsRunOneAfterTheOther(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, migrates)
	newImage(t, cluster, second)
	job := jobFor(t, cluster, second)
	running := podOfJob(t, job, corev1.PodStatus{Phase: corev1.PodRunning})
	acted(t, cluster, "a", "b")

	const third = "ghcr.io/acme/shop:3"
	newImage(t, cluster, third)
	acted(t, cluster, "a", "c")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeRunning, "still runs for an earlier template")
	if got := jobFor(t, cluster, second); got.UID != job.UID || !got.DeletionTimestamp.IsZero() {
		t.Error("the first Job was not waited for")
	}
	ends(t, job, batchv1.JobComplete)
	suite.Eventually(t, func() error {
		if err := get(t, job); err != nil || job.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the first Job is in the way: %w", err)
		}
		return nil
	})
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	looks(t, cluster, "when the command of an earlier template has succeeded")
	// Somebody deletes the Job and leaves its pod.
	job.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), job))
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeRunning, running.Name+" of a deleted Job shop-before has not stopped yet")
	suite.Must(t, api.Delete(t.Context(), running, client.GracePeriodSeconds(0)))
	jobFor(t, cluster, third)

	// What has run needs not run again.
	newImage(t, cluster, second)
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	looks(t, cluster, "with pods that are waited for")
}

// A Job that cannot begin, for example because of a misspelt image, is not waited for.
func TestCommandThatCannotBegin(t *testing.T) {
	cluster, _ := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, migrates)
	newImage(t, cluster, "ghcr.io/acme/shoop:2")
	job := jobFor(t, cluster, "ghcr.io/acme/shoop:2")
	podOfJob(t, job, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", Image: "ghcr.io/acme/shoop:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}})
	acted(t, cluster, "a", "b")
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPodFailing, "the image ghcr.io/acme/shoop:2 cannot be had")
	newImage(t, cluster, second)
	collected(t, job)
	ends(t, jobFor(t, cluster, second), batchv1.JobComplete)
	acted(t, cluster, "a", "c")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)

	// Without a command there is nothing to wait for, and no Job.
	job = jobFor(t, cluster, second)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Rollout.Before, spec.Image = nil, "ghcr.io/acme/shop:3"
	})
	collected(t, job)
	suite.Eventually(t, func() error {
		if image := imageOf(t, cluster); image != "ghcr.io/acme/shop:3" {
			return fmt.Errorf("the template has %s", image)
		}
		return nil
	})
}

// A command that does not end is ended by its deadline and has failed: users stay on the pods that there are.
func TestCommandThatNeverEnds(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		migrates(spec)
		spec.Rollout.Before.Deadline = &metav1.Duration{Duration: 90 * time.Second}
	})
	newImage(t, cluster, second)
	job := jobFor(t, cluster, second)
	if pod, all := *job.Spec.Template.Spec.ActiveDeadlineSeconds, *job.Spec.ActiveDeadlineSeconds; pod != 90 || all <= pod {
		t.Errorf("the pod may take %d s and the Job %d s", pod, all)
	}
	acted(t, cluster, "a", "b")
	status := ended(137, "adding an index\n")
	status.Reason = "DeadlineExceeded"
	podOfJob(t, job, status)
	ends(t, job, batchv1.JobFailed)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonBeforeFailed, "exit code 137, DeadlineExceeded", "adding an index")
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonBeforeFailed)
	looks(t, cluster, "when the command has not ended")
	for _, pod := range pods {
		if suite.Must(t, get(t, pod)); !pod.DeletionTimestamp.IsZero() {
			t.Errorf("%s is replaced", pod.Name)
		}
	}
}

func TestSomebodyElsesJobIsNotTaken(t *testing.T) {
	namespace := suite.Namespace(t, api)
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	suite.Must(t, api.Create(context.Background(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-before"}, Spec: batchv1.JobSpec{Template: pod},
	}))
	cluster := newCluster(t, namespace, migrates)
	says := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	if !strings.Contains(says, "Job shop-before") {
		t.Errorf("the condition says %s", says)
	}
}

func TestLastLines(t *testing.T) {
	long := strings.Repeat("ä", mostLog)
	cases := map[string]struct{ log, want string }{
		"nothing":      {" \n", ""},
		"plain":        {"one\ntwo\n", "one\ntwo"},
		"colours":      {"\x1b[1;31merror\x1b[0m at\tnight\x07\r\n", "error at night"},
		"no text":      {"a\xff\xfeb", "ab"},
		"many lines":   {strings.Repeat("line\n", mostLines+5), strings.TrimSpace(strings.Repeat("line\n", mostLines))},
		"a long one":   {long, "…" + strings.Repeat("ä", mostLog/2)},
		"a split rune": {"x" + long + "y", "…" + strings.Repeat("ä", mostLog/2-1) + "y"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, lastLines(c.log)); diff != "" {
				t.Errorf("last lines (-want +got):\n%s", diff)
			}
		})
	}
}
