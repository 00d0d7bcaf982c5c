package upgrade

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is a pod with an application and a container that prepares it.
func pod(uid types.UID, restarts int32) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "agent"}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "app", RestartCount: restarts}},
	}}
}

func TestReplaced(t *testing.T) {
	before := map[string]string{"a/shop-0": life(pod("1", 0))}
	for name, c := range map[string]struct {
		now  map[string]string
		want int
	}{
		"as it was":             {map[string]string{"a/shop-0": life(pod("1", 0))}, 0},
		"one more":              {map[string]string{"a/shop-0": life(pod("1", 0)), "a/shop-1": life(pod("2", 0))}, 0},
		"another pod":           {map[string]string{"a/shop-0": life(pod("2", 0))}, 1},
		"a container restarted": {map[string]string{"a/shop-0": life(pod("1", 1))}, 1},
		"gone":                  {map[string]string{"a/shop-1": life(pod("1", 0))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := replaced(before, c.now); len(got) != c.want {
				t.Errorf("%d pods are called replaced: %v", len(got), got)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	before := map[string]any{"a": "1", "b": map[string]any{"c": []any{map[string]any{"d": int64(1)}, "e"}}}
	for name, c := range map[string]struct {
		now  any
		want []string
	}{
		"the same":       {before, nil},
		"a field more":   {map[string]any{"a": "1", "new": true, "b": map[string]any{"c": []any{map[string]any{"d": int64(1), "new": 2}, "e"}}}, nil},
		"a field less":   {map[string]any{"a": "1"}, []string{".b.c has 2 items, now 0"}},
		"another value":  {map[string]any{"a": "2", "b": before["b"]}, []string{`.a is "1", now "2"`}},
		"an item less":   {map[string]any{"a": "1", "b": map[string]any{"c": []any{"e"}}}, []string{".b.c has 2 items, now 1"}},
		"in an item":     {map[string]any{"a": "1", "b": map[string]any{"c": []any{map[string]any{}, "e"}}}, []string{".b.c[0].d is 1, now <nil>"}},
		"nothing":        {nil, []string{`.a is "1", now <nil>`, ".b.c has 2 items, now 0"}},
		"something else": {[]any{}, []string{`.a is "1", now <nil>`, ".b.c has 2 items, now 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, missing("", before, c.now)); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
