package benchmark

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// unreliable is an API server that does not answer about the object of that name.
type unreliable struct {
	client.Reader
	silentAbout string
}

var errNoAnswer = errors.New("no answer")

func (u *unreliable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if key.Name == u.silentAbout {
		return errNoAnswer
	}
	return u.Reader.Get(ctx, key, object, options...)
}

// A benchmark is not over before its report says so and its samples are gone: what fails is done by a later pass.
func TestABenchmarkIsClosedLater(t *testing.T) {
	for what, name := range map[string]func(*v1alpha1.LiveStashBenchmark) string{"report": reportName, "samples": samplesName} {
		t.Run(what, func(t *testing.T) {
			// The operator that runs leaves it alone.
			b := newBenchmark(t, suite.Namespace(t, api), "late", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
			b.Status.Runs = []v1alpha1.BenchmarkRunStatus{{Name: "ets", Phase: v1alpha1.RunFinished, Verdict: v1alpha1.VerdictPassed}}
			live := &unreliable{Reader: api, silentAbout: name(b)}
			r := &Reconciler{Client: api, Live: live, Clock: &operatorTime}

			p := &pass{benchmark: b}
			if err := r.finish(t.Context(), p); !errors.Is(err, errNoAnswer) {
				t.Fatalf("finish = %v", err)
			}
			if b.Status.FinishedAt != nil || b.Status.Phase == v1alpha1.BenchmarkFinished {
				t.Errorf("it is over: %+v", b.Status)
			}

			live.silentAbout = ""
			if err := r.finish(t.Context(), p); !errors.Is(err, errWait) {
				t.Fatalf("finish = %v", err)
			}
			if b.Status.FinishedAt == nil || b.Status.Phase != v1alpha1.BenchmarkFinished {
				t.Errorf("it is not over: %+v", b.Status)
			}
			written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Status.Report.ConfigMap}}
			refresh(t, written)
		})
	}
}

// What a benchmark wrote down is in ConfigMaps that its user may edit. Whatever is in them, it goes on, and what it writes ends.
func TestEditedConfigMaps(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "edited", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	one := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	endless := fmt.Sprintf(`{"schemaVersion":%d,"runs":[{"name":"x","samples":{"memory":{"unit":"bytes","points":[[0,1],[1.7e308,1]],"peak":1}}}]}`, report.SchemaVersion)
	suite.Must(t, one.applyConfigMap(t.Context(), b, reportName(b), map[string]string{report.FileJSON: endless}))
	so, err := one.reportSoFar(t.Context(), b)
	if err != nil || len(so.Runs) != 0 || !strings.Contains(so.Message, reportName(b)) {
		t.Errorf("the report goes on with %+v (%v)", so, err)
	}
	renamed := fmt.Sprintf(`{"schemaVersion":%d,"name":"other","namespace":"kube-system","runs":[{"name":"x"}]}`, report.SchemaVersion)
	suite.Must(t, one.applyConfigMap(t.Context(), b, reportName(b), map[string]string{report.FileJSON: renamed}))
	so, err = one.reportSoFar(t.Context(), b)
	if err != nil || len(so.Runs) != 1 || so.Name != b.Name || so.Namespace != b.Namespace {
		t.Errorf("the report goes on with %+v (%v)", so, err)
	}

	row := &v1alpha1.BenchmarkRunStatus{Runner: "edited-01-ets-a", LoadStartedAt: ptr.To(metav1.Now())}
	for _, recorder := range []string{`{"tracks":{"memory":{"points":[[1.7e308,1]]}}}`, `{"tracks":{}}`, `{`} {
		suite.Must(t, one.applyConfigMap(t.Context(), b, samplesName(b), map[string]string{testKey: row.Runner, recorderKey: recorder}))
		next := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
		got, err := next.recordingOf(t.Context(), &pass{benchmark: b, row: row})
		suite.Must(t, err)
		got.recorder.Add(1, map[string]loadtest.Answer{"edited-0": {At: time.Now(), Metrics: agentclient.Metrics{Processes: 1}}})
		if points := got.recorder.Series()[report.SeriesProcesses].Points; len(points) != 1 {
			t.Errorf("after %s the points are %v", recorder, points)
		}
	}
}
