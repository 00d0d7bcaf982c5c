package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Tolerates is whether pods of the template may run on a node with that taint.
func Tolerates(template *corev1.PodSpec, taint *corev1.Taint) bool {
	return slices.ContainsFunc(template.Tolerations, func(toleration corev1.Toleration) bool {
		return toleration.ToleratesTaint(ctrl.Log, taint, false)
	})
}

// StaysOnCordoned is whether pods of the template run on a node though it is cordoned: there is no use in taking them off it.
func StaysOnCordoned(template *corev1.PodSpec) bool {
	return template.NodeName != "" || Tolerates(template, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}
