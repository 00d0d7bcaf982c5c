package benchmark

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// finish closes the benchmark when all runs are over, and removes it when its time has come.
func (r *Reconciler) finish(ctx context.Context, p *pass) error {
	if p.row != nil {
		return nil
	}
	b := p.benchmark
	if b.Status.FinishedAt == nil {
		b.Status.FinishedAt = r.now()
		err := r.closeReport(ctx, p)
		if err == nil {
			err = r.removeSamples(ctx, b)
		}
		if err != nil {
			b.Status.FinishedAt = nil // so that it is tried again
			return err
		}
		b.Status.Phase = v1alpha1.BenchmarkFinished
		r.tellComparison(b)
		r.recordings.forget(client.ObjectKeyFromObject(b))
	}
	p.doing = fmt.Sprintf("over, runs: %d", len(b.Status.Runs))
	keep := b.Spec.TTLSecondsAfterFinished
	if keep == nil {
		return errWait
	}
	left := time.Duration(*keep)*time.Second - r.Clock.Since(b.Status.FinishedAt.Time)
	if left > 0 {
		p.DueIn(left)
		return errWait
	}
	if err := client.IgnoreNotFound(r.Delete(ctx, b, client.Preconditions{UID: &b.UID})); err != nil {
		return fmt.Errorf("deleting the benchmark after its ttlSecondsAfterFinished: %w", err)
	}
	return errWait
}

func (r *Reconciler) removeSamples(ctx context.Context, b *v1alpha1.LiveStashBenchmark) error {
	samples := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: samplesName(b)}, samples)
	if err != nil || !metav1.IsControlledBy(samples, b) {
		return client.IgnoreNotFound(err)
	}
	_, err = r.delete(ctx, samples)
	return err
}
