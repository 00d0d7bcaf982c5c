package benchmark

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// begin starts the next run. Its names are in the status before anything is made under them.
func (r *Reconciler) begin(_ context.Context, p *pass) error {
	if p.row.Phase != v1alpha1.RunPending {
		return nil
	}
	now := r.now()
	p.row.Phase, p.row.StartedAt = v1alpha1.RunPreparing, now
	p.row.Attempt++
	p.row.Runner = testName(p.benchmark, p.row)
	p.row.Events = eventRows(*p.run)
	p.benchmark.Status.StartedAt = ptr.To(ptr.Deref(p.benchmark.Status.StartedAt, *now))
	r.Recorder.Eventf(p.benchmark, nil, corev1.EventTypeNormal, reasonRunStarted, "Run", "%s: %s, %s",
		p.row.Name, p.run.Compared(), p.run.Load())
	p.DueIn(0)
	return p.wait("%s begins", p.row.Name)
}

// checkNames refuses to begin while the report, or the samples for it, would have a name that somebody else's ConfigMap has: what is found
// out after hours would be found out too late.
func (r *Reconciler) checkNames(ctx context.Context, p *pass) error {
	b := p.benchmark
	if b.Status.StartedAt != nil {
		return nil
	}
	names := []string{reportName(b)}
	if b.Spec.Target.URL == "" {
		names = append(names, samplesName(b))
	}
	for _, name := range names {
		live := &corev1.ConfigMap{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: name}, live)
		if err == nil {
			err = r.applier().CheckOwner(b, live)
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// testName is never the same for two tests, also not for those of a benchmark that was deleted and made again: k6-operator
// finds the parts of a test by its name.
func testName(b *v1alpha1.LiveStashBenchmark, row *v1alpha1.BenchmarkRunStatus) string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%d", b.UID, row.Attempt))
	return row.Name + "-" + hex.EncodeToString(digest[:3])
}
