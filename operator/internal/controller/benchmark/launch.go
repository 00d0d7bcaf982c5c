package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

// observe looks at the test of the run, whoever runs it.
func (r *Reconciler) observe(ctx context.Context, p *pass) error {
	p.test = testOf(p)
	candidates, err := r.runners(p)
	if err != nil {
		return err
	}
	for _, candidate := range candidates {
		seen, err := candidate.Observe(ctx, p.test)
		if err != nil {
			return err
		}
		if p.runner == nil || seen.Made {
			p.runner, p.seen = candidate, seen
		}
		if seen.Made {
			break
		}
	}
	return nil
}

// runners are those that may have the test, the one that is to get it first. Empty when that one is not there.
func (r *Reconciler) runners(p *pass) ([]runner.Runner, error) {
	if p.benchmark.Spec.Runner == v1alpha1.RunnerJob {
		return []runner.Runner{r.Job}, nil
	}
	served, err := runner.Served(r.RESTMapper())
	if err != nil {
		return nil, fmt.Errorf("looking for k6-operator: %w", err)
	}
	var all []runner.Runner
	if served {
		if err := r.watchTestRuns(); err != nil {
			return nil, err
		}
		all = append(all, &runner.TestRun{Reader: r.Tests, Logs: r.Logs})
	}
	if p.benchmark.Spec.Runner != v1alpha1.RunnerK6Operator {
		all = append(all, r.Job)
	}
	return all, nil
}

// testOf is the test of the run, as far as it can be said without a target.
func testOf(p *pass) runner.Test {
	template := p.benchmark.Spec.RunnerTemplate
	test := runner.Test{
		Name:         p.row.Runner,
		Namespace:    p.benchmark.Namespace,
		Labels:       labelsOf(p.benchmark),
		Owner:        ownerReference(p.benchmark),
		Image:        template.Image,
		PullPolicy:   template.ImagePullPolicy,
		PullSecrets:  template.ImagePullSecrets,
		Resources:    template.Resources,
		NodeSelector: template.NodeSelector,
		Tolerations:  template.Tolerations,
		Script:       runner.Script{File: loadtest.ScenarioOf(p.run.Scenario).Script()},
		Runners:      p.run.Runners,
		// The operator's own deadline comes first.
		Limit: p.run.Deadline + time.Minute,
	}
	if script := p.benchmark.Spec.Script; script != nil {
		test.Script = runner.Script{ConfigMap: script.ConfigMapRef.Name, File: script.ConfigMapRef.Key}
	}
	return test
}

// launch makes the test, and lets the runners go when all of them are ready.
func (r *Reconciler) launch(ctx context.Context, p *pass) error {
	switch {
	case p.runner == nil:
		return r.end(ctx, p, loadtest.Errored("This cluster has no k6-operator (kind TestRun of k6.io/v1alpha1): install it, or set spec.runner to Auto or Job."))
	case !p.seen.Made && p.row.Phase == v1alpha1.RunRunning:
		return r.end(ctx, p, loadtest.Errored(fmt.Sprintf("The test %s was deleted while it ran.", p.test.Name)))
	case !p.seen.Made:
		return r.makeTest(ctx, p)
	case p.row.Phase == v1alpha1.RunRunning:
		p.doing = fmt.Sprintf("%s: k6 runs", p.row.Name)
		p.DueIn(time.Minute) // status.timeLeft is in minutes, and of a target without agents nothing else is looked at
		return nil
	}
	if allReady(p.seen) {
		if err := p.runner.Begin(ctx, p.seen); err != nil {
			p.DueIn(time.Second)
			return p.wait("%s: %v", p.row.Name, err)
		}
		p.seen.Begun = p.seen.Begun || p.runner == r.Job
	}
	if p.seen.Begun {
		p.row.Phase, p.row.LoadStartedAt = v1alpha1.RunRunning, r.now()
	}
	p.doing = fmt.Sprintf("%s: %s", p.row.Name, cmp.Or(p.seen.Waiting, "the runners start"))
	return nil
}

func (r *Reconciler) makeTest(ctx context.Context, p *pass) error {
	if problem, err := r.checkScript(ctx, p.test); err != nil || problem != "" {
		if err != nil {
			return err
		}
		return r.end(ctx, p, loadtest.Errored(problem))
	}
	p.test.UsersImage = p.test.Image != "" && p.test.Image != r.RunnerImage
	p.test.Image = cmp.Or(p.test.Image, r.RunnerImage)
	p.test.StarterImage = r.StarterImage
	if p.cluster != nil {
		p.test.TargetPods = p.cluster.DesiredReplicas()
	}
	p.test.Env = p.run.Options(p.test.Name, p.bases, p.run.Limits(p.benchmark.Spec.Thresholds))
	if prometheus := p.benchmark.Spec.PrometheusRemoteWrite; prometheus != nil {
		p.test.Prometheus = prometheus.URL
	}
	if err := r.protectTest(ctx, p); err != nil {
		return err
	}
	err := r.Create(ctx, p.runner.Object(p.test), apply.FieldOwner)
	if sentence := refusal(err); sentence != "" {
		return r.end(ctx, p, loadtest.Errored(sentence))
	}
	if err != nil {
		return fmt.Errorf("creating the test %s: %w", p.test.Name, err)
	}
	return p.wait("%s: the runners are being made", p.row.Name)
}

// protectTest closes the runners to all but those who start them. An operator outside of the cluster would close them to itself.
func (r *Reconciler) protectTest(ctx context.Context, p *pass) error {
	if r.Namespace == "" {
		return nil
	}
	_, err := apply.Applier{Writer: r.Client, Known: r.Live, Live: r.Live}.One(ctx, p.benchmark, runner.NetworkPolicy(p.test, r.Namespace))
	return err
}

// checkScript says what is wrong with the user's own script, as far as that can be seen without k6. Pods would wait for a
// ConfigMap that is not there.
func (r *Reconciler) checkScript(ctx context.Context, test runner.Test) (string, error) {
	script := test.Script
	if script.ConfigMap == "" {
		return "", nil
	}
	config := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: test.Namespace, Name: script.ConfigMap}, config)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("There is no ConfigMap %s in namespace %s, which spec.script names: make it, and then the LiveStashBenchmark anew.", script.ConfigMap, test.Namespace), nil
	}
	if err != nil {
		return "", fmt.Errorf("looking up ConfigMap %s: %w", script.ConfigMap, err)
	}
	if _, found := config.Data[script.File]; !found {
		return fmt.Sprintf("ConfigMap %s has no key %s, which spec.script names.", script.ConfigMap, script.File), nil
	}
	return "", nil
}

func allReady(seen runner.Observation) bool {
	for _, process := range seen.Runners {
		if process.State != runner.Ready {
			return false
		}
	}
	return len(seen.Runners) > 0
}
