package fleet

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// PodDisruptionBudget bounds how many pods a node drain may take at a time. Nil when it is disabled. A drain may not take the only pod:
// the operator does, when another one has its users.
func PodDisruptionBudget(c *v1alpha1.LiveStashCluster, in render.Inputs, template *corev1.PodSpec) *policyv1.PodDisruptionBudget {
	if !ptr.Deref(c.Spec.DisruptionBudget.Enabled, true) {
		return nil
	}
	most := c.Spec.DisruptionBudget.MaxUnavailable
	alone := c.DesiredReplicas() == 1 && c.Spec.Rollout.Surge != v1alpha1.SurgeNever && !StaysOnCordoned(template)
	if alone && in.MovesPods && most != nil && *most == intstr.FromInt32(1) {
		most = ptr.To(intstr.FromInt32(0))
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   render.PodDisruptionBudgetType,
		ObjectMeta: render.ObjectMeta(c, c.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: most,
			Selector:       render.Selector(c),
			// A pod that does not serve holds up no drain.
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}
