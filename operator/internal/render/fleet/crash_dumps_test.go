package fleet

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// TestCrashDumps: the virtual machine writes into a volume that has room for what is kept, and the container beside it keeps it there.
func TestCrashDumps(t *testing.T) {
	cluster := migrating(t, "smallest")
	cluster.Spec.BEAM.CrashDumps = &v1alpha1.CrashDumpsSpec{Keep: 3, MaxSize: ptr.To(resource.MustParse("100Mi"))}
	set, err := StatefulSet(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "livestash-crash" })
	if volume < 0 || pod.Volumes[volume].EmptyDir == nil || pod.Volumes[volume].EmptyDir.SizeLimit.String() != "416Mi" {
		t.Fatalf("the volumes are %v, want one of 4 dumps and 16 MiB", pod.Volumes)
	}
	mounted := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "livestash-crash" && m.MountPath == "/livestash-crash" && !m.ReadOnly
		})
	}
	container, list := CrashDumps()
	for _, c := range pod.Containers {
		if got := mounted(c); got != (c.Name == AppContainer || c.Name == container) {
			t.Errorf("container %s has the volume: %t", c.Name, got)
		}
	}
	probe := pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == container })]
	if got := strings.Join(probe.Command, " "); got != "/podagent serve --dir /livestash --crash-dump /livestash-crash/erl_crash.dump --keep 3" {
		t.Errorf("its command is %q", got)
	}
	if got := strings.Join(list, " "); got != "/podagent dumps --crash-dump /livestash-crash/erl_crash.dump" {
		t.Errorf("they are listed by %q", got)
	}
	want := map[string]string{"ERL_CRASH_DUMP": "/livestash-crash/erl_crash.dump", "ERL_CRASH_DUMP_BYTES": "104857600"}
	if diff := cmp.Diff(want, dumpVariables(pod.Containers[0].Env)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}

	// The command before a rollout has no such volume.
	before := beforeRollout(t, cluster, rendertest.Inputs).Job().Spec.Template.Spec
	want["ERL_CRASH_DUMP"] = "/tmp/erl_crash.dump"
	if diff := cmp.Diff(want, dumpVariables(before.Containers[0].Env)); diff != "" {
		t.Errorf("environment of the command before a rollout (-want +got):\n%s", diff)
	}
	for _, v := range before.Volumes {
		if v.Name == "livestash-crash" {
			t.Error("the command before a rollout has the volume")
		}
	}
	if mounted(before.Containers[0]) {
		t.Error("the command before a rollout mounts the volume")
	}
}

func dumpVariables(env []corev1.EnvVar) map[string]string {
	found := map[string]string{}
	for _, variable := range env {
		if strings.HasPrefix(variable.Name, "ERL_CRASH_DUMP") {
			found[variable.Name] = variable.Value
		}
	}
	return found
}
