package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// No drain takes the only pod, if somebody else takes it.
func TestDisruptionBudgetOfTheOnlyPod(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.LiveStashClusterSpec)
		moves  bool
		on     corev1.PodSpec
		want   string
	}{
		"two pods":                   {change: func(s *v1alpha1.LiveStashClusterSpec) { s.Replicas = ptr.To[int32](2) }, moves: true, want: "1"},
		"one pod":                    {moves: true, want: "0"},
		"nobody sees nodes":          {want: "1"},
		"no second pod":              {change: func(s *v1alpha1.LiveStashClusterSpec) { s.Rollout.Surge = v1alpha1.SurgeNever }, moves: true, want: "1"},
		"the user says so":           {change: mayBeAway(intstr.FromString("100%")), moves: true, want: "100%"},
		"the user says two":          {change: mayBeAway(intstr.FromInt32(2)), moves: true, want: "2"},
		"it runs on cordoned nodes":  {moves: true, on: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}, want: "1"},
		"it runs on one node always": {moves: true, on: corev1.PodSpec{NodeName: "node-1"}, want: "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, in := rendertest.Cluster(t, "smallest"), rendertest.Inputs
			cluster.Spec.Replicas, in.MovesPods = ptr.To[int32](1), c.moves
			if c.change != nil {
				c.change(&cluster.Spec)
			}
			if got := PodDisruptionBudget(cluster, in, &c.on).Spec.MaxUnavailable.String(); got != c.want {
				t.Errorf("maxUnavailable is %s, want %s", got, c.want)
			}
		})
	}
}

func mayBeAway(pods intstr.IntOrString) func(*v1alpha1.LiveStashClusterSpec) {
	return func(spec *v1alpha1.LiveStashClusterSpec) { spec.DisruptionBudget.MaxUnavailable = &pods }
}
