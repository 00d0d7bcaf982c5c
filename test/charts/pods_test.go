package charts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/internal/podsecurity"
)

// internal are the operator's packages, whose golden files have the pods of every kind that it renders.
const internal = root + "/operator/internal"

// loose is what the pods have that a scanner would not like, and why. What is not here fails, and so does what no pod has.
var loose = map[string]string{
	"app: may write to its root file system":  "the user's image: releases write logs and crash dumps where they please. spec.podTemplate can forbid it",
	"app: has no limit for memory":            "the user's: spec.resources, or a LimitRange of the namespace",
	"app: has no requests for memory and CPU": "the user's: spec.resources, or a LimitRange of the namespace",
	"k6: may write to its root file system":   "k6-operator's initializer writes an archive to /tmp, and scripts may be the user's",
	"k6: has no limit for memory":             "those of a TestRun that only prepare or start it, for seconds",
	"k6: has no requests for memory and CPU":  "the user's: spec.runner.resources, or a LimitRange of the namespace",
}

// ofUser is a container that a golden file's own pod template brings along.
const ofUser = "log"

// pod is what a kind makes pods of.
type pod struct {
	name     string
	metadata metav1.ObjectMeta
	spec     corev1.PodSpec
}

// rendered are the pods of all golden files.
func renderedPods(t *testing.T) []pod {
	t.Helper()
	var pods []pod
	for _, pattern := range []string{internal + "/render/fleet/testdata/*.golden.yaml", internal + "/loadtest/runner/testdata/*.golden.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no golden files (%v)", pattern, err)
		}
		for _, file := range files {
			pods = append(pods, podsOf(t, file)...)
		}
	}
	return pods
}

func podsOf(t *testing.T, file string) []pod {
	t.Helper()
	var pods []pod
	for key, object := range read(t, readFile(t, file)) {
		kind, _, _ := strings.Cut(key, " ")
		name := strings.TrimSuffix(filepath.Base(file), ".golden.yaml") + " " + kind + " " + object.GetName()
		switch kind {
		case "StatefulSet", "Job":
			pods = append(pods, fromTemplate(t, name, object))
		case "TestRun":
			pods = append(pods, fromTestRun(t, name, object, "initializer"), fromTestRun(t, name, object, "runner"), fromTestRun(t, name, object, "starter"))
		}
	}
	return pods
}

func fromTemplate(t *testing.T, name string, object *unstructured.Unstructured) pod {
	t.Helper()
	fields, found, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil || !found {
		t.Fatalf("%s has no pod template: %v", name, err)
	}
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &template); err != nil {
		t.Fatal(err)
	}
	template.Spec.Containers = slices.DeleteFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == ofUser })
	return pod{name, template.ObjectMeta, template.Spec}
}

// fromTestRun is the pod that k6-operator makes of a part of a TestRun, as far as the TestRun says.
func fromTestRun(t *testing.T, name string, object *unstructured.Unstructured, part string) pod {
	t.Helper()
	fields, found, err := unstructured.NestedMap(object.Object, "spec", part)
	if err != nil || !found {
		t.Fatalf("%s has no %s: %v", name, part, err)
	}
	delete(fields, "metadata")
	var k6 struct {
		Token           string                      `json:"automountServiceAccountToken"`
		SecurityContext *corev1.PodSecurityContext  `json:"securityContext"`
		Container       *corev1.SecurityContext     `json:"containerSecurityContext"`
		Resources       corev1.ResourceRequirements `json:"resources"`
	}
	text, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &k6); err != nil {
		t.Fatal(err)
	}
	mounts := k6.Token != "false"
	return pod{name: name + " " + part, spec: corev1.PodSpec{
		AutomountServiceAccountToken: &mounts,
		SecurityContext:              k6.SecurityContext,
		Containers:                   []corev1.Container{{Name: "k6", SecurityContext: k6.Container, Resources: k6.Resources}},
	}}
}

// A namespace that enforces the restricted standard admits every pod that is not made so by its own template.
func TestFleetsPodsAreRestricted(t *testing.T) {
	pods := renderedPods(t)
	var kinds []string
	for _, p := range pods {
		kinds = append(kinds, p.name)
		problems, err := podsecurity.Restricted(&p.metadata, &p.spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s", p.name, problem)
		}
	}
	slices.Sort(kinds)
	want := []string{"before-full Job shop-before", "before-smallest Job shop-before", "full StatefulSet shop", "job Job rush-1", "redis StatefulSet shop",
		"redis StatefulSet shop-redis", "smallest StatefulSet shop", "testrun TestRun rush-1 initializer", "testrun TestRun rush-1 runner", "testrun TestRun rush-1 starter"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("pods that were looked at (-want +got):\n%s", diff)
	}
}

// What scanners of manifests ask for beyond the standard: each pod has it, or the table says why not.
func TestFleetsPodsAreNotLoose(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range renderedPods(t) {
		for _, said := range podsecurity.Loose(&p.spec) {
			seen[said] = true
			if loose[said] == "" {
				t.Errorf("%s: %s", p.name, said)
			}
		}
	}
	for said := range loose {
		if !seen[said] {
			t.Errorf("%q is excused, and no pod has it", said)
		}
	}
}
