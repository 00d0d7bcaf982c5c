package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/show"
)

// reportFiles are the keys of a report's ConfigMap.
var reportFiles = []string{"report.json", "report.md", "report.html"}

// benchOptions are the flags of `bench run`.
type benchOptions struct {
	target   string
	users    int32
	duration time.Duration
	// maxClientDelay 0 is the API's default.
	maxClientDelay time.Duration
	watch          bool
}

func (t *tool) benchCommand() *cobra.Command {
	command := &cobra.Command{Use: "bench", Short: "Run a load test against a fleet, watch it, fetch its report"}
	o := benchOptions{}
	run := &cobra.Command{
		Use:   "run NAME",
		Short: "Run a load test against a fleet that is there",
		Long: "Run a load test against a fleet that is there: creates the LiveStashBenchmark NAME with one run, with the fleet's own adapter and TTL. The application must answer " +
			"as the workloads do (docs/how-to/benchmark.md). For a matrix, or fleets made for it, write a LiveStashBenchmark.",
		Example: "  kubectl livestash bench run evening --target shop --users 200 --watch",
		Args:    cobra.ExactArgs(1),
		RunE:    func(command *cobra.Command, args []string) error { return t.benchRun(command.Context(), args[0], o) },
	}
	run.Flags().StringVar(&o.target, "target", "", "the LiveStashCluster; default: the only one of the namespace")
	run.Flags().Int32Var(&o.users, "users", 100, "users at the same time")
	run.Flags().DurationVar(&o.duration, "duration", 0, "of the run; default: three TTLs")
	run.Flags().DurationVar(&o.maxClientDelay, "max-client-delay", 0,
		"how late the load test itself may be (p99) before its times do not count and the verdict is Errored; default: 100ms")
	run.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch it until it has finished")
	watching := &cobra.Command{
		Use: "watch NAME", Short: "Watch a benchmark until it has finished", Args: cobra.ExactArgs(1),
		Long: "Watch a benchmark until it has finished. Fails when its verdict is not Passed.",
		RunE: func(command *cobra.Command, args []string) error { return t.benchWatch(command.Context(), args[0]) },
	}
	out := "."
	report := &cobra.Command{
		Use: "report NAME", Short: "Write the report of a benchmark as files", Args: cobra.ExactArgs(1),
		Long: "Write the report of a benchmark as files: report.html, report.md and report.json.",
		RunE: func(command *cobra.Command, args []string) error {
			return t.benchReport(command.Context(), args[0], out)
		},
	}
	report.Flags().StringVar(&out, "out", ".", "the folder")
	command.AddCommand(t.forScripts(run), t.forScripts(watching), report)
	return command
}

func (t *tool) benchRun(ctx context.Context, name string, o benchOptions) error {
	access, c, err := t.fleet(ctx, o.target)
	if err != nil {
		return err
	}
	if err := access.Create(ctx, benchmarkOf(c, name, o), client.FieldOwner(fieldManager)); err != nil {
		return err
	}
	if o.watch {
		return t.benchWatch(ctx, name)
	}
	t.sayf("The benchmark %s has begun: `kubectl livestash bench watch %s`, then `kubectl livestash bench report %s`.", name, name, name)
	return nil
}

// benchmarkOf is one run against a fleet as it is.
func benchmarkOf(c *v1alpha1.LiveStashCluster, name string, o benchOptions) *v1alpha1.LiveStashBenchmark {
	run := v1alpha1.BenchmarkRun{Users: o.users, TTL: metav1.Duration{Duration: time.Duration(c.TTLSeconds()) * time.Second}}
	if o.duration > 0 {
		run.Duration = &metav1.Duration{Duration: o.duration}
	}
	var thresholds v1alpha1.BenchmarkThresholds
	if o.maxClientDelay > 0 {
		thresholds.MaxClientDelay = &metav1.Duration{Duration: o.maxClientDelay}
	}
	return &v1alpha1.LiveStashBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.Namespace},
		Spec: v1alpha1.LiveStashBenchmarkSpec{
			Target:     v1alpha1.BenchmarkTarget{ClusterRef: &v1alpha1.BenchmarkClusterReference{Name: c.Name}},
			Matrix:     &v1alpha1.BenchmarkMatrix{Adapters: []v1alpha1.Adapter{c.Spec.Adapter}, Runs: []v1alpha1.BenchmarkRun{run}},
			Thresholds: thresholds,
		},
	}
}

func (t *tool) benchWatch(ctx context.Context, name string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	b, err := t.finished(ctx, access, name)
	if err != nil {
		return err
	}
	result := show.BenchmarkOf(b)
	if err := t.print(result, result.Write); err != nil {
		return err
	}
	if b.Status.Verdict != v1alpha1.VerdictPassed {
		return fmt.Errorf("the verdict is %s", b.Status.Verdict)
	}
	return nil
}

// finished waits until a benchmark is over, and shows how far it is.
func (t *tool) finished(ctx context.Context, access *kube.Access, name string) (*v1alpha1.LiveStashBenchmark, error) {
	last := ""
	for ctx.Err() == nil {
		changes, err := access.Watch(ctx, &v1alpha1.LiveStashBenchmarkList{}, client.InNamespace(access.Namespace),
			&client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)})
		if err != nil {
			return nil, kube.Explained(err)
		}
		// A watch begins with what is there, and says nothing of what is not.
		if err := access.Get(ctx, client.ObjectKey{Namespace: access.Namespace, Name: name}, &v1alpha1.LiveStashBenchmark{}); err != nil {
			changes.Stop()
			return nil, kube.Explained(err)
		}
		for change := range changes.ResultChan() {
			b, is := change.Object.(*v1alpha1.LiveStashBenchmark)
			if !is {
				break
			}
			if change.Type == "DELETED" {
				changes.Stop()
				return nil, errors.New("the benchmark was deleted")
			}
			if line := show.BenchmarkOf(b).Line(t.paint()); line != last && t.output == "" {
				last = line
				t.draw(line)
			}
			if b.Status.Phase == v1alpha1.BenchmarkFinished {
				changes.Stop()
				return b, nil
			}
		}
		changes.Stop()
	}
	return nil, ctx.Err()
}

func (t *tool) benchReport(ctx context.Context, name, out string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	b := &v1alpha1.LiveStashBenchmark{}
	if err := access.Get(ctx, client.ObjectKey{Namespace: access.Namespace, Name: name}, b); err != nil {
		return kube.Explained(err)
	}
	if b.Status.Report == nil {
		return fmt.Errorf("the benchmark %s has no report yet: `kubectl livestash bench watch %s`", name, name)
	}
	files := &corev1.ConfigMap{}
	if err := access.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Status.Report.ConfigMap}, files); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	for _, file := range reportFiles {
		if err := os.WriteFile(filepath.Join(out, file), []byte(files.Data[file]), 0o600); err != nil {
			return err
		}
	}
	t.sayf("The report of %s: %s (for a browser), report.md and report.json", name, filepath.Join(out, "report.html"))
	return nil
}
