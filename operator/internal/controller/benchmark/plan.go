package benchmark

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
)

// plan makes the rows, as long as the spec may change, and finds the one that is next.
func (*Reconciler) plan(_ context.Context, p *pass) error {
	status := &p.benchmark.Status
	p.runs = loadtest.Plan(p.benchmark)
	if status.StartedAt == nil && status.FinishedAt == nil {
		status.Runs = rows(p.runs)
	}
	for i := range status.Runs {
		if i < len(p.runs) && status.Runs[i].Phase != v1alpha1.RunFinished {
			if why := loadtest.Beyond(p.runs, status.Runs, i); why != "" {
				status.Runs[i].Phase, status.Runs[i].Message = v1alpha1.RunFinished, why
				continue
			}
			p.row, p.run = &status.Runs[i], &p.runs[i]
			break
		}
	}
	return nil
}

func rows(runs []loadtest.Run) []v1alpha1.BenchmarkRunStatus {
	rows := make([]v1alpha1.BenchmarkRunStatus, 0, len(runs))
	for _, run := range runs {
		rows = append(rows, v1alpha1.BenchmarkRunStatus{
			Name: run.Name, Warmup: run.Warmup, Variant: run.Variant, Adapter: run.Adapter, Users: run.Users, Rate: run.Rate, TTL: metav1.Duration{Duration: run.TTL}, Phase: v1alpha1.RunPending,
		})
	}
	return rows
}
