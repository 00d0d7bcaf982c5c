package fleet

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// PodDisruptionBudget bounds how many pods a node drain may take at a time. Nil when it is disabled.
func PodDisruptionBudget(c *v1alpha1.LiveStashCluster) *policyv1.PodDisruptionBudget {
	if !ptr.Deref(c.Spec.DisruptionBudget.Enabled, true) {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   render.PodDisruptionBudgetType,
		ObjectMeta: render.ObjectMeta(c, c.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: c.Spec.DisruptionBudget.MaxUnavailable,
			Selector:       render.Selector(c),
			// A pod that does not serve holds up no drain.
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}
