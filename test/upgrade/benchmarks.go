package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// benchmarks are small ones in a namespace of their own.
type benchmarks struct {
	*fleet.Cluster
	namespace string
	image     string
}

// prepare makes the namespace.
func (b benchmarks) prepare(ctx context.Context) error {
	if _, err := b.Kubectl(ctx, "", "create", "namespace", b.namespace); err != nil {
		return err
	}
	_, err := b.Kubectl(ctx, "", "label", "namespace", b.namespace, "pod-security.kubernetes.io/enforce=restricted")
	return err
}

// begin makes a benchmark of these adapters, one run that long for each, and waits until the load of the first one has begun. A
// machine that does everything at once is not held to times.
func (b benchmarks) begin(ctx context.Context, name, duration string, adapters ...string) error {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashBenchmark", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"runner": "Job", "scenario": "Reconnect", "cooldown": "1s", "thresholds": map[string]any{"maxClientDelay": "1m"},
			"target": map[string]any{"template": map[string]any{"spec": map[string]any{
				"image": b.image, "replicas": 1, "http": map[string]any{"readinessPath": "/healthz"},
			}}},
			"matrix": map[string]any{
				"adapters": adapters, "runs": []any{map[string]any{"users": 10, "ttl": "10s", "ramp": "2s", "duration": duration}},
			},
		},
	})
	if err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, string(manifest), "--namespace", b.namespace, "apply", "-f", "-"); err != nil {
		return err
	}
	return fleet.Eventually(ctx, 3*time.Minute, func(ctx context.Context) error {
		now, err := b.look(ctx, name)
		if err == nil && (len(now.Runs) == 0 || now.Runs[0].LoadStartedAt == "") {
			err = fmt.Errorf("benchmark %s does not run: %+v", name, now)
		}
		return err
	})
}

// firstRuns fails unless the first run of a benchmark is under way.
func (b benchmarks) firstRuns(ctx context.Context, name string) error {
	now, err := b.look(ctx, name)
	if err == nil && (now.Phase == "Finished" || now.Runs[0].Verdict != "") {
		err = fmt.Errorf("the first run of benchmark %s is over already, so nothing happened in the middle of it: %+v", name, now)
	}
	return err
}

// passed waits until a benchmark is over, and fails unless each of its runs has passed, the first time.
func (b benchmarks) passed(ctx context.Context, name string) error {
	var now benchmark
	err := fleet.Eventually(ctx, 10*time.Minute, func(ctx context.Context) (err error) {
		now, err = b.look(ctx, name)
		if err == nil && now.Phase != "Finished" {
			err = fmt.Errorf("benchmark %s is not over: %+v", name, now)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, run := range now.Runs {
		if run.Verdict != "Passed" || run.Attempt > 1 {
			return fmt.Errorf("benchmark %s: %+v", name, run)
		}
	}
	return nil
}

// benchmark is what is read of a LiveStashBenchmark's status.
type benchmark struct {
	Phase string `json:"phase"`
	Runs  []struct {
		Name          string `json:"name"`
		Verdict       string `json:"verdict"`
		Message       string `json:"message"`
		Attempt       int    `json:"attempt"`
		LoadStartedAt string `json:"loadStartedAt"`
	} `json:"runs"`
}

func (b benchmarks) look(ctx context.Context, name string) (benchmark, error) {
	var object struct {
		Status benchmark `json:"status"`
	}
	raw, err := b.Raw(ctx, fmt.Sprintf("/apis/livestash.dev/v1alpha1/namespaces/%s/livestashbenchmarks/%s", b.namespace, name))
	if err != nil {
		return object.Status, err
	}
	err = json.Unmarshal(raw, &object)
	return object.Status, err
}
