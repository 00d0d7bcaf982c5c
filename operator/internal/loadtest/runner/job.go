package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/fencing"
)

// Job runs tests as indexed Jobs. Their runners wait, paused, until all are there, as those of k6-operator do.
type Job struct {
	// Reader has Jobs and their pods.
	Reader client.Reader
	// HTTP reaches the runners' pods.
	HTTP *http.Client
}

// errNoK6 says that somebody answers in k6's place.
var errNoK6 = errors.New("what answers there is not k6")

// indexVariable is where Kubernetes tells a pod of an indexed Job its number.
const indexVariable = "JOB_COMPLETION_INDEX"

// maxAnswer is more than k6 says of its status.
const maxAnswer = 4 << 10

// NewHTTP is a client for runners: no proxy of the environment, since pods are reached directly, and no long wait. It goes nowhere else: the
// image of a runner is the user's, and its redirects would lead the operator to places that the user cannot reach.
func NewHTTP() *http.Client {
	return &http.Client{
		Timeout:       5 * time.Second,
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Object is the Job.
func (*Job) Object(test Test) client.Object {
	args := slices.Concat(
		[]string{"run", "--quiet", "--paused", "--address=0.0.0.0:" + strconv.Itoa(apiPort)},
		test.output(), test.numbered(), []string{test.Script.path()},
	)
	pod := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext:              podSecurity(),
		ImagePullSecrets:             test.PullSecrets,
		NodeSelector:                 test.NodeSelector,
		Tolerations:                  test.Tolerations,
		Containers: []corev1.Container{{
			Name:            container,
			Image:           test.Image,
			ImagePullPolicy: test.PullPolicy,
			Args:            args,
			Env:             test.environment(),
			Resources:       test.Resources,
			SecurityContext: test.runnerSecurity(),
			ReadinessProbe:  readinessProbe(),
			// A script that k6 cannot read ends with a sentence in the log, and no report.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	pod.Volumes, pod.Containers[0].VolumeMounts = test.scratch()
	if test.Script.ConfigMap != "" {
		pod.Volumes = []corev1.Volume{{Name: "script", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: test.Script.ConfigMap}},
		}}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "script", MountPath: scriptDir}}
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: test.meta(),
		Spec: batchv1.JobSpec{
			CompletionMode: ptr.To(batchv1.IndexedCompletion),
			Completions:    ptr.To(test.Runners),
			Parallelism:    ptr.To(test.Runners),
			// Not backoffLimit: a runner with a failed threshold would end those that are about to write their reports.
			BackoffLimitPerIndex:  ptr.To[int32](0),
			ActiveDeadlineSeconds: ptr.To(int64(test.Limit.Seconds())),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels()},
				Spec:       pod,
			},
		},
	}
}

// numbered are the arguments that tell the runners apart in what they send. k6-operator has its own.
func (t Test) numbered() []string {
	if t.Prometheus == "" {
		return nil
	}
	return []string{"--tag", "runner=$(" + indexVariable + ")"}
}

// readinessProbe asks k6's API, which answers before the test begins. The timeout has room for a k6 that is busy.
func readinessProbe() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/v1/status", Port: intstr.FromInt32(apiPort)}},
		PeriodSeconds:  1,
		TimeoutSeconds: 5,
	}
}

// patientProbe lets k6 be busy for ten minutes: who waits for the run has a deadline.
func patientProbe() *corev1.Probe {
	probe := readinessProbe()
	probe.PeriodSeconds, probe.TimeoutSeconds, probe.FailureThreshold = 30, 10, 20
	return probe
}

// Observe looks at the Job and its pods.
func (j *Job) Observe(ctx context.Context, test Test) (Observation, error) {
	job := &batchv1.Job{}
	err := j.Reader.Get(ctx, client.ObjectKey{Namespace: test.Namespace, Name: test.Name}, job)
	if apierrors.IsNotFound(err) {
		return Observation{}, nil
	}
	if err != nil {
		return Observation{}, fmt.Errorf("looking up Job %s: %w", test.Name, err)
	}
	pods, err := podsOf(ctx, j.Reader, test)
	if err != nil {
		return Observation{}, err
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, job) || pod.Spec.HostNetwork })
	over := ended(job)
	seen := Observation{Made: true, MadeAt: job.CreationTimestamp.Time, TargetPods: targetPods(job)}
	for number := range int(test.Runners) {
		found := Process{Number: number, State: Absent}
		for i := range pods {
			if pods[i].Labels[batchv1.JobCompletionIndexAnnotation] == strconv.Itoa(number) {
				found = later(found, process(number, &pods[i]))
			}
		}
		unended := found.State == Absent || found.State == Pending || found.State == Ready
		switch {
		case unended && failed(job, number):
			found.State, found.Message = Lost, "its pod is gone"
		case unended && over != "":
			found.State, found.Message = Lost, over
		}
		seen.Runners = append(seen.Runners, found)
		seen.Waiting = cmp.Or(seen.Waiting, found.Trouble)
	}
	return seen, nil
}

// ended says why a Job runs no more pods; empty when it does.
func ended(job *batchv1.Job) string {
	for _, condition := range job.Status.Conditions {
		// FailureTarget comes first, while pods are being stopped.
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget) {
			return cmp.Or(condition.Message, condition.Reason)
		}
	}
	return ""
}

// failed is whether the Job counts the runner with that number as failed. It lists numbers as "1,3-5".
func failed(job *batchv1.Job, number int) bool {
	for part := range strings.SplitSeq(ptr.Deref(job.Status.FailedIndexes, ""), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, errFrom := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if errFrom == nil && errTo == nil && from <= number && number <= to {
			return true
		}
	}
	return false
}

// Begin resumes every runner through k6's API.
func (j *Job) Begin(ctx context.Context, seen Observation) error {
	failures := make([]error, len(seen.Runners))
	var asked sync.WaitGroup
	for i, process := range seen.Runners {
		if process.State != Ready {
			continue // it has begun and ended
		}
		asked.Go(func() {
			if err := j.resume(ctx, process.IP); err != nil {
				failures[i] = fmt.Errorf("runner %d (pod %s) cannot be told to begin: %w; "+
					"k6 listens on port %d of the pod, to which network policies must let the operator", process.Number, process.Pod, err, apiPort)
			}
		})
	}
	asked.Wait()
	return errors.Join(failures...)
}

// status is k6's answer to /v1/status, and what it takes as a change of it.
type status struct {
	Data struct {
		Type       string `json:"type"`
		ID         string `json:"id"`
		Attributes struct {
			Paused bool `json:"paused"`
		} `json:"attributes"`
	} `json:"data"`
}

func (j *Job) resume(ctx context.Context, ip string) error {
	url := "http://" + net.JoinHostPort(ip, strconv.Itoa(apiPort)) + "/v1/status"
	now, err := j.ask(ctx, http.MethodGet, url, nil)
	if err != nil || !now.Data.Attributes.Paused {
		return err
	}
	var wanted status
	wanted.Data.Type, wanted.Data.ID = "status", "default"
	body, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	_, err = j.ask(ctx, http.MethodPatch, url, body)
	return err
}

// ask never quotes the answer, nor anything else that the runner says: its errors become part of a status.
func (j *Job) ask(ctx context.Context, method, url string, body []byte) (status, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return status{}, err
	}
	response, err := j.HTTP.Do(request)
	var connection *net.OpError
	var network net.Error
	if errors.As(err, &connection) || errors.As(err, &network) && network.Timeout() || errors.Is(err, fencing.ErrExpired) {
		return status{}, err
	}
	if err != nil {
		return status{}, errNoK6
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return status{}, errNoK6
	}
	if response.StatusCode != http.StatusOK {
		return status{}, fmt.Errorf("it answered %d", response.StatusCode)
	}
	var answer status
	if json.Unmarshal(text, &answer) != nil {
		return status{}, errNoK6
	}
	return answer, nil
}
