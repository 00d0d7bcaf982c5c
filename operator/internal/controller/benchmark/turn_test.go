package benchmark

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// on is a benchmark of a target.
func on(namespace, name string, target v1alpha1.BenchmarkTarget) *v1alpha1.LiveStashBenchmark {
	b := &v1alpha1.LiveStashBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Spec.Target = target
	return b
}

func TestSameTarget(t *testing.T) {
	url := func(url string) v1alpha1.BenchmarkTarget { return v1alpha1.BenchmarkTarget{URL: url} }
	fleet := func(name string) v1alpha1.BenchmarkTarget {
		return v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: name}}
	}
	fresh := v1alpha1.BenchmarkTarget{Template: &v1alpha1.BenchmarkTemplate{}}
	for name, c := range map[string]struct {
		namespace  string
		one, other v1alpha1.BenchmarkTarget
		areTheSame bool
	}{
		"one URL":                     {"web", url("http://a"), url("http://a"), true},
		"with a slash":                {"web", url("http://a/"), url("http://a"), true},
		"another URL":                 {"web", url("http://a"), url("http://b"), false},
		"one URL, another namespace":  {"other", url("http://a"), url("http://a"), false},
		"one fleet":                   {"web", fleet("shop"), fleet("shop"), true},
		"another fleet":               {"web", fleet("shop"), fleet("cart"), false},
		"a fleet of another's name":   {"other", fleet("shop"), fleet("shop"), false},
		"a fleet and a URL":           {"web", fleet("shop"), url("http://shop"), false},
		"a URL and a fleet":           {"web", url("http://shop"), fleet("shop"), false},
		"fresh fleets are one's own":  {"web", fresh, fresh, false},
		"a fresh fleet and one there": {"web", fresh, fleet("shop"), false},
	} {
		if got := sameTarget(on("web", "one", c.one), on(c.namespace, "other", c.other)); got != c.areTheSame {
			t.Errorf("%s: the same target: %t", name, got)
		}
	}
}

// Of two on one target the older goes first, and nobody waits for one that is over, that goes, or that has been told to wait itself.
func TestBefore(t *testing.T) {
	now := metav1.Now()
	b := on("web", "m", v1alpha1.BenchmarkTarget{})
	b.CreationTimestamp = now
	for name, c := range map[string]struct {
		change func(*v1alpha1.LiveStashBenchmark)
		want   bool
	}{
		"an older one":    {func(o *v1alpha1.LiveStashBenchmark) { o.CreationTimestamp = metav1.NewTime(now.Add(-time.Second)) }, true},
		"a younger one":   {func(o *v1alpha1.LiveStashBenchmark) { o.CreationTimestamp = metav1.NewTime(now.Add(time.Second)) }, false},
		"as old, by name": {func(o *v1alpha1.LiveStashBenchmark) { o.Name = "a" }, true},
		"as old, later":   {func(o *v1alpha1.LiveStashBenchmark) { o.Name = "z" }, false},
		"a younger one that runs": {func(o *v1alpha1.LiveStashBenchmark) {
			o.CreationTimestamp, o.Status.Phase = metav1.NewTime(now.Add(time.Second)), v1alpha1.BenchmarkRunning
		}, true},
		"a younger one that is being stopped": {func(o *v1alpha1.LiveStashBenchmark) {
			o.CreationTimestamp, o.Spec.Suspend, o.Status.Phase = metav1.NewTime(now.Add(time.Second)), true, v1alpha1.BenchmarkSuspended
			o.Status.Runs = []v1alpha1.BenchmarkRunStatus{{Phase: v1alpha1.RunFinished}, {Phase: v1alpha1.RunRunning}, {}}
		}, true},
		"an older one that waits on purpose": {func(o *v1alpha1.LiveStashBenchmark) {
			o.CreationTimestamp, o.Spec.Suspend = metav1.NewTime(now.Add(-time.Second)), true
			o.Status.Runs = []v1alpha1.BenchmarkRunStatus{{Phase: v1alpha1.RunFinished}, {Phase: v1alpha1.RunPending}, {}}
		}, false},
		"an older one that is over": {func(o *v1alpha1.LiveStashBenchmark) {
			o.CreationTimestamp, o.Status.Phase = metav1.NewTime(now.Add(-time.Second)), v1alpha1.BenchmarkFinished
		}, false},
		"one that runs and goes": {func(o *v1alpha1.LiveStashBenchmark) {
			o.DeletionTimestamp, o.Status.Phase = &now, v1alpha1.BenchmarkRunning
		}, false},
	} {
		other := on("web", "m", v1alpha1.BenchmarkTarget{})
		other.CreationTimestamp = now
		c.change(other)
		if got := before(other, b); got != c.want {
			t.Errorf("%s is before: %t", name, got)
		}
	}
}
