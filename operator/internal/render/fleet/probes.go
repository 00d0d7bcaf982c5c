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

// checkProbes refuses probes of ports that the application's container does not have by that name: the kubelet takes them for failed. It
// cannot be told of a number whether somebody will listen there.
func checkProbes(app corev1.Container) error {
	for _, probe := range []struct {
		field string
		of    *corev1.Probe
	}{{"startup", app.StartupProbe}, {"readiness", app.ReadinessProbe}, {"liveness", app.LivenessProbe}} {
		port := probedPort(probe.of)
		if port == "" || slices.ContainsFunc(app.Ports, func(one corev1.ContainerPort) bool { return one.Name == port }) {
			continue
		}
		return render.SpecErrorf("spec.probes.%s asks the port %s, which the container app does not have: name http, or a port of spec.podTemplate.spec, or give its number", probe.field, port)
	}
	return nil
}

// probedPort is the name of the port that a probe asks. Empty: it asks none by a name.
func probedPort(probe *corev1.Probe) string {
	switch {
	case probe == nil:
		return ""
	case probe.HTTPGet != nil:
		return probe.HTTPGet.Port.StrVal
	case probe.TCPSocket != nil:
		return probe.TCPSocket.Port.StrVal
	}
	return ""
}
