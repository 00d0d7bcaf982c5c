package fleet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
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
