package fleet

import (
	"encoding/json"
	"testing"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// A pod template is a patch of anything. What is rendered of it has no more than its namespace, in whatever way it asked: read back as
// the API server reads it.
func FuzzPodTemplate(f *testing.F) {
	for _, patch := range []string{
		`{"hostPID":true}`, `{"HostPID":true,"hostpid":true}`, `{"volumes":[{"name":"tmp","$patch":"replace","hostPath":{"path":"/"}}]}`,
		`{"$patch":"replace","containers":[{"name":"app","securityContext":{"privileged":true}}]}`, `{"serviceAccountName":"admin"}`,
		`{"containers":[{"name":"log","image":"x","securityContext":{"capabilities":{"add":["ALL"]}}}]}`,
		`{"$setElementOrder/containers":[{"name":"app"}],"initContainers":[{"name":"a","image":"b","restartPolicy":"Always"}]}`,
	} {
		f.Add([]byte(patch))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		spec := &v1alpha1.PodSpecOverride{}
		if spec.UnmarshalJSON(patch) != nil {
			return
		}
		cluster := rendertest.Cluster(t, "smallest")
		cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: spec}
		set, err := StatefulSet(cluster, rendertest.Inputs)
		if err != nil {
			return
		}
		text, err := json.Marshal(set.Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		read := set.Spec.Template
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		pod := read.Spec
		if pod.HostPID || pod.HostIPC || pod.HostNetwork || pod.ServiceAccountName != cluster.Name || pod.Containers[0].Name != AppContainer {
			t.Errorf("the pods have more than their namespace: %s", text)
		}
		for _, volume := range pod.Volumes {
			if volume.HostPath != nil {
				t.Errorf("the pods have the node's files: %s", text)
			}
		}
		for _, container := range append(pod.Containers, pod.InitContainers...) {
			if security := container.SecurityContext; security != nil && security.Privileged != nil && *security.Privileged {
				t.Errorf("a container is privileged: %s", text)
			}
		}
	})
}
