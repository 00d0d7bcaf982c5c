package inputs

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

// objectOf is an object of this API. It is named shop unless it has another name.
func objectOf(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetNamespace(namespace)
	object.SetName(cmp.Or(name, "shop"))
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object.DeepCopy()
}

// in is a copy of the object in a namespace.
func in(namespace string, object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetNamespace(namespace)
	return object
}

// there is what is named "Service shop". Nil when there is none.
func there(t *testing.T, namespace, kindAndName string) *unstructured.Unstructured {
	t.Helper()
	kind, name, _ := strings.Cut(kindAndName, " ")
	resource, known := resources[kind]
	if !known {
		t.Fatalf("%q is no kind that cases know", kind)
	}
	found, err := raw.Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	suite.Must(t, err)
	return found
}

// state is what the operator says of an object.
type state struct {
	generation, observed int64
	conditions           []metav1.Condition
	// more are the messages of a benchmark's runs.
	more []string
	// isOver is whether a benchmark has finished.
	isOver bool
}

func stateOf(ctx context.Context, object client.Object) (state, error) {
	key := client.ObjectKeyFromObject(object)
	if object.GetObjectKind().GroupVersionKind().Kind == "LiveStashCluster" {
		c := &v1alpha1.LiveStashCluster{}
		err := seen.Get(ctx, key, c)
		return state{generation: c.Generation, observed: c.Status.ObservedGeneration, conditions: c.Status.Conditions}, err
	}
	b := &v1alpha1.LiveStashBenchmark{}
	err := seen.Get(ctx, key, b)
	now := state{generation: b.Generation, observed: b.Status.ObservedGeneration, conditions: b.Status.Conditions, isOver: b.Status.FinishedAt != nil}
	for _, run := range b.Status.Runs {
		now.more = append(now.more, run.Message)
	}
	return now, err
}

// misses says what is not as it should be. Empty when all is.
func (s state) misses(want expectation) string {
	found := meta.FindStatusCondition(s.conditions, want.Type)
	if found == nil || found.ObservedGeneration != s.generation || s.generation == 0 {
		return fmt.Sprintf("condition %s does not speak of this spec yet: %+v", want.Type, s.conditions)
	}
	if found.Status != cmp.Or(want.Status, metav1.ConditionFalse) || want.Reason != "" && found.Reason != want.Reason {
		return fmt.Sprintf("condition %s is %s, %s: %s", want.Type, found.Status, found.Reason, found.Message)
	}
	text := strings.Join(append(s.more, found.Message), "\n")
	for _, part := range want.Says {
		if !strings.Contains(text, part) {
			return fmt.Sprintf("condition %s does not say %q: %s", want.Type, part, text)
		}
	}
	return ""
}

// discard deletes an object and the fleets of its runs, as the garbage collector would: nothing is to be done for them any more.
func discard(object client.Object) {
	ctx := context.Background()
	_ = raw.Resource(resources[object.GetObjectKind().GroupVersionKind().Kind]).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	if object.GetObjectKind().GroupVersionKind().Kind == "LiveStashBenchmark" {
		_ = api.DeleteAllOf(ctx, &v1alpha1.LiveStashCluster{}, client.InNamespace(object.GetNamespace()), client.MatchingLabels{runner.BenchmarkLabel: object.GetName()})
	}
}
