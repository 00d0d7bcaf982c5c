package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// pods are the lives of all pods of some namespaces, by namespace and name: another pod, or a container that has ended, is another life.
func pods(ctx context.Context, c *fleet.Cluster, namespaces []string) (map[string]string, error) {
	lives := map[string]string{}
	for _, namespace := range namespaces {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, pod := range list.Items {
			lives[namespace+"/"+pod.Name] = life(pod)
		}
	}
	return lives, nil
}

func life(pod corev1.Pod) string {
	parts := []string{string(pod.UID)}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		parts = append(parts, fmt.Sprintf("%s restarted %d times", container.Name, container.RestartCount))
	}
	return strings.Join(parts, ", ")
}

// replaced is what is another pod now, or has restarted, or is gone.
func replaced(before, now map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now[name] != before[name] {
			all = append(all, fmt.Sprintf("%s: %s, now %q", name, before[name], now[name]))
		}
	}
	return all
}

// objects are what users have written into LiveStashClusters and LiveStashBenchmarks, and what came out of benchmarks that are over, by kind,
// namespace and name. The reports' ConfigMaps are among them.
func objects(ctx context.Context, c *fleet.Cluster) (map[string]any, error) {
	all := map[string]any{}
	for _, resource := range []string{"livestashclusters", "livestashbenchmarks"} {
		list, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "livestash.dev", Version: "v1alpha1", Resource: resource}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			if len(item.GetOwnerReferences()) > 0 {
				continue // the fleet of a benchmark's run goes with it
			}
			name := objectName(resource, item.GetNamespace(), item.GetName())
			all[name] = item.Object["spec"]
			status, _ := item.Object["status"].(map[string]any)
			if status["phase"] != "Finished" {
				continue
			}
			all[name+", result"] = map[string]any{"verdict": status["verdict"], "runs": status["runs"], "report": status["report"]}
			report, _ := status["report"].(map[string]any)
			config, err := c.CoreV1().ConfigMaps(item.GetNamespace()).Get(ctx, fmt.Sprint(report["configMap"]), metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("the report of %s: %w", name, err)
			}
			text := map[string]any{}
			for key, value := range config.Data {
				text[key] = value
			}
			all[name+", report"] = text
		}
	}
	return all, nil
}

func objectName(resource, namespace, name string) string {
	return resource + " " + namespace + "/" + name
}

// nameOf is a fleet's name among the objects.
func nameOf(f *fleet.Fleet) string { return objectName("livestashclusters", f.Namespace, fleet.Name) }

// missing is what of a value is not in another one any more, or is something else there. What was added is not spoken of.
func missing(path string, before, now any) []string {
	switch was := before.(type) {
	case map[string]any:
		is, _ := now.(map[string]any)
		var all []string
		for _, key := range slices.Sorted(maps.Keys(was)) {
			all = append(all, missing(path+"."+key, was[key], is[key])...)
		}
		return all
	case []any:
		is, _ := now.([]any)
		if len(is) != len(was) {
			return []string{fmt.Sprintf("%s has %d items, now %d", path, len(was), len(is))}
		}
		var all []string
		for i := range was {
			all = append(all, missing(fmt.Sprintf("%s[%d]", path, i), was[i], is[i])...)
		}
		return all
	}
	if !reflect.DeepEqual(before, now) {
		return []string{fmt.Sprintf("%s is %s, now %s", path, short(before), short(now))}
	}
	return nil
}

func short(value any) string {
	text := fmt.Sprintf("%#v", value)
	return text[:min(len(text), 200)]
}

// definitionsDiffer is in what the CustomResourceDefinitions of the cluster differ from those of a chart.
func definitionsDiffer(ctx context.Context, c *fleet.Cluster, chart string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(chart, "charts", "livestash-operator", "files", "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the chart %s has no CustomResourceDefinitions", chart)
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var want definition
		if err := yaml.Unmarshal(text, &want); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		raw, err := c.Raw(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+want.Metadata.Name)
		if err != nil {
			return nil, err
		}
		var has definition
		if err := json.Unmarshal(raw, &has); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(want.schemas(), has.schemas()) {
			all = append(all, want.Metadata.Name)
		}
	}
	return all, nil
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Versions []struct {
			Name   string         `json:"name"`
			Schema map[string]any `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

func (d definition) schemas() map[string]any {
	all := map[string]any{}
	for _, version := range d.Spec.Versions {
		all[version.Name] = version.Schema
	}
	return all
}
