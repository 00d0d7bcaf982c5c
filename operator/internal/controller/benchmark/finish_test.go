package benchmark

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// unreliable is an API server that does not answer as long as err is set.
type unreliable struct {
	client.Reader
	err error
}

func (u *unreliable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if u.err != nil {
		return u.err
	}
	return u.Reader.Get(ctx, key, object, options...)
}

// A benchmark is not over before its report says so: one that cannot be closed is closed by a later pass.
func TestAReportThatCannotBeClosedIsClosedLater(t *testing.T) {
	// The operator that runs leaves it alone.
	b := newBenchmark(t, suite.Namespace(t, api), "late", func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.Suspend = true })
	b.Status.Runs = []v1alpha1.BenchmarkRunStatus{{Name: "ets", Phase: v1alpha1.RunFinished, Verdict: v1alpha1.VerdictPassed}}
	live := &unreliable{Reader: api, err: errors.New("no answer")}
	r := &Reconciler{Client: api, Live: live, Clock: &operatorTime}

	p := &pass{benchmark: b}
	if err := r.finish(t.Context(), p); !errors.Is(err, live.err) {
		t.Fatalf("finish = %v", err)
	}
	if b.Status.FinishedAt != nil || b.Status.Phase == v1alpha1.BenchmarkFinished {
		t.Errorf("it is over without its report: %+v", b.Status)
	}

	live.err = nil
	if err := r.finish(t.Context(), p); !errors.Is(err, errWait) {
		t.Fatalf("finish = %v", err)
	}
	if b.Status.FinishedAt == nil || b.Status.Phase != v1alpha1.BenchmarkFinished {
		t.Errorf("it is not over: %+v", b.Status)
	}
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Status.Report.ConfigMap}}
	refresh(t, written)
}
