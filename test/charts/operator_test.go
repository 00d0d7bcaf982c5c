package charts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/internal/podsecurity"
)

const (
	deploymentKey = "Deployment livestash-system/livestash-operator"
	serviceKey    = "Service livestash-system/livestash-operator"
	budgetKey     = "PodDisruptionBudget livestash-system/livestash-operator"
)

// valueSets are installations that differ in their objects.
var valueSets = map[string]string{
	"default":      "",
	"namespaced":   "watchNamespaces: [livestash-system, shop]",
	"replicas":     "replicaCount: 3",
	"no roles":     "rbac: {create: false}",
	"no metrics":   "metrics: {enabled: false}",
	"open metrics": "metrics: {secure: false}",
	"own account":  "serviceAccount: {create: false, name: mine}",
	"empty CRDs":   "crds: {enabled: false}",
	"pod extras": "extraVolumes: [{name: ca, configMap: {name: ca}}]\nextraVolumeMounts: [{name: ca, mountPath: /etc/ca}]\n" +
		"strategy: {type: Recreate}\ndnsPolicy: None\ndnsConfig: {nameservers: [10.0.0.10]}",
	"other labels": "commonLabels: {team: web, app.kubernetes.io/name: other}\npodLabels: {tier: control, team: ops}\n" +
		"podAnnotations: {kubectl.kubernetes.io/default-container: other}\n" +
		"metrics: {service: {labels: {app.kubernetes.io/component: other}}}",
}

// TestFieldsExist finds misspelt and misplaced fields, which an API server would drop or refuse.
func TestFieldsExist(t *testing.T) {
	for name, text := range valueSets {
		t.Run(name, func(t *testing.T) {
			for _, object := range render(t, operatorChart, text) {
				strictly(t, object, emptyOf(t, object))
			}
		})
	}
}

func TestLabels(t *testing.T) {
	for name, text := range valueSets {
		t.Run(name, func(t *testing.T) {
			for key, object := range render(t, operatorChart, text) {
				found := object.GetLabels()
				for _, label := range []string{"name", "instance", "component", "part-of", "managed-by", "version"} {
					if found["app.kubernetes.io/"+label] == "" {
						t.Errorf("%s has no label app.kubernetes.io/%s", key, label)
					}
				}
				if name == "other labels" && found["team"] != "web" {
					t.Errorf("%s has no label team", key)
				}
			}
		})
	}
}

// TestSelectors: the Service, the PodDisruptionBudget and the spread must find the operator's pods and nothing else.
func TestSelectors(t *testing.T) {
	found := render(t, operatorChart, "replicaCount: 2\npodLabels: {app.kubernetes.io/name: other}")
	deployment := typed[appsv1.Deployment](t, found, deploymentKey)
	selectors := map[string]map[string]string{
		"Deployment":          deployment.Spec.Selector.MatchLabels,
		"Service":             typed[corev1.Service](t, found, serviceKey).Spec.Selector,
		"PodDisruptionBudget": typed[policyv1.PodDisruptionBudget](t, found, budgetKey).Spec.Selector.MatchLabels,
		"spread":              deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	}
	for whose, selector := range selectors {
		if !labels.SelectorFromSet(selector).Matches(labels.Set(deployment.Spec.Template.Labels)) {
			t.Errorf("%s does not select the operator's pods", whose)
		}
		for key, object := range found {
			if object.GetKind() == "Pod" && labels.SelectorFromSet(selector).Matches(labels.Set(object.GetLabels())) {
				t.Errorf("%s selects %s", whose, key)
			}
		}
	}
}

func TestRestrictedPodSecurity(t *testing.T) {
	found := render(t, operatorChart, "")
	pods := map[string]corev1.PodSpec{}
	for key, object := range found {
		switch object.GetKind() {
		case "Deployment":
			pods[key] = typed[appsv1.Deployment](t, found, key).Spec.Template.Spec
		case "Pod":
			pods[key] = typed[corev1.Pod](t, found, key).Spec
		}
	}
	if len(pods) != 3 {
		t.Fatalf("looked at %d kinds of pods, want the operator and two tests", len(pods))
	}
	for key, spec := range pods {
		problems, err := podsecurity.Restricted(&metav1.ObjectMeta{}, &spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range append(problems, podsecurity.Loose(&spec)...) {
			if !strings.HasSuffix(problem, "has a token of its ServiceAccount") { // both ask the API server something
				t.Errorf("%s: %s", key, problem)
			}
		}
	}
}

// TestRules: the roles have the rules that controller-gen made, cluster-wide or in each watched namespace.
func TestRules(t *testing.T) {
	generated := read(t, readFile(t, root+"/config/rbac/role.yaml"))
	operator := typed[rbacv1.ClusterRole](t, generated, "ClusterRole /livestash-operator").Rules
	election := typed[rbacv1.Role](t, generated, "Role system/livestash-operator").Rules
	for text, wants := range map[string]map[string][]rbacv1.PolicyRule{
		"": {
			"ClusterRole /livestash-operator":                          operator,
			"Role livestash-system/livestash-operator-leader-election": election,
		},
		"watchNamespaces: [livestash-system, shop]": {
			"Role livestash-system/livestash-operator":                 operator,
			"Role shop/livestash-operator":                             operator,
			"Role livestash-system/livestash-operator-leader-election": election,
		},
	} {
		found := render(t, operatorChart, text)
		for key, want := range wants {
			// A ClusterRole has the fields of a Role, and both are read here for their rules alone.
			if diff := cmp.Diff(want, typed[rbacv1.ClusterRole](t, found, key).Rules); diff != "" {
				t.Errorf("%q: rules of %s (-generated +chart):\n%s", text, key, diff)
			}
		}
	}
}

// TestWatchNamespaces: nothing is cluster-wide then but the CustomResourceDefinitions, when the metrics are open.
func TestWatchNamespaces(t *testing.T) {
	found := render(t, operatorChart, "watchNamespaces: [livestash-system, shop]\nmetrics: {secure: false}")
	for key, object := range found {
		if object.GetNamespace() == "" && object.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s is cluster-wide", key)
		}
	}
	for _, namespace := range []string{"livestash-system", "shop"} {
		binding := typed[rbacv1.RoleBinding](t, found, "RoleBinding "+namespace+"/livestash-operator")
		if diff := cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "livestash-operator"}, binding.RoleRef); diff != "" {
			t.Errorf("role of the binding in %s (-want +got):\n%s", namespace, diff)
		}
		if subject := binding.Subjects[0]; subject.Namespace != "livestash-system" || subject.Name != "livestash-operator" {
			t.Errorf("the binding in %s is for %s/%s", namespace, subject.Namespace, subject.Name)
		}
	}
	args := typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--namespaces=livestash-system,shop") {
		t.Errorf("arguments %q do not name the namespaces", args)
	}
}

func TestUserRoles(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                     true,
		"rbac: {aggregateClusterRoles: false}": false,
		"rbac: {create: false}":                false,
		"watchNamespaces: [shop]":              false,
	} {
		found := render(t, operatorChart, text)
		for _, role := range []string{"view", "edit"} {
			object := found["ClusterRole /livestash-"+role]
			if (object != nil) != want {
				t.Errorf("%q: ClusterRole livestash-%s: %t, want %t", text, role, object != nil, want)
			}
			if object != nil && object.GetLabels()["rbac.authorization.k8s.io/aggregate-to-"+role] != "true" {
				t.Errorf("%q: livestash-%s is not aggregated to %s", text, role, role)
			}
		}
	}
}

func TestDisruptionBudget(t *testing.T) {
	for text, want := range map[string]bool{
		"replicaCount: 1": false,
		"replicaCount: 2": true,
		"replicaCount: 2\npodDisruptionBudget: {enabled: false}": false,
	} {
		if got := render(t, operatorChart, text)[budgetKey] != nil; got != want {
			t.Errorf("%q: PodDisruptionBudget: %t, want %t", text, got, want)
		}
	}
}

func TestMetricsOff(t *testing.T) {
	found := render(t, operatorChart, "metrics: {enabled: false}")
	container := typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--metrics-bind-address=0") || len(container.Ports) != 1 {
		t.Errorf("arguments %q, ports %v: metrics are not off", container.Args, container.Ports)
	}
	if ports := typed[corev1.Service](t, found, serviceKey).Spec.Ports; len(ports) != 1 {
		t.Errorf("the Service has the ports %v, want only health", ports)
	}
	if found["Pod livestash-system/livestash-operator-test-metrics"] != nil {
		t.Error("helm test would look for the metrics")
	}
}

// TestTestPods: what `helm test` runs reaches the Service by a port that the Service has.
func TestTestPods(t *testing.T) {
	found := render(t, operatorChart, "")
	for name, args := range map[string][]string{
		"ready":   {"check", "http://livestash-operator.livestash-system:8081/readyz"},
		"metrics": {"check", "https://livestash-operator.livestash-system.svc:8443/metrics", "/etc/livestash/ca.crt"},
	} {
		pod := typed[corev1.Pod](t, found, "Pod livestash-system/livestash-operator-test-"+name)
		if diff := cmp.Diff(args, pod.Spec.Containers[0].Args); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if pod.Annotations["helm.sh/hook"] != "test" {
			t.Errorf("%s is installed as a part of the release", name)
		}
	}
	var ports []int32
	for _, port := range typed[corev1.Service](t, found, serviceKey).Spec.Ports {
		ports = append(ports, port.Port)
	}
	if diff := cmp.Diff([]int32{8443, 8081}, ports); diff != "" {
		t.Errorf("ports of the Service (-want +got):\n%s", diff)
	}
}

// TestTestPodsWithoutRoles: where somebody else binds roles, nothing that needs one of this chart's is tried.
func TestTestPodsWithoutRoles(t *testing.T) {
	for values, want := range map[string]bool{"rbac: {create: false}": false, "rbac: {create: false}\nmetrics: {secure: false}": true} {
		found := render(t, operatorChart, values)
		if got := found["Pod livestash-system/livestash-operator-test-metrics"] != nil; got != want {
			t.Errorf("%s: helm test asks for metrics: %t", values, got)
		}
		if found["Pod livestash-system/livestash-operator-test-ready"] == nil {
			t.Errorf("%s: helm test does not ask whether the operator is ready", values)
		}
	}
}

// TestOpenMetrics: port, scheme, roles and token go together.
func TestOpenMetrics(t *testing.T) {
	found := render(t, operatorChart, "metrics: {secure: false}")
	container := typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--metrics-bind-address=:8080") || !slices.Contains(container.Args, "--metrics-secure=false") {
		t.Errorf("arguments %q: metrics are not open", container.Args)
	}
	pod := typed[corev1.Pod](t, found, "Pod livestash-system/livestash-operator-test-metrics")
	if diff := cmp.Diff([]string{"check", "http://livestash-operator.livestash-system.svc:8080/metrics"}, pod.Spec.Containers[0].Args); diff != "" {
		t.Errorf("helm test (-want +got):\n%s", diff)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Error("helm test has a token that it does not need")
	}
	for key := range found {
		if strings.Contains(key, "-metrics-") && strings.HasPrefix(key, "ClusterRole") {
			t.Errorf("%s is not needed", key)
		}
	}
}

func TestServiceMonitor(t *testing.T) {
	const key = "ServiceMonitor livestash-system/livestash-operator"
	if render(t, operatorChart, "")[key] != nil {
		t.Error("a ServiceMonitor is made without being asked for, where its kind may not be served")
	}
	for text, want := range map[string]string{
		"metrics: {serviceMonitor: {enabled: true, labels: {release: stack}}}": `endpoints:
- bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
  honorLabels: true
  path: /metrics
  port: metrics
  scheme: https
  tlsConfig:
    ca:
      configMap:
        key: ca.crt
        name: livestash-operator-metrics-ca
    serverName: livestash-operator.livestash-system.svc
`,
		"metrics: {secure: false, serviceMonitor: {enabled: true, labels: {release: stack}, interval: 15s, scrapeTimeout: 10s, " +
			"relabelings: [{targetLabel: cluster, replacement: eu}], metricRelabelings: [{sourceLabels: [__name__], regex: 'go_.*', action: drop}]}}": `endpoints:
- honorLabels: true
  interval: 15s
  metricRelabelings:
  - action: drop
    regex: go_.*
    sourceLabels:
    - __name__
  path: /metrics
  port: metrics
  relabelings:
  - replacement: eu
    targetLabel: cluster
  scrapeTimeout: 10s
`,
	} {
		found := render(t, operatorChart, text)
		monitor := found[key]
		if monitor == nil {
			t.Fatalf("%q: no ServiceMonitor", text)
		}
		if monitor.GetLabels()["release"] != "stack" {
			t.Errorf("%q: labels %v", text, monitor.GetLabels())
		}
		spec := monitor.Object["spec"].(map[string]any)
		got, _ := yaml.Marshal(map[string]any{"endpoints": spec["endpoints"]})
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%q: endpoints (-want +got):\n%s", text, diff)
		}
		selected, _, err := unstructured.NestedStringMap(spec, "selector", "matchLabels")
		if err != nil {
			t.Fatal(err)
		}
		if service := typed[corev1.Service](t, found, serviceKey); !labels.SelectorFromSet(selected).Matches(labels.Set(service.Labels)) {
			t.Errorf("%q: it selects %v, and the Service has %v", text, selected, service.Labels)
		}
	}
}

func TestNames(t *testing.T) {
	for release, want := range map[string]string{
		"livestash":          "livestash-operator",
		"livestash-operator": "livestash-operator",
		"web":                "web-livestash-operator",
		"a-release-with-a-name-of-fifty-three-characters-which": "a-release-with-a-name-of-fifty-three-cha-livestash-operator",
	} {
		out, err := helm(t, "template", release, operatorChart, "--namespace", "there")
		if err != nil {
			t.Fatal(err)
		}
		found := read(t, []byte(out))
		if found["Deployment there/"+want] == nil {
			t.Fatalf("release %s: no Deployment %s", release, want)
		}
		// Releases that share a Lease would wait for each other.
		arguments := typed[appsv1.Deployment](t, found, "Deployment there/"+want).Spec.Template.Spec.Containers[0].Args
		if lease := "--leader-election-id=" + want; !slices.Contains(arguments, lease) {
			t.Errorf("release %s: the operator is not started with %s", release, lease)
		}
		if len(want) > 63 {
			t.Errorf("release %s: a Service cannot be named %s", release, want)
		}
	}
}

func TestImage(t *testing.T) {
	digest := "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for text, want := range map[string]string{
		"":                               "ghcr.io/livestash-dev/livestash-operator:" + chartVersion(t),
		"image: {tag: other}":            "ghcr.io/livestash-dev/livestash-operator:other",
		"image: {repository: r:5000/op}": "r:5000/op:" + chartVersion(t),
		"image: {digest: " + digest + "}": "ghcr.io/livestash-dev/livestash-operator:" + chartVersion(t) +
			"@" + digest,
	} {
		got := typed[appsv1.Deployment](t, render(t, operatorChart, text), deploymentKey).Spec.Template.Spec.Containers[0].Image
		if got != want {
			t.Errorf("%q: image %s, want %s", text, got, want)
		}
	}
}
