package runner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// k6's API has no password: who reaches it can stop the test, or begin it too early. Whatever else is in a runner is closed as well.
func TestK6IsOpenToWhoStartsIt(t *testing.T) {
	test := Test{Name: "run", Namespace: "shop", Labels: map[string]string{BenchmarkLabel: "bench"}}
	policy := NetworkPolicy(test, "livestash-system")
	if !matches(t, policy, test.labels()) || policy.Namespace != "shop" || policy.Name != "run" || policy.Labels[BenchmarkLabel] != "bench" {
		t.Errorf("the policy is %+v, and not about the test's pods", policy.ObjectMeta)
	}
	if len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].Ports) != 1 || policy.Spec.Ingress[0].Ports[0].Port.IntValue() != apiPort {
		t.Fatalf("the ports are %+v", policy.Spec.Ingress)
	}
	for name, c := range map[string]struct {
		namespace map[string]string
		pod       map[string]string
		want      bool
	}{
		"the operator":              {namespace("livestash-system"), map[string]string{"app.kubernetes.io/name": "livestash-operator"}, true},
		"its neighbour":             {namespace("livestash-system"), map[string]string{"app.kubernetes.io/name": "grafana"}, false},
		"one that takes its name":   {namespace("mallory"), map[string]string{"app.kubernetes.io/name": "livestash-operator"}, false},
		"k6-operator":               {namespace("k6"), map[string]string{"app.kubernetes.io/name": "k6-operator"}, true},
		"another of the test":       {namespace("shop"), test.labels(), true},
		"another of the namespace":  {namespace("shop"), map[string]string{"app": "web"}, false},
		"somebody":                  {namespace("mallory"), nil, false},
		"one that takes the test's": {namespace("mallory"), test.labels(), false},
	} {
		if got := admits(t, policy, c.namespace, c.pod); got != c.want {
			t.Errorf("%s is admitted: %v, want %v", name, got, c.want)
		}
	}
}

func namespace(name string) map[string]string {
	return map[string]string{corev1.LabelMetadataName: name}
}

func matches(t *testing.T, policy *networkingv1.NetworkPolicy, pod map[string]string) bool {
	t.Helper()
	return labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod))
}

func admits(t *testing.T, policy *networkingv1.NetworkPolicy, namespace, pod map[string]string) bool {
	t.Helper()
	for _, peer := range policy.Spec.Ingress[0].From {
		home := namespace[corev1.LabelMetadataName] == policy.Namespace
		if peer.NamespaceSelector != nil {
			home = labels.SelectorFromSet(peer.NamespaceSelector.MatchLabels).Matches(labels.Set(namespace))
		}
		if home && labels.SelectorFromSet(peer.PodSelector.MatchLabels).Matches(labels.Set(pod)) {
			return true
		}
	}
	return false
}
