// Package podsecurity says what is wrong with a pod: what the restricted Pod Security Standard refuses, by the code that the API server
// itself uses, and a few things that the standard leaves open.
package podsecurity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Restricted are the sentences of the Pod Security Standard's own checks. Empty: a namespace that enforces it admits the pod.
func Restricted(metadata *metav1.ObjectMeta, spec *corev1.PodSpec) ([]string, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	var said []string
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(restricted, metadata, spec) {
		if !result.Allowed {
			said = append(said, result.ForbiddenReason+": "+result.ForbiddenDetail)
		}
	}
	return said, nil
}

// Loose is what the standard leaves open, and scanners of manifests ask for: "container: what is missing".
func Loose(spec *corev1.PodSpec) []string {
	var said []string
	add := func(where, what string) { said = append(said, fmt.Sprintf("%s: %s", where, what)) }
	if mounts := spec.AutomountServiceAccountToken; mounts == nil || *mounts {
		add("pod", "has a token of its ServiceAccount")
	}
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		if context := c.SecurityContext; context == nil || context.ReadOnlyRootFilesystem == nil || !*context.ReadOnlyRootFilesystem {
			add(c.Name, "may write to its root file system")
		}
		if c.Resources.Limits.Memory().IsZero() {
			add(c.Name, "has no limit for memory")
		}
		if c.Resources.Requests.Memory().IsZero() && c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() && c.Resources.Limits.Cpu().IsZero() {
			add(c.Name, "has no requests for memory and CPU")
		}
	}
	return said
}
