package fleet

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const (
	// crashVolume holds the crash dumps that are kept.
	crashVolume = "livestash-crash"
	crashDir    = "/livestash-crash"
	// crashDump is the name of the file that is being written.
	crashDump = "/erl_crash.dump"
	// crashDumpVariable tells the virtual machine where to write a dump.
	crashDumpVariable = "ERL_CRASH_DUMP"
	// beyondDumps is what the volume may hold besides dumps, which end some bytes after their limit. A volume that is too full
	// has its pod evicted.
	beyondDumps = 16 << 20
)

// CrashDumps is how to have the crash dumps of a pod listed: the command, and the container that it runs in, which is there while the
// application's crashes. With a name, to have that one written to standard output.
func CrashDumps(name ...string) (container string, command []string) {
	return probeContainer, append([]string{"/podagent", "dumps", "--crash-dump", crashDir + crashDump}, name...)
}

// crashDumpEnvironment is where the virtual machine writes a dump. In the working directory it could not: that belongs to the image.
func crashDumpEnvironment(c *v1alpha1.LiveStashCluster) []corev1.EnvVar {
	dumps := c.Spec.BEAM.CrashDumps
	switch {
	case dumps != nil:
		return []corev1.EnvVar{
			render.Value(crashDumpVariable, crashDir+crashDump),
			render.Value("ERL_CRASH_DUMP_BYTES", strconv.FormatInt(dumpBytes(dumps), 10)),
		}
	case slices.ContainsFunc(c.Spec.Env, func(e corev1.EnvVar) bool { return e.Name == crashDumpVariable }):
		return nil
	}
	return []corev1.EnvVar{render.Value(crashDumpVariable, scratchDir+crashDump)}
}

func dumpBytes(dumps *v1alpha1.CrashDumpsSpec) int64 {
	limit := ptr.Deref(dumps.MaxSize, resource.Quantity{})
	return limit.Value()
}

// withCrashDumps has the container that serves the agent keep the dumps of the application's.
func withCrashDumps(app, probe *corev1.Container, dumps *v1alpha1.CrashDumpsSpec) corev1.Volume {
	mount := corev1.VolumeMount{Name: crashVolume, MountPath: crashDir}
	app.VolumeMounts = append(app.VolumeMounts, mount)
	probe.VolumeMounts = append(probe.VolumeMounts, mount)
	probe.Command = append(probe.Command, "--crash-dump", crashDir+crashDump, "--keep", strconv.Itoa(int(dumps.Keep)))
	// One more than are kept: the one that is being written.
	room := (int64(dumps.Keep)+1)*dumpBytes(dumps) + beyondDumps
	return corev1.Volume{Name: crashVolume, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(room, resource.BinarySI)},
	}}
}
