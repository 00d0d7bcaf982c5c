package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// probes are the application container's startup, readiness and liveness probe.
func probes(c *v1alpha1.LiveStashCluster) (startup, readiness, liveness *corev1.Probe) {
	own := ptr.Deref(c.Spec.Probes, v1alpha1.ProbesSpec{})
	startup, readiness, liveness = own.Startup, own.Readiness, own.Liveness
	if startup == nil {
		startup = &corev1.Probe{ProbeHandler: portOpen(), PeriodSeconds: 2, FailureThreshold: 60}
	}
	if readiness == nil {
		readiness = &corev1.Probe{ProbeHandler: portOpen(), PeriodSeconds: 5, FailureThreshold: 2, TimeoutSeconds: 3}
		if c.AgentEnabled() {
			readiness = agentReadiness(c)
		} else if path := c.Spec.HTTP.ReadinessPath; path != "" {
			readiness.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(HTTPPort)}}
		}
	}
	if liveness == nil {
		// A restart loses state: only a port that stays shut for a minute is worth one.
		liveness = &corev1.Probe{ProbeHandler: portOpen(), PeriodSeconds: 10, FailureThreshold: 6, TimeoutSeconds: 5}
	}
	return startup, readiness, liveness
}

// portOpen is a TCP probe: a Phoenix application has no health route unless it makes one.
func portOpen() corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(HTTPPort)}}
}

// checkProbes refuses probes of ports that no container has: the kubelet takes those for failed, and a liveness probe then restarts a pod
// that serves. A name must be one of the application's own container; a number may be a sidecar's.
func checkProbes(c *v1alpha1.LiveStashCluster, pod *corev1.PodSpec) error {
	app, own := pod.Containers[0], ptr.Deref(c.Spec.Probes, v1alpha1.ProbesSpec{})
	for _, probe := range []struct {
		field   string
		of, own *corev1.Probe
	}{{"startup", app.StartupProbe, own.Startup}, {"readiness", app.ReadinessProbe, own.Readiness}, {"liveness", app.LivenessProbe, own.Liveness}} {
		port, asks := probedPort(probe.of)
		field := "spec.probes." + probe.field
		if probe.own == nil {
			field = "spec.podTemplate.spec, in the " + probe.field + "Probe of the container app,"
		}
		switch {
		case !asks:
		case port.Type == intstr.String && !slices.ContainsFunc(app.Ports, func(one corev1.ContainerPort) bool { return one.Name == port.StrVal }):
			return render.SpecErrorf("%s asks the port %s, which the container app does not have: name http, or a port of spec.podTemplate.spec, or give its number", field, port.StrVal)
		case port.Type == intstr.Int && !hasPort(pod, port.IntVal):
			return render.SpecErrorf("%s asks the port %d, which no container of the pod has: correct it, or add it to the ports of the container app in spec.podTemplate.spec", field, port.IntVal)
		}
	}
	return nil
}

// hasPort is whether one of the pod's containers, those that start before the application included, says that it listens on the port.
func hasPort(pod *corev1.PodSpec, number int32) bool {
	return slices.ContainsFunc(slices.Concat(pod.Containers, pod.InitContainers), func(container corev1.Container) bool {
		return slices.ContainsFunc(container.Ports, func(one corev1.ContainerPort) bool { return one.ContainerPort == number })
	})
}

// probedPort is the pod's port that a probe asks. A probe may ask none, or that of another host.
func probedPort(probe *corev1.Probe) (port intstr.IntOrString, asks bool) {
	switch {
	case probe == nil || elsewhere(probe.HTTPGet, probe.TCPSocket):
		return port, false
	case probe.HTTPGet != nil:
		return probe.HTTPGet.Port, true
	case probe.TCPSocket != nil:
		return probe.TCPSocket.Port, true
	case probe.GRPC != nil:
		return intstr.FromInt32(probe.GRPC.Port), true
	}
	return port, false
}
