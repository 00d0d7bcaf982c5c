package charts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What most charts have under these names, so that nobody has to look them up.

// imagesOf are the images of an operator's installation: its own, and by the names of its flags those that it makes pods with.
func imagesOf(t *testing.T, found objects) map[string]string {
	t.Helper()
	container := typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec.Containers[0]
	images := map[string]string{"": container.Image}
	for _, argument := range container.Args {
		name, image, _ := strings.Cut(argument, "=")
		if !strings.HasSuffix(name, "-image") {
			continue
		}
		for _, variable := range container.Env {
			image = strings.ReplaceAll(image, "$("+variable.Name+")", variable.Value)
		}
		images[name] = image
	}
	return images
}

// TestGlobalImageRegistry: one registry for all images, also for those of the pods that the operator makes and that `helm test` runs.
func TestGlobalImageRegistry(t *testing.T) {
	found := render(t, root, "global: {imageRegistry: 'mirror.example:5000/hub'}")
	want := map[string]string{
		"":                       "mirror.example:5000/hub/livestash-dev/livestash-operator:" + chartVersion(t),
		"--agent-image":          "mirror.example:5000/hub/livestash-dev/livestash-operator:" + chartVersion(t),
		"--redis-image":          "mirror.example:5000/hub/valkey/valkey:9.1.4",
		"--redis-exporter-image": "mirror.example:5000/hub/oliver006/redis_exporter:v1.93.0",
		"--runner-image":         "mirror.example:5000/hub/livestash-dev/livestash-k6:" + chartVersion(t),
		"--starter-image":        "mirror.example:5000/hub/grafana/k6-operator:starter-v1.6.0",
	}
	if diff := cmp.Diff(want, imagesOf(t, found)); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if pod := typed[corev1.Pod](t, found, "Pod livestash-system/livestash-operator-test-ready"); pod.Spec.Containers[0].Image != want[""] {
		t.Errorf("helm test runs %s", pod.Spec.Containers[0].Image)
	}

	for image, want := range map[string]string{
		"valkey:9":                 "mirror.example/valkey:9",
		"library/valkey:9":         "mirror.example/library/valkey:9",
		"localhost/valkey:9":       "mirror.example/valkey:9",
		"registry:5000/a/valkey:9": "mirror.example/a/valkey:9",
	} {
		found := render(t, operatorChart, "global: {imageRegistry: mirror.example}\nredis: {image: '"+image+"'}")
		if got := imagesOf(t, found)["--redis-image"]; got != want {
			t.Errorf("%s becomes %s, want %s", image, got, want)
		}
	}
}

// TestPullSecrets: those of all charts and the operator's own, each once.
func TestPullSecrets(t *testing.T) {
	found := render(t, root, "global: {imagePullSecrets: [all, {name: more}]}\noperator: {imagePullSecrets: [{name: own}, {name: all}]}")
	want := []corev1.LocalObjectReference{{Name: "all"}, {Name: "more"}, {Name: "own"}}
	pods := map[string][]corev1.LocalObjectReference{
		"operator":  typed[appsv1.Deployment](t, found, deploymentKey).Spec.Template.Spec.ImagePullSecrets,
		"helm test": typed[corev1.Pod](t, found, "Pod livestash-system/livestash-operator-test-ready").Spec.ImagePullSecrets,
	}
	for whose, got := range pods {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", whose, diff)
		}
	}
}

// TestNameOverride: all names follow, the labels that others select by do not.
func TestNameOverride(t *testing.T) {
	for release, want := range map[string]string{"web": "web-keeper", "my-keeper": "my-keeper", "livestash": "livestash-keeper"} {
		for _, chart := range parts {
			out, err := helm(t, "template", release, chart, "--namespace", "there", "--set", "nameOverride=keeper")
			if err != nil {
				t.Fatal(err)
			}
			for key, object := range read(t, []byte(out)) {
				if object.GetKind() == "CustomResourceDefinition" || strings.HasPrefix(object.GetName(), "livestash-view") || strings.HasPrefix(object.GetName(), "livestash-edit") {
					continue
				}
				if name := object.GetName(); name != want && !strings.HasPrefix(name, want+"-") {
					t.Errorf("release %s: %s is not named after %s", release, key, want)
				}
				if name := object.GetLabels()["app.kubernetes.io/name"]; !strings.HasPrefix(name, "livestash-") {
					t.Errorf("release %s: %s has the label app.kubernetes.io/name: %s", release, key, name)
				}
			}
		}
	}
}

func TestCommonAnnotations(t *testing.T) {
	const text = "commonAnnotations: {owner: web, helm.sh/hook: pre-install, helm.sh/resource-policy: other}"
	for chart, values := range map[string]string{
		operatorChart:      "\nmetrics: {serviceMonitor: {enabled: true}, service: {annotations: {owner: metrics}}}",
		observabilityChart: "\nprometheusRules: {enabled: true}",
	} {
		for key, object := range render(t, chart, text+values) {
			want := "web"
			if object.GetKind() == "Service" {
				want = "metrics"
			}
			got := object.GetAnnotations()
			if got["owner"] != want {
				t.Errorf("%s is annotated %v", key, got)
			}
			if object.GetKind() == "CustomResourceDefinition" && got[keepAnnotation] != "keep" || object.GetKind() == "Pod" && got["helm.sh/hook"] != "test" {
				t.Errorf("%s lost an annotation of the chart's own: %v", key, got)
			}
		}
	}
	pod := typed[appsv1.Deployment](t, render(t, operatorChart, "commonAnnotations: {owner: web}"), deploymentKey).Spec.Template
	if _, annotated := pod.Annotations["owner"]; annotated {
		t.Error("the operator's pods are annotated too: a changed annotation would restart them")
	}
}

func TestExtraObjects(t *testing.T) {
	const text = `extraObjects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: "{{ .Release.Name }}-one"}
- |
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: {{ .Chart.Name }}-two}
  {{- if false }}
  no: yes
  {{- end }}
`
	for _, chart := range parts {
		found := render(t, chart, text)
		for _, name := range []string{"livestash-one", chart[strings.LastIndex(chart, "/")+1:] + "-two"} {
			if found["ConfigMap /"+name] == nil {
				t.Errorf("%s: there is no ConfigMap %s", chart, name)
			}
		}
	}
}

// TestPodExtras: what is written as fields of a Pod or a Deployment arrives there.
func TestPodExtras(t *testing.T) {
	deployment := typed[appsv1.Deployment](t, render(t, operatorChart, valueSets["pod extras"]), deploymentKey)
	pod := deployment.Spec.Template.Spec
	got, err := yaml.Marshal(map[string]any{
		"strategy": deployment.Spec.Strategy, "dnsPolicy": pod.DNSPolicy, "dnsConfig": pod.DNSConfig, "volumes": pod.Volumes,
		"volumeMounts": pod.Containers[0].VolumeMounts,
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `dnsConfig:
  nameservers:
  - 10.0.0.10
dnsPolicy: None
strategy:
  type: Recreate
volumeMounts:
- mountPath: /etc/ca
  name: ca
volumes:
- configMap:
    name: ca
  name: ca
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
