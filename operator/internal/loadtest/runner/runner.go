// Package runner runs one load test as several k6 processes side by side: by a TestRun of k6-operator, or by an indexed Job.
//
// Neither a TestRun's stage nor a Job's condition says whether a test went well, so what is observed is each single
// process: whether it was there, how it ended and what it left behind.
package runner

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// BenchmarkLabel is on everything that a LiveStashBenchmark has made; its value is the benchmark's name.
	BenchmarkLabel = "livestash.dev/benchmark"
	// TestLabel is on every object of one test; its value is the test's name.
	TestLabel = "livestash.dev/benchmark-test"
	// targetPodsAnnotation is on the test's own object; its value is how many pods the fleet under test had when the test was made.
	targetPodsAnnotation = "livestash.dev/target-pods"

	// container is the name of k6's container, which k6-operator has chosen.
	container = "k6"
	// scriptDir is where a script from a ConfigMap is, also chosen by k6-operator.
	scriptDir = "/test"
	// apiPort is that of k6's own API, through which a runner that waits is started.
	apiPort = 6565
)

// Test is one load test, the same for whoever runs it.
type Test struct {
	// Name must never have been used before: k6-operator finds a test's objects by name.
	Name, Namespace string
	// Labels are on all objects of the test, besides TestLabel.
	Labels map[string]string
	// Owner ends the test when it is deleted.
	Owner metav1.OwnerReference
	// Image holds k6 and the scenarios, StarterImage the sh and curl of k6-operator's starter.
	Image, StarterImage string
	// UsersImage is whether the image is the user's, of which nobody knows where it writes.
	UsersImage  bool
	PullPolicy  corev1.PullPolicy
	PullSecrets []corev1.LocalObjectReference
	// Runners is how many processes share the test.
	Runners int32
	Script  Script
	// Env are the options of the scenario. RUNNERS and SUMMARY are added.
	Env []corev1.EnvVar
	// Prometheus is the URL of remote write that the runners send what they measure to. Empty: none.
	Prometheus string
	// Resources, NodeSelector and Tolerations are those of each runner's pod.
	Resources    corev1.ResourceRequirements
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// Limit is after how long the test stops even when nobody is there to stop it.
	Limit time.Duration
	// TargetPods is how many pods the fleet under test has, for who judges the test later. 0: it is none.
	TargetPods int32
}

// ownFiles is whether image and script may write wherever they like: those of users do as they always did.
func (t Test) ownFiles() bool { return t.UsersImage || t.Script.ConfigMap != "" }

// Script is what k6 runs: a file of the image, or one of a ConfigMap.
type Script struct {
	// File is the path in the image, or the key in the ConfigMap.
	File string
	// ConfigMap is empty for a file of the image.
	ConfigMap string
}

func (s Script) path() string {
	if s.ConfigMap == "" {
		return s.File
	}
	return scriptDir + "/" + s.File
}

// Observation is what is seen of a test.
type Observation struct {
	// Made is whether the test's own object is there.
	Made bool
	// MadeAt is when it was made, and TargetPods that of the test then. 0: nobody knows.
	MadeAt     time.Time
	TargetPods int32
	// Begun is whether the runners were let go.
	Begun bool
	// Problem is why the test can never begin, one sentence; empty otherwise.
	Problem string
	// Waiting is why it has not begun yet, for people.
	Waiting string
	// Runners are in the order of their numbers, one for each that the test asks for.
	Runners []Process
}

// Over is whether there is nothing to wait for any more.
func (o Observation) Over() bool {
	if o.Problem != "" {
		return true
	}
	for _, process := range o.Runners {
		if process.State != Ended && process.State != Lost {
			return false
		}
	}
	return len(o.Runners) > 0
}

// State is how far a runner has got.
type State string

// The states of a runner.
const (
	// Absent: it has not been made.
	Absent State = "Absent"
	// Pending: its pod is there, k6 does not run yet.
	Pending State = "Pending"
	// Ready: k6 runs, and waits for the others or works.
	Ready State = "Ready"
	// Ended: k6 has ended by itself.
	Ended State = "Ended"
	// Lost: the pod is gone, and with it what it measured.
	Lost State = "Lost"
)

// Process is one runner.
type Process struct {
	// Number counts from 0.
	Number int
	State  State
	Pod    string
	// IP is the pod's address.
	IP string
	// ExitCode is k6's, Reason what the kubelet calls it (Error, OOMKilled); both once it has ended.
	ExitCode int32
	Reason   string
	// Message is the termination message: the report, or else the end of the log.
	Message string
	// Trouble says why it does not start, for people.
	Trouble string
}

// Runner is a way of running tests.
type Runner interface {
	// Object makes the test when it is created, and stops it when it is deleted.
	Object(test Test) client.Object
	// Observe looks at the test.
	Observe(ctx context.Context, test Test) (Observation, error)
	// Begin lets the runners go, all at once. It is called when all of them are ready, and does no harm when it is called again.
	Begin(ctx context.Context, seen Observation) error
}

func (t Test) meta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: t.Name, Namespace: t.Namespace, Labels: t.labels(), OwnerReferences: []metav1.OwnerReference{t.Owner}}
	if t.TargetPods > 0 {
		meta.Annotations = map[string]string{targetPodsAnnotation: strconv.Itoa(int(t.TargetPods))}
	}
	return meta
}

// targetPods is how many pods the fleet had when the test was made. 0 where the test does not tell, or somebody has changed that.
func targetPods(test client.Object) int32 {
	pods, err := strconv.ParseInt(test.GetAnnotations()[targetPodsAnnotation], 10, 32)
	if err != nil {
		return 0
	}
	return int32(max(0, pods))
}

func (t Test) labels() map[string]string {
	labels := map[string]string{TestLabel: t.Name}
	for key, value := range t.Labels {
		labels[key] = value
	}
	return labels
}

// podsOf are all pods of the test.
func podsOf(ctx context.Context, reader client.Reader, test Test) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := reader.List(ctx, pods, client.InNamespace(test.Namespace), client.MatchingLabels{TestLabel: test.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of test %s: %w", test.Name, err)
	}
	return pods.Items, nil
}

// later prefers, of two pods for one runner, the one that tells more. There is one pod each unless somebody has meddled.
func later(one, other Process) Process {
	if one.State == Ended {
		return one
	}
	return other
}
