package benchmark

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// Two benchmarks on one target take turns, and the one that waits says for whom.
func TestTurns(t *testing.T) {
	space := suite.Namespace(t, api)
	sameURL := func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Target.URL = "http://shared." + space }
	first := newBenchmark(t, space, "zebra", sameURL)
	testRunOf(t, first)
	second := newBenchmark(t, space, "ant", sameURL)
	reaches(t, second, "waiting", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		complete := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete)
		return s.Phase == v1alpha1.BenchmarkWaiting && complete != nil && strings.Contains(complete.Message, "LiveStashBenchmark zebra")
	})
	other := newBenchmark(t, space, "elsewhere", nil)
	testRunOf(t, other)

	suite.Must(t, api.Delete(t.Context(), first))
	testRunOf(t, second)
}

// A namespace's benchmark holds up no other namespace's on the same URL, and neither learns of the other.
func TestTurnsAreOfOneNamespace(t *testing.T) {
	sameURL := func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Target.URL = "http://everybodys.example" }
	first := newBenchmark(t, suite.Namespace(t, api), "first", sameURL)
	testRunOf(t, first)
	second := newBenchmark(t, suite.Namespace(t, api), "second", sameURL)
	testRunOf(t, second)
	for _, condition := range second.Status.Conditions {
		if strings.Contains(condition.Message, first.Namespace) || strings.Contains(condition.Message, "first") {
			t.Errorf("it tells of the other: %s", condition.Message)
		}
	}
}
