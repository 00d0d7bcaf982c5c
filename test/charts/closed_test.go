package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const policyKey = "NetworkPolicy livestash-system/livestash-operator"

// TestWhoReachesTheOperator: which port is open to whom, where NetworkPolicies are enforced.
func TestWhoReachesTheOperator(t *testing.T) {
	for text, wants := range map[string]map[int32]string{
		"":                                     {8443: "livestash-system monitoring", 8081: "livestash-system"},
		"agentReaders: [a, b]":                 {8443: "a b livestash-system", 8081: "livestash-system"},
		"agentReaders: []":                     {8443: "livestash-system", 8081: "livestash-system"},
		"agentReaders: ['*']":                  {8443: "anybody", 8081: "livestash-system"},
		"metrics: {secure: false}":             {8080: "livestash-system monitoring", 8081: "livestash-system"},
		"metrics: {enabled: false}":            {8081: "livestash-system"},
		"networkPolicy: {enabled: false}":      nil,
		"podLabels: {team: web}":               {8443: "livestash-system monitoring", 8081: "livestash-system"},
		"replicaCount: 3\nagentReaders: [mon]": {8443: "livestash-system mon", 8081: "livestash-system"},
	} {
		found := render(t, operatorChart, text)
		if wants == nil {
			if found[policyKey] != nil {
				t.Errorf("%q: there is a NetworkPolicy", text)
			}
			continue
		}
		policy := typed[networkingv1.NetworkPolicy](t, found, policyKey)
		pods := typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Labels
		if !labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(pods)) {
			t.Errorf("%q: the NetworkPolicy is not about the operator's pods", text)
		}
		if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes); diff != "" {
			t.Errorf("%q: types (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(wants, openTo(policy)); diff != "" {
			t.Errorf("%q: what is open to whom (-want +got):\n%s", text, diff)
		}
	}
}

// openTo are the namespaces that reach each port, or anybody.
func openTo(policy *networkingv1.NetworkPolicy) map[int32]string {
	open := map[int32]string{}
	for _, rule := range policy.Spec.Ingress {
		var from []string
		for _, peer := range rule.From {
			switch {
			case peer.NamespaceSelector != nil:
				from = append(from, peer.NamespaceSelector.MatchExpressions[0].Values...)
			case cmp.Equal(peer.PodSelector, &metav1.LabelSelector{}):
				from = append(from, policy.Namespace)
			}
		}
		if len(rule.From) == 0 {
			from = []string{"anybody"}
		}
		slices.Sort(from)
		for _, port := range rule.Ports {
			open[port.Port.IntVal] = strings.Join(from, " ")
		}
	}
	return open
}

// TestHelmTestMayReadMetricsAlone: its token goes to the operator, whose certificate it verifies, and is good for nothing else.
func TestHelmTestMayReadMetricsAlone(t *testing.T) {
	found := render(t, operatorChart, "")
	pod := typed[corev1.Pod](t, found, "Pod livestash-system/livestash-operator-test-metrics")
	account := typed[corev1.ServiceAccount](t, found, "ServiceAccount livestash-system/"+pod.Spec.ServiceAccountName)
	binding := typed[rbacv1.ClusterRoleBinding](t, found, "ClusterRoleBinding /livestash-operator-test")
	for _, hook := range []map[string]string{account.Annotations, binding.Annotations} {
		if hook["helm.sh/hook"] != "test" || hook["helm.sh/hook-weight"] != "-1" || !strings.Contains(hook["helm.sh/hook-delete-policy"], "hook-succeeded") {
			t.Errorf("the annotations %v: it must be there before the pod, and go with it", hook)
		}
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "livestash-system", Name: account.Name}}, binding.Subjects); diff != "" {
		t.Error(diff)
	}
	for key, object := range found {
		if !strings.Contains(object.GetKind(), "Binding") || key == "ClusterRoleBinding /livestash-operator-test" {
			continue
		}
		if subjects := typed[rbacv1.ClusterRoleBinding](t, found, key).Subjects; subjects[0].Name == account.Name || strings.HasSuffix(key, "metrics-reader") {
			t.Errorf("%s gives rights to %s", key, subjects[0].Name)
		}
	}
	role := typed[rbacv1.ClusterRole](t, found, "ClusterRole /"+binding.RoleRef.Name)
	if diff := cmp.Diff([]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, role.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if volume := pod.Spec.Volumes[0].ConfigMap; volume == nil || found["ConfigMap livestash-system/"+volume.Name] == nil {
		t.Errorf("the authority is in %+v, which the chart does not make", volume)
	}
}

// TestMetricsCertificate: what the operator fills is there, it is told under which name, and it may write these two and no others.
func TestMetricsCertificate(t *testing.T) {
	for text, name := range map[string]string{"": "livestash-operator", "fullnameOverride: mine": "mine"} {
		found := render(t, operatorChart, text)
		args := typed[appsv1.Deployment](t, found, "Deployment livestash-system/"+name).Spec.Template.Spec.Containers[0].Args
		if !slices.Contains(args, "--metrics-service="+name) || found["Service livestash-system/"+name] == nil {
			t.Errorf("%q: the arguments are %q", text, args)
		}
		rules := map[string]string{}
		for _, rule := range typed[rbacv1.Role](t, found, "Role livestash-system/"+name+"-leader-election").Rules {
			for _, object := range rule.ResourceNames {
				rules[rule.Resources[0]+" "+object] = strings.Join(rule.Verbs, " ")
			}
		}
		if diff := cmp.Diff(map[string]string{"secrets " + name + "-metrics": "get update", "configmaps " + name + "-metrics-ca": "get update"}, rules); diff != "" {
			t.Errorf("%q: rules (-want +got):\n%s", text, diff)
		}
		for _, key := range []string{"Secret livestash-system/" + name + "-metrics", "ConfigMap livestash-system/" + name + "-metrics-ca"} {
			object := found[key]
			if object == nil || object.Object["data"] != nil || object.Object["stringData"] != nil {
				t.Errorf("%q: %s is %v, want it there and without data, which an upgrade would put back", text, key, object)
			}
		}
	}
	for _, text := range []string{"metrics: {secure: false}", "metrics: {enabled: false}"} {
		if found := render(t, operatorChart, text); found["Secret livestash-system/livestash-operator-metrics"] != nil {
			t.Errorf("%q: there is a Secret that nobody fills", text)
		}
	}
}
