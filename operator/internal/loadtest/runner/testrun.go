package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRunKind is k6-operator's.
var TestRunKind = schema.GroupVersionKind{Group: "k6.io", Version: "v1alpha1", Kind: "TestRun"}

// stageFinished is that of a TestRun whose runners have ended, however they did.
const stageFinished = "finished"

// Logs reads the end of a container's log.
type Logs interface {
	// Tail is at most the last 4 KiB of the log of a pod's container.
	Tail(ctx context.Context, namespace, pod, container string) (string, error)
}

// TestRun runs tests through k6-operator.
type TestRun struct {
	// Reader has TestRuns, their Jobs and pods.
	Reader client.Reader
	// Logs is asked for the last words of what failed without a report: in a TestRun, the termination message cannot be
	// taken from the log.
	Logs Logs
}

// testRun is k6-operator's TestRun, as far as it is used here.
type testRun struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              testRunSpec `json:"spec"`
}

type testRunSpec struct {
	Parallelism int32  `json:"parallelism"`
	Script      script `json:"script"`
	// Args and not Arguments, which is cut at spaces.
	Args        []string   `json:"args,omitempty"`
	Runner      testRunPod `json:"runner"`
	Initializer testRunPod `json:"initializer"`
	Starter     testRunPod `json:"starter"`
}

type script struct {
	LocalFile string        `json:"localFile,omitempty"`
	ConfigMap *scriptConfig `json:"configMap,omitempty"`
}

type scriptConfig struct {
	Name string `json:"name"`
	File string `json:"file"`
}

type testRunPod struct {
	Metadata                     map[string]map[string]string  `json:"metadata"`
	Image                        string                        `json:"image"`
	ImagePullPolicy              corev1.PullPolicy             `json:"imagePullPolicy,omitempty"`
	ImagePullSecrets             []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	AutomountServiceAccountToken string                        `json:"automountServiceAccountToken"`
	Env                          []corev1.EnvVar               `json:"env,omitempty"`
	Resources                    *corev1.ResourceRequirements  `json:"resources,omitempty"`
	NodeSelector                 map[string]string             `json:"nodeSelector,omitempty"`
	Tolerations                  []corev1.Toleration           `json:"tolerations,omitempty"`
	SecurityContext              *corev1.PodSecurityContext    `json:"securityContext"`
	ContainerSecurityContext     *corev1.SecurityContext       `json:"containerSecurityContext"`
	Volumes                      []corev1.Volume               `json:"volumes,omitempty"`
	VolumeMounts                 []corev1.VolumeMount          `json:"volumeMounts,omitempty"`
	ReadinessProbe               *corev1.Probe                 `json:"readinessProbe,omitempty"`
	LivenessProbe                *corev1.Probe                 `json:"livenessProbe,omitempty"`
}

// Object is the TestRun.
func (*TestRun) Object(test Test) client.Object {
	pod := func(image string) testRunPod {
		return testRunPod{
			Metadata:                     map[string]map[string]string{"labels": test.labels()},
			Image:                        image,
			ImagePullPolicy:              test.PullPolicy,
			ImagePullSecrets:             test.PullSecrets,
			AutomountServiceAccountToken: "false",
			NodeSelector:                 test.NodeSelector,
			Tolerations:                  test.Tolerations,
			SecurityContext:              podSecurity(),
			ContainerSecurityContext:     containerSecurity(),
		}
	}
	runner, initializer, starter := pod(test.Image), pod(test.Image), pod(test.StarterImage)
	// The initializer counts the VUs, which are a function of the options.
	runner.Env, initializer.Env = test.environment(), test.environment()
	runner.Resources = &test.Resources
	// The initializer writes to /tmp, and some versions of k6-operator give it a volume there, others none.
	runner.ContainerSecurityContext = test.runnerSecurity()
	runner.Volumes, runner.VolumeMounts = test.scratch()
	// k6-operator's own asks every ten seconds, and it waits for the answer.
	runner.ReadinessProbe = readinessProbe()
	// Its own liveness probe kills a k6 that is busy for three seconds.
	runner.LivenessProbe = patientProbe()

	wanted := testRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: TestRunKind.GroupVersion().String(), Kind: TestRunKind.Kind},
		ObjectMeta: test.meta(),
		Spec: testRunSpec{
			Parallelism: test.Runners,
			Script:      script{LocalFile: test.Script.File},
			Args:        test.output(),
			Runner:      runner,
			Initializer: initializer,
			Starter:     starter,
		},
	}
	if name := test.Script.ConfigMap; name != "" {
		wanted.Spec.Script = script{ConfigMap: &scriptConfig{Name: name, File: test.Script.File}}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&wanted)
	if err != nil {
		panic(err) // every type above can be converted
	}
	return &unstructured.Unstructured{Object: content}
}

// Begin does nothing: k6-operator lets the runners go.
func (*TestRun) Begin(context.Context, Observation) error { return nil }

// Observe looks at the TestRun, its Jobs and its pods.
func (r *TestRun) Observe(ctx context.Context, test Test) (Observation, error) {
	run := &unstructured.Unstructured{}
	run.SetGroupVersionKind(TestRunKind)
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: test.Namespace, Name: test.Name}, run)
	if apierrors.IsNotFound(err) {
		return Observation{}, nil
	}
	if err != nil {
		return Observation{}, fmt.Errorf("looking up TestRun %s: %w", test.Name, err)
	}
	stage, _, err := unstructured.NestedString(run.Object, "status", "stage")
	if err != nil {
		return Observation{}, fmt.Errorf("reading the stage of TestRun %s: %w", test.Name, err)
	}
	pods, err := podsOf(ctx, r.Reader, test)
	if err != nil {
		return Observation{}, err
	}
	seen := Observation{Made: true, MadeAt: run.GetCreationTimestamp().Time, TargetPods: targetPods(run), Begun: stage == "started" || stage == "stopped" || stage == stageFinished}
	if stage == "error" {
		seen.Problem = r.problem(ctx, test, pods)
	}
	seen.Runners, err = r.processes(ctx, test, stage, pods)
	if err != nil {
		return Observation{}, err
	}
	for i := range pods {
		seen.Waiting = cmp.Or(seen.Waiting, Trouble(&pods[i]))
	}
	if seen.Waiting == "" && stage != "" && !seen.Begun {
		seen.Waiting = fmt.Sprintf("k6-operator has TestRun %s at stage %s", test.Name, stage)
	}
	return seen, nil
}

// processes are the runners of the TestRun.
func (r *TestRun) processes(ctx context.Context, test Test, stage string, pods []corev1.Pod) ([]Process, error) {
	jobs := &batchv1.JobList{}
	err := r.Reader.List(ctx, jobs, client.InNamespace(test.Namespace), client.MatchingLabels{TestLabel: test.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the Jobs of TestRun %s: %w", test.Name, err)
	}
	var all []Process
	for number := range int(test.Runners) {
		found := runnerOf(fmt.Sprintf("%s-%d", test.Name, number+1), number, jobs.Items, pods)
		if found.State == Absent && stage == stageFinished {
			found.State = Lost
		}
		if err := r.addLastWords(ctx, test, &found); err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// runnerOf is the runner that a Job of the TestRun stands for.
func runnerOf(name string, number int, jobs []batchv1.Job, pods []corev1.Pod) Process {
	found := Process{Number: number, State: Absent}
	for i := range pods {
		if pods[i].Labels[batchv1.JobNameLabel] == name {
			found = later(found, process(number, &pods[i]))
		}
	}
	for i := range jobs {
		if why := ended(&jobs[i]); jobs[i].Name == name && why != "" && found.State != Ended {
			found.State, found.Message = Lost, why
		}
	}
	return found
}

// addLastWords completes a runner that failed and left no report.
func (r *TestRun) addLastWords(ctx context.Context, test Test, ended *Process) error {
	if ended.State != Ended || ended.ExitCode == 0 || ended.Message != "" {
		return nil
	}
	tail, err := r.Logs.Tail(ctx, test.Namespace, ended.Pod, container)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the log of pod %s: %w", ended.Pod, err)
	}
	ended.Message = tail
	return nil
}

// Served is whether the cluster has TestRuns.
func Served(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(TestRunKind.GroupKind(), TestRunKind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// problem is why k6-operator gave a test up. It says so in its own log alone, except for a script that k6 cannot read: then
// the initializer's log has k6's sentence.
func (r *TestRun) problem(ctx context.Context, test Test, pods []corev1.Pod) string {
	for i := range pods {
		if pods[i].Labels[batchv1.JobNameLabel] != test.Name+"-initializer" {
			continue
		}
		tail, err := r.Logs.Tail(ctx, test.Namespace, pods[i].Name, container)
		if err == nil && tail != "" {
			return "k6 cannot read the script: " + Sentence(tail)
		}
	}
	return fmt.Sprintf("k6-operator gave TestRun %s up; its log says why: "+
		"kubectl logs -A -l control-plane=controller-manager,app.kubernetes.io/name=k6-operator", test.Name)
}

// Sentence is what k6 complains of in the end of its log: the message of the last error, without time and level. It is text, whatever the
// log is.
func Sentence(log string) string {
	return strings.ToValidUTF8(complaint(log), "\uFFFD")
}

func complaint(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if message, found := errorMessage(lines[i]); found {
			return message
		}
	}
	return lines[len(lines)-1]
}

// errorMessage is the message of an error that k6 has logged, in either of its formats.
func errorMessage(line string) (string, bool) {
	if _, quoted, found := strings.Cut(line, `level=error msg="`); found {
		for end := 0; end < len(quoted); end++ {
			if quoted[end] == '\\' {
				end++
				continue
			}
			if quoted[end] != '"' {
				continue
			}
			if text, err := strconv.Unquote(`"` + quoted[:end] + `"`); err == nil {
				return text, true
			}
			break
		}
		return quoted, true
	}
	var entry struct{ Level, Msg string }
	if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" {
		return entry.Msg, true
	}
	return "", false
}
