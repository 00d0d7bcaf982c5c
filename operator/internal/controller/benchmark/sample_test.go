package benchmark

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
)

// An operator goes on with the samples that the one before it has written down, and not with those of another test.
func TestSamplesOutliveTheOperator(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "bench", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	began := time.Now().Add(-time.Minute)
	before := &recording{test: "bench-01-ets-a", recorder: loadtest.NewRecorder(began)}
	for i := range 3 {
		before.recorder.Add(began.Add(time.Duration(i)*sampleInterval), 1, map[string]agentclient.Metrics{"pod": {Processes: float64(100 + i)}})
	}
	one := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	suite.Must(t, one.keepSamples(t.Context(), b, before))

	cases := map[string]struct {
		test string
		want *loadtest.Recorder
	}{
		"the same test": {"bench-01-ets-a", before.recorder},
		"another test":  {"bench-01-ets-b", loadtest.NewRecorder(began)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			next := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
			row := &v1alpha1.BenchmarkRunStatus{Runner: c.test, LoadStartedAt: ptr.To(metav1.NewTime(began))}
			got, err := next.recordingOf(t.Context(), &pass{benchmark: b, row: row})
			suite.Must(t, err)
			if text(t, got.recorder) != text(t, c.want) {
				t.Errorf("it goes on with %s, want %s", text(t, got.recorder), text(t, c.want))
			}
		})
	}
}

func text(t *testing.T, recorder *loadtest.Recorder) string {
	t.Helper()
	text, err := json.Marshal(recorder)
	suite.Must(t, err)
	return string(text)
}
