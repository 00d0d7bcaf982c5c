package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// podOf is a pod of the fleet in that namespace.
func podOf(namespace, name, uid string, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func stops(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.Now()) }

func boots(pod *corev1.Pod) { pod.Status.Conditions = nil }

// A fleet is on its way from its first pod that stops, or comes, to the last one that is ready.
func TestOnTheWay(t *testing.T) {
	before := map[string]map[string]types.UID{"a": {"shop-0": "1", "shop-1": "2"}}
	for name, c := range map[string]struct {
		pods   []corev1.Pod
		moving []string
		over   []string
	}{
		"untouched":             {pods: []corev1.Pod{podOf("a", "shop-0", "1"), podOf("a", "shop-1", "2"), podOf("b", "shop-1", "9")}},
		"slow to say it serves": {pods: []corev1.Pod{podOf("a", "shop-0", "1", boots), podOf("a", "shop-1", "2")}},
		"one stops":             {pods: []corev1.Pod{podOf("a", "shop-0", "1"), podOf("a", "shop-1", "2", stops)}, moving: []string{"a"}},
		"one is gone":           {pods: []corev1.Pod{podOf("a", "shop-0", "1")}, moving: []string{"a"}},
		"one more":              {pods: []corev1.Pod{podOf("a", "shop-0", "1"), podOf("a", "shop-1", "2"), podOf("a", "shop-2", "3")}, moving: []string{"a"}},
		"half of them":          {pods: []corev1.Pod{podOf("a", "shop-0", "1"), podOf("a", "shop-1", "4")}, moving: []string{"a"}},
		"the last one boots":    {pods: []corev1.Pod{podOf("a", "shop-0", "3", boots), podOf("a", "shop-1", "4")}, moving: []string{"a"}},
		"over":                  {pods: []corev1.Pod{podOf("a", "shop-0", "3"), podOf("a", "shop-1", "4")}, over: []string{"a"}},
		"one too many":          {pods: []corev1.Pod{podOf("a", "shop-0", "3"), podOf("a", "shop-1", "4"), podOf("a", "shop-2", "5")}, moving: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			moving, over := onTheWay(before, c.pods)
			if diff := cmp.Diff([][]string{c.moving, c.over}, [][]string{moving, over}); diff != "" {
				t.Errorf("on their way, and over (-want +got):\n%s", diff)
			}
		})
	}
}

// Copies of a fleet are one result, which fails when one of them does.
func TestMerged(t *testing.T) {
	slow, fast := 9.0, 1.0
	got := merged([]result{
		{Adapter: "ETS", Event: "e", Sessions: 2, Recovered: 2, P99: &fast, remarks: []string{"same"}},
		{Adapter: "ETS", Event: "e", Sessions: 2, Recovered: 1, Lost: 1, P99: &slow, remarks: []string{"same"}, verdict: "1 sessions lost"},
		{Adapter: "Redis", Event: "e", Sessions: 2, Recovered: 2},
	})
	if len(got) != 2 || got[0].Sessions != 4 || got[0].Recovered != 3 || got[0].Lost != 1 || *got[0].P99 != slow || len(got[0].remarks) != 1 || !got[0].failed() || got[1].failed() {
		t.Errorf("merged = %+v", got)
	}
}
