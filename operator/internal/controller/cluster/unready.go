package cluster

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// tellAfter is for how long a pod may be unready before a cause is looked for: every pod is for a moment.
const tellAfter = 10 * time.Second

// unready is what is said of a pod that is not ready, as the rest of a sentence that begins with its name.
func (o *observation) unready(c *v1alpha1.LiveStashCluster, m *member) string {
	const plain = "is not ready"
	if o.waited[m.wait()] < tellAfter {
		return plain
	}
	if why := whyUnready(c, m); why != "" {
		return plain + ": " + why
	}
	return plain
}

// whyUnready is why, as far as the pod, its agent and the spec tell. Empty: they do not.
func whyUnready(c *v1alpha1.LiveStashCluster, m *member) string {
	scheduler, path := unseenBy(m.Pod), c.Spec.HTTP.ReadinessPath
	probes := ptr.Deref(c.Spec.Probes, v1alpha1.ProbesSpec{})
	switch {
	case scheduler != "":
		return fmt.Sprintf("no scheduler named %s has looked at it: run one, or correct schedulerName in spec.podTemplate.spec", scheduler)
	case m.unstarted():
		return "its container has not started (" + seePod(m.Pod) + ")"
	case m.agentPort != 0 && m.answer.Err != nil:
		return m.answer.Err.Error()
	case m.agentPort != 0 && m.answer.At.IsZero():
		return ""
	case m.agentPort != 0 && !m.answer.Status.Ready:
		return "its agent says: " + m.answer.Status.Reason
	case probes.Startup != nil && !m.started():
		return "the probe of spec.probes.startup fails"
	case probes.Readiness != nil:
		return "the probe of spec.probes.readiness fails"
	case path != "": // nothing else is asked for: see podagent's readiness
		return fmt.Sprintf("the application does not answer GET %s on port %d with 2xx or 3xx (spec.http.readinessPath)", path, c.Spec.HTTP.Port)
	case m.agentPort == 0:
		return fmt.Sprintf("the application does not listen on port %d (spec.http.port)", c.Spec.HTTP.Port)
	}
	return ""
}

// started is whether the startup probe of the application has succeeded, or there is none.
func (m *member) started() bool {
	app := appStatus(m.Pod)
	return app == nil || ptr.Deref(app.Started, true)
}

// unseenBy is the name of the scheduler that should place the pod on a node and has said nothing of it. Empty: one has.
func unseenBy(pod *corev1.Pod) string {
	seen := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool { return condition.Type == corev1.PodScheduled })
	if seen || pod.Spec.NodeName != "" {
		return ""
	}
	return pod.Spec.SchedulerName
}
