// Command testruns writes manifests/testruns: the published tests as plain TestRuns, for those who use k6-operator without
// this operator.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
)

const (
	// fleet stands for the name of the user's LiveStashCluster, with two pods, in the namespace of the TestRun.
	fleet = "my-fleet"

	readme = `# The published tests as TestRuns

One TestRun of [k6-operator](https://github.com/grafana/k6-operator) for each of the 35 cells of LiveStash's published test, from 01 to 35, and one for
each load of the [other published tests](../../docs/benchmarks.md#other-published-tests) after them. Their fleet is the LiveStashCluster
` + "`" + fleet + "`" + ` in the same namespace, with two pods: put the name of yours in its place. Up to 35 its adapter and TTL must be those of the file.

` + "```" + `
sed 's/` + fleet + `/shop/g; s|ghcr.io/livestash-dev|registry.example/you|' manifests/testruns/01-1000-users-1m-none.yaml | kubectl apply -f -
kubectl logs -l k6_cr=livestash-01-none,runner=true --tail=40
` + "```" + `

They connect to pods 0 and 1. After a rollout a fleet's pods may be 1 and 2, as ` + "`kubectl get pods`" + ` shows: then change BASE_URLS.

A TestRun that has ` + "`finished`" + ` has not passed for that: look at the exit code of each runner (99: a threshold failed). With several
runners each speaks of its own users only. A LiveStashBenchmark does all that by itself, merges the runners, and runs the rivals too:
[how to](../../docs/how-to/benchmark.md).

Written by hack/generate. Delete a TestRun before it is applied again. Apply one of rooms (from 38 on) at a time: two at once on one fleet hear each
other's rooms, and fail.
`
)

func main() {
	images := images{}
	flag.StringVar(&images.runner, "image", "", "Image with k6 and the scenarios.")
	flag.StringVar(&images.starter, "starter-image", "", "Image with sh and curl, with which k6-operator starts the runners.")
	samples := flag.String("samples", "", "Folder with the LiveStashBenchmarks of the other published tests.")
	out := flag.String("out", "", "Folder to write to.")
	flag.Parse()
	if err := write(*out, *samples, images); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type images struct{ runner, starter string }

func write(folder, samples string, images images) error {
	files, err := render(samples, images)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // manifests are for everybody to read
		return fmt.Errorf("making the folder of the TestRuns: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil { //nolint:gosec // the same
			return fmt.Errorf("writing a TestRun: %w", err)
		}
	}
	return nil
}

// render is the files' text by their names.
func render(samples string, images images) (map[string][]byte, error) {
	files := map[string][]byte{"README.md": []byte(readme)}
	matrix := &v1alpha1.LiveStashBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "livestash"},
		Spec:       v1alpha1.LiveStashBenchmarkSpec{Preset: v1alpha1.PresetLiveStash2026, Scenario: v1alpha1.ScenarioVisits},
	}
	runs := loadtest.Plan(matrix)
	for i, run := range runs {
		ttl := strings.TrimSuffix(run.TTL.String(), "0s")
		adapter := run.Name[strings.LastIndex(run.Name, "-")+1:]
		name := fmt.Sprintf("%02d-%d-users-%s-%s.yaml", i+1, run.Users, ttl, adapter)
		head := fmt.Sprintf("%d users for %s, adapter %s, TTL %s", run.Users, run.Duration, run.Adapter, ttl)
		if err := add(files, name, head, run, images); err != nil {
			return nil, err
		}
	}
	others, err := otherTests(samples)
	if err != nil {
		return nil, err
	}
	for i, run := range others {
		name := fmt.Sprintf("%02d-%s.yaml", len(runs)+i+1, run.Name)
		head := fmt.Sprintf("%s for %s, %s", run.Load(), run.Duration, loadtest.ScenarioOf(run.Scenario).Asked(run))
		if err := add(files, name, head, run, images); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func add(files map[string][]byte, name, head string, run loadtest.Run, images images) error {
	text, err := yaml.Marshal(testRun(run, images))
	if err != nil {
		return fmt.Errorf("writing TestRun %s: %w", run.Name, err)
	}
	files[name] = append(fmt.Appendf(nil, "# %s, against the LiveStashCluster %s: README.md says how to use it.\n", head, fleet), text...)
	return nil
}

// otherTests are the loads of the other published tests, once each, as their samples have them for the fleet. Of one that seeks a knee it is the
// first step, and the chat's is there for both sizes of a message.
func otherTests(samples string) ([]loadtest.Run, error) {
	var found []loadtest.Run
	for _, name := range []string{"json-api", "fullsweep", "chat-100k", "channels-vs-cable"} {
		text, err := os.ReadFile(filepath.Join(samples, "livestashbenchmark_"+name+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("reading a published test: %w", err)
		}
		benchmark := &v1alpha1.LiveStashBenchmark{}
		if err := yaml.UnmarshalStrict(text, benchmark); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		found = append(found, loads(benchmark, "")...)
		if name == "chat-100k" {
			benchmark.Spec.Rooms.Bytes = 10 * 1024
			found = append(found, loads(benchmark, "-10kb")...)
		}
	}
	return found, nil
}

func loads(benchmark *v1alpha1.LiveStashBenchmark, suffix string) []loadtest.Run {
	var found []loadtest.Run
	for _, run := range loadtest.Plan(benchmark) {
		if run.Warmup || run.Round > 1 || run.Step > 0 || run.Server != nil || run.Patch != nil {
			continue
		}
		run.Name = fmt.Sprintf("%s-%d%s", benchmark.Name, run.Users, suffix)
		found = append(found, run)
	}
	return found
}

// testRun is what the operator itself would ask k6-operator for, without what ties it to a LiveStashBenchmark.
func testRun(run loadtest.Run, images images) client.Object {
	var bases []string
	for pod := range 2 {
		bases = append(bases, fmt.Sprintf("http://%s-%d.%s-nodes:4000", fleet, pod, fleet))
	}
	limits := v1alpha1.BenchmarkThresholds{MinRecovered: "0.99", MaxWrong: ptr.To[int64](0), MaxFailed: "0.01"}
	object := (&runner.TestRun{}).Object(runner.Test{
		Name:         run.Name,
		Image:        images.runner,
		StarterImage: images.starter,
		Runners:      run.Runners,
		Script:       runner.Script{File: loadtest.ScenarioOf(run.Scenario).Script()},
		Env:          run.Options(run.Name, bases, limits),
	})
	object.SetOwnerReferences(nil)
	return object
}
