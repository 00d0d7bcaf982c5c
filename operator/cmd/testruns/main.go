// Command testruns writes manifests/testruns: the published matrix as plain TestRuns, for those who use k6-operator without
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

	scenario = "/loadtests/k6/scenarios/visits.js"

	readme = `# The published matrix as TestRuns

One TestRun of [k6-operator](https://github.com/grafana/k6-operator) for each of the 35 cells of LiveStash's published test. Their
fleet is the LiveStashCluster ` + "`" + fleet + "`" + ` in the same namespace, with two pods: put the name of yours in its place. Its adapter and TTL must
be those of the file.

` + "```" + `
sed 's/` + fleet + `/shop/g' manifests/testruns/01-1000-users-1m-none.yaml | kubectl apply -f -
kubectl logs -l k6_cr=livestash-01-none,runner=true --tail=40
` + "```" + `

A TestRun that has ` + "`finished`" + ` has not passed for that: look at the exit code of each runner (99: a threshold failed). With several
runners each speaks of its own users only. A LiveStashBenchmark does all that by itself, and merges the runners:
[how to](../../docs/how-to/benchmark.md).

Written by hack/generate. Delete a TestRun before it is applied again.
`
)

func main() {
	images := images{}
	flag.StringVar(&images.runner, "image", "", "Image with k6 and the scenarios.")
	flag.StringVar(&images.starter, "starter-image", "", "Image with sh and curl, with which k6-operator starts the runners.")
	out := flag.String("out", "", "Folder to write to.")
	flag.Parse()
	if err := write(*out, images); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type images struct{ runner, starter string }

func write(folder string, images images) error {
	files, err := render(images)
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
func render(images images) (map[string][]byte, error) {
	files := map[string][]byte{"README.md": []byte(readme)}
	matrix := &v1alpha1.LiveStashBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "livestash"},
		Spec:       v1alpha1.LiveStashBenchmarkSpec{Preset: v1alpha1.PresetLiveStash2026, Scenario: v1alpha1.ScenarioVisits},
	}
	for i, run := range loadtest.Plan(matrix) {
		text, err := yaml.Marshal(testRun(run, images))
		if err != nil {
			return nil, fmt.Errorf("writing TestRun %s: %w", run.Name, err)
		}
		ttl := strings.TrimSuffix(run.TTL.String(), "0s")
		adapter := run.Name[strings.LastIndex(run.Name, "-")+1:]
		head := fmt.Sprintf("# %d users for %s, adapter %s, TTL %s, against the LiveStashCluster %s: README.md says how to use it.\n",
			run.Users, run.Duration, run.Adapter, ttl, fleet)
		files[fmt.Sprintf("%02d-%d-users-%s-%s.yaml", i+1, run.Users, ttl, adapter)] = append([]byte(head), text...)
	}
	return files, nil
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
		Script:       runner.Script{File: scenario},
		Env:          run.Options(run.Name, bases, limits),
	})
	object.SetOwnerReferences(nil)
	return object
}
