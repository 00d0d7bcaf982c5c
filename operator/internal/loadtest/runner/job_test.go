package runner

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestFailedIndexes(t *testing.T) {
	for _, c := range []struct {
		indexes string
		number  int
		want    bool
	}{
		{"", 0, false},
		{"0", 0, true},
		{"1,3-5,12", 0, false},
		{"1,3-5,12", 1, true},
		{"1,3-5,12", 2, false},
		{"1,3-5,12", 4, true},
		{"1,3-5,12", 12, true},
	} {
		job := &batchv1.Job{Status: batchv1.JobStatus{FailedIndexes: ptr.To(c.indexes)}}
		if got := failed(job, c.number); got != c.want {
			t.Errorf("failed(%q, %d) is %v", c.indexes, c.number, got)
		}
	}
}

func TestSentence(t *testing.T) {
	for log, want := range map[string]string{
		"":              "",
		"plain words\n": "plain words",
		"time=\"x\" level=info msg=\"fine\"\ntime=\"x\" level=error msg=\"a \\\"b\\\" c\" hint=\"d\"\nlast": `a "b" c`,
		`{"level":"error","msg":"no such file"}`:                                                            "no such file",
		`level=error msg="cut in the mid`:                                                                   "cut in the mid",
	} {
		if got := Sentence(log); got != want {
			t.Errorf("Sentence(%q) is %q, want %q", log, got, want)
		}
	}
}

// A heap that may grow is bounded where the pod is, and only there.
func TestHeapOfARunnerWithAMemoryLimit(t *testing.T) {
	bound := func(test Test) string {
		for _, env := range test.environment() {
			if env.Name == "GOMEMLIMIT" {
				return env.Value
			}
		}
		return ""
	}
	limited := Test{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1000M")}}}
	if got := bound(limited); got != "800000000" {
		t.Errorf("GOMEMLIMIT is %q", got)
	}
	if got := bound(Test{}); got != "" {
		t.Errorf("GOMEMLIMIT is %q without a limit", got)
	}
}

// The test keeps how large the fleet was, by whoever it is run. What somebody has written there instead is no size.
func TestTargetPods(t *testing.T) {
	for name, runner := range map[string]Runner{"job": &Job{}, "testrun": &TestRun{}} {
		if got := targetPods(runner.Object(Test{TargetPods: 4})); got != 4 {
			t.Errorf("%s: %d pods", name, got)
		}
		if got := targetPods(runner.Object(Test{})); got != 0 {
			t.Errorf("%s: %d pods of no fleet", name, got)
		}
	}
	for _, text := range []string{"", "many", "-4", "99999999999"} {
		job := &batchv1.Job{}
		job.Annotations = map[string]string{targetPodsAnnotation: text}
		if got := targetPods(job); got != 0 {
			t.Errorf("%q are %d pods", text, got)
		}
	}
}
