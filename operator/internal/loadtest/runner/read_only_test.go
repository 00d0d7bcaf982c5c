package runner

import (
	"encoding/json"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// A runner with our image and our script writes to its scratch volume alone. Of a user's nobody knows, so it may write.
func TestRunnersOfOursWriteNowhereElse(t *testing.T) {
	for name, c := range map[string]struct {
		test     Test
		readOnly bool
	}{
		"ours":            {Test{Script: Script{File: "visits.js"}}, true},
		"a user's image":  {Test{UsersImage: true, Script: Script{File: "visits.js"}}, false},
		"a user's script": {Test{Script: Script{ConfigMap: "mine", File: "a.js"}}, false},
	} {
		pods := map[string]corev1.PodSpec{
			"Job":     (&Job{}).Object(c.test).(*batchv1.Job).Spec.Template.Spec,
			"TestRun": runnerOfTestRun(t, c.test),
		}
		for kind, pod := range pods {
			k6 := pod.Containers[0]
			if got := ptr.Deref(k6.SecurityContext.ReadOnlyRootFilesystem, false); got != c.readOnly {
				t.Errorf("%s, %s: the root file system is read-only: %v, want %v", name, kind, got, c.readOnly)
			}
			scratch := map[string]bool{}
			for _, volume := range pod.Volumes {
				scratch[volume.Name] = volume.EmptyDir != nil
			}
			hasRoom := false
			for _, mount := range k6.VolumeMounts {
				hasRoom = hasRoom || mount.MountPath == "/tmp" && scratch[mount.Name] && !mount.ReadOnly
			}
			if hasRoom != c.readOnly {
				t.Errorf("%s, %s: it may write to /tmp: %v, want %v", name, kind, hasRoom, c.readOnly)
			}
		}
	}
}

// runnerOfTestRun is what a TestRun asks for, as a pod.
func runnerOfTestRun(t *testing.T, test Test) corev1.PodSpec {
	t.Helper()
	fields, _, err := unstructured.NestedMap((&TestRun{}).Object(test).(*unstructured.Unstructured).Object, "spec", "runner")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	var runner testRunPod
	if err := json.Unmarshal(text, &runner); err != nil {
		t.Fatal(err)
	}
	return corev1.PodSpec{
		Containers: []corev1.Container{{SecurityContext: runner.ContainerSecurityContext, VolumeMounts: runner.VolumeMounts}},
		Volumes:    runner.Volumes,
	}
}
