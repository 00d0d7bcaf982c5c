package v1alpha1_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	template = `target: {template: {spec: {image: a}}}`
	byURL    = `target: {url: "http://shop:4000"}`
	small    = `matrix: {runs: [{users: 100, ttl: 1m}]}`
	smallETS = `matrix: {adapters: [ETS], runs: [{users: 100, ttl: 1m}]}`
)

func TestBadBenchmarksAreRefused(t *testing.T) {
	cases := []struct {
		name string
		// object is the metadata.name, or "shop" when empty.
		object string
		spec   string
		// says are the parts that the refusal must have: what is wrong, and what to do.
		says []string
	}{
		{
			name: "no target",
			spec: `{` + small + `}`,
			says: []string{"spec.target: Required value"},
		},
		{
			name: "an empty target",
			spec: `{target: {}, ` + small + `}`,
			says: []string{"spec.target", "set exactly one of target.template", "target.clusterRef", "target.url"},
		},
		{
			name: "two targets",
			spec: `{target: {clusterRef: {name: a}, url: "http://a"}, ` + smallETS + `}`,
			says: []string{"spec.target", "set exactly one of"},
		},
		{
			name: "three targets",
			spec: `{target: {clusterRef: {name: a}, url: "http://a", template: {spec: {image: a}}}, ` + smallETS + `}`,
			says: []string{"spec.target", "set exactly one of"},
		},
		{
			name: "a URL with a path",
			spec: `{target: {url: "http://a/stash"}, ` + smallETS + `}`,
			says: []string{"spec.target.url", "no path, for example http://shop.example.com:4000"},
		},
		{
			name: "a URL without a scheme",
			spec: `{target: {url: "shop:4000"}, ` + smallETS + `}`,
			says: []string{"spec.target.url", "must be http:// or https://"},
		},
		{
			name: "a template without an image",
			spec: `{target: {template: {spec: {replicas: 2}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec.image: Required value"},
		},
		{
			name: "a template with an adapter",
			spec: `{target: {template: {spec: {image: a, adapter: ETS}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec", "must not set adapter or ttl: they come from the matrix"},
		},
		{
			name: "a template with a ttl",
			spec: `{target: {template: {spec: {image: a, ttl: 5m}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec", "must not set adapter or ttl"},
		},
		{
			name: "a template without pods",
			spec: `{target: {template: {spec: {image: a, replicas: 0}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec.replicas", "without a pod there is nothing to measure"},
		},
		{
			name: "a template that is paused",
			spec: `{target: {template: {spec: {image: a, paused: true}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec", "must not set paused"},
		},
		{
			name: "a template with a payload of its own",
			spec: `{target: {template: {spec: {image: a, env: [{name: STASH_PAYLOAD_KEYS, value: "3"}]}}}, ` + small + `}`,
			says: []string{"spec.target.template.spec", "set spec.payload.keys"},
		},
		{
			name: "neither preset nor matrix",
			spec: `{` + template + `}`,
			says: []string{"set exactly one of preset", "and matrix"},
		},
		{
			name: "preset and matrix",
			spec: `{` + template + `, preset: livestash-2026, ` + small + `}`,
			says: []string{"set exactly one of preset"},
		},
		{
			name: "an unknown preset",
			spec: `{` + template + `, preset: livestash-2025}`,
			says: []string{"spec.preset", `"livestash-2026"`},
		},
		{
			name: "a preset against a URL",
			spec: `{` + byURL + `, preset: livestash-2026}`,
			says: []string{"spec.preset", "needs a fresh fleet for each run: set target.template"},
		},
		{
			name: "several adapters against a URL",
			spec: `{` + byURL + `, matrix: {adapters: [ETS, Redis], runs: [{users: 1, ttl: 1m}]}}`,
			says: []string{"spec.matrix", "must name the one adapter that the target has"},
		},
		{
			name: "all adapters against an existing fleet",
			spec: `{target: {clusterRef: {name: a}}, ` + small + `}`,
			says: []string{"spec.matrix", "must name the one adapter that the target has"},
		},
		{
			name: "an empty matrix",
			spec: `{` + template + `, matrix: {}}`,
			says: []string{"spec.matrix.runs: Required value"},
		},
		{
			name: "a matrix of no runs",
			spec: `{` + template + `, matrix: {runs: []}}`,
			says: []string{"spec.matrix.runs", "runs is empty: name at least one size, for example {users: 1000, ttl: 1m}"},
		},
		{
			name: "a matrix of no adapters",
			spec: `{` + template + `, matrix: {adapters: [], runs: [{users: 1, ttl: 1m}]}}`,
			says: []string{"spec.matrix.adapters", "must name at least one adapter"},
		},
		{
			name: "an unknown adapter",
			spec: `{` + template + `, matrix: {adapters: [Postgres], runs: [{users: 1, ttl: 1m}]}}`,
			says: []string{"spec.matrix.adapters[0]", `"ETS", "BrowserMemory", "Redis", "Mnesia", "None"`},
		},
		{
			name: "an adapter twice",
			spec: `{` + template + `, matrix: {adapters: [ETS, Redis, ETS], runs: [{users: 1, ttl: 1m}]}}`,
			says: []string{"spec.matrix.adapters", "names an adapter twice: remove one"},
		},
		{
			name: "a run twice, in other words",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m}, {users: 1, ttl: 60s}]}}`,
			says: []string{"spec.matrix.runs", "the same users and ttl twice: remove one"},
		},
		{
			name: "no users",
			spec: `{` + template + `, matrix: {runs: [{users: 0, ttl: 1m}]}}`,
			says: []string{"spec.matrix.runs[0].users", "users must be from 1 to 1000000: a run without users measures nothing"},
		},
		{
			name: "users forgotten",
			spec: `{` + template + `, matrix: {runs: [{ttl: 1m}]}}`,
			says: []string{"spec.matrix.runs[0].users: Required value"},
		},
		{
			name: "ttl forgotten",
			spec: `{` + template + `, matrix: {runs: [{users: 1}]}}`,
			says: []string{"spec.matrix.runs[0].ttl: Required value"},
		},
		{
			name: "a ttl without a unit",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: "60"}]}}`,
			says: []string{"spec.matrix.runs[0].ttl", "with a unit, for example 1m"},
		},
		{
			name: "a ttl of a moment",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: 5s}]}}`,
			says: []string{"spec.matrix.runs[0].ttl", "from 10s to 24h"},
		},
		{
			name: "a ttl too short for the ramp",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m, ramp: 4m}]}}`,
			says: []string{"spec.matrix.runs[0]", "ttl 1m is too short for this ramp", "after the ramp (4m) the run must last one ttl at least", "3 x ttl", "make ramp shorter, or ttl or duration longer"},
		},
		{
			name: "a duration too short for ramp and ttl",
			spec: `{` + template + `, scenario: Reconnect, matrix: {runs: [{users: 1, ttl: 1m, ramp: 30s, duration: 80s}]}}`,
			says: []string{"spec.matrix.runs[0]", "its duration is 80s"},
		},
		{
			name: "a duration too short for visits",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m, ramp: 5s, duration: 80s}]}}`,
			says: []string{"spec.matrix", "at least its ttl + 25s", "no visitor comes back after the TTL"},
		},
		{
			name: "more runners than users",
			spec: `{` + template + `, parallelism: 4, matrix: {runs: [{users: 100, ttl: 1m}, {users: 3, ttl: 1m}]}}`,
			says: []string{"spec.parallelism", "parallelism is more than the users of a run", "set parallelism to the smallest number of users or less"},
		},
		{
			name: "more users than file descriptors",
			spec: `{` + template + `, parallelism: 1, matrix: {runs: [{users: 100, ttl: 1m}, {users: 60000, ttl: 1m}]}}`,
			says: []string{"spec.parallelism", "parallelism 1 is too small", "60000 users need 4 runners"},
		},
		{
			name: "the preset on one runner",
			spec: `{` + template + `, parallelism: 1, preset: livestash-2026}`,
			says: []string{"spec.parallelism", "25000 users need 2 runners; set parallelism to that, or remove it"},
		},
		{
			name: "no runner",
			spec: `{` + template + `, parallelism: 0, ` + small + `}`,
			says: []string{"spec.parallelism", "parallelism must be from 1 to 100"},
		},
		{
			name: "an unknown scenario",
			spec: `{` + template + `, scenario: Chaos, ` + small + `}`,
			says: []string{"spec.scenario", `"Visits", "Reconnect", "Script"`},
		},
		{
			name: "a script beside a scenario",
			spec: `{` + template + `, scenario: Visits, script: {configMapRef: {name: a, key: b}}, ` + small + `}`,
			says: []string{"spec.script", "script and scenario Script go together"},
		},
		{
			name: "the scenario Script without one",
			spec: `{` + template + `, scenario: Script, ` + small + `}`,
			says: []string{"spec.script", "set both for a script of your own, or neither"},
		},
		{
			name: "a payload without a template",
			spec: `{` + byURL + `, payload: {keys: 10}, ` + smallETS + `}`,
			says: []string{"spec.payload", "needs target.template: remove payload"},
		},
		{
			name: "a scale without a template",
			spec: `{` + byURL + `, scale: 2, ` + smallETS + `}`,
			says: []string{"spec.scale", "remove scale"},
		},
		{
			name: "a share above 1",
			spec: `{` + template + `, thresholds: {minRecovered: "99"}, ` + small + `}`,
			says: []string{"spec.thresholds.minRecovered", `from "0" to "1", for example "0.99"`},
		},
		{
			name: "a share that is a percentage",
			spec: `{` + template + `, thresholds: {maxFailed: "1%"}, ` + small + `}`,
			says: []string{"spec.thresholds.maxFailed", `for example "0.01"`},
		},
		{
			name: "a limit without a unit",
			spec: `{` + template + `, thresholds: {p99: {reconnect: "250"}}, ` + small + `}`,
			says: []string{"spec.thresholds.p99", "with a unit, for example 250ms"},
		},
		{
			name: "a limit for what is never measured",
			spec: `{` + template + `, scenario: Reconnect, thresholds: {p99: {lateRejoin: 1s}}, ` + small + `}`,
			says: []string{"spec.thresholds", "never measured with scenario Reconnect"},
		},
		{
			name: "a deadline of a second",
			spec: `{` + template + `, runDeadline: 1s, ` + small + `}`,
			says: []string{"spec.runDeadline", "at least 1m with a unit"},
		},
		{
			name: "a ramp of ages",
			spec: `{` + template + `, matrix: {runs: [{users: 40, ttl: 10s, duration: 72h, ramp: 73h}]}}`,
			says: []string{"ramp", "at most 72h"},
		},
		{
			name: "a deadline that the run cannot keep",
			spec: `{` + template + `, runDeadline: 3m29s, matrix: {runs: [{users: 1, ttl: 10s}, {users: 2, ttl: 1m}]}}`,
			says: []string{"spec.runDeadline", "at least 30s longer than the longest run"},
		},
		{
			name: "a deadline that ends the duration",
			spec: `{` + template + `, runDeadline: 30m, matrix: {runs: [{users: 1, ttl: 1m, duration: 2h}]}}`,
			says: []string{"spec.runDeadline", "at least 30s longer than the longest run"},
		},
		{
			name: "a deadline of a year",
			spec: `{` + template + `, runDeadline: 8760h, ` + small + `}`,
			says: []string{"spec.runDeadline", "at most 168h"},
		},
		{
			name: "runs of a year",
			spec: `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m, duration: 9999h}]}}`,
			says: []string{"spec.matrix.runs[0].duration", "at most 72h"},
		},
		{
			name: "remote write to nowhere",
			spec: `{` + template + `, prometheusRemoteWrite: {url: "prometheus:9090"}, ` + small + `}`,
			says: []string{"spec.prometheusRemoteWrite.url", "must start with http:// or https://"},
		},
		{
			name:   "a name too long for what is made of it",
			object: strings.Repeat("a", 31),
			spec:   `{` + template + `, ` + small + `}`,
			says:   []string{"metadata.name must be at most 30 characters"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, refusal := createBenchmark(t, c.object, c.spec, metav1.DryRunAll)
			if refusal == nil {
				t.Fatal("it was accepted")
			}
			for _, part := range c.says {
				if !strings.Contains(refusal.Error(), part) {
					t.Errorf("the refusal does not say %q:\n%v", part, refusal)
				}
			}
		})
	}
}

func TestGoodBenchmarksAreAccepted(t *testing.T) {
	cases := map[string]string{
		"the smallest":             `{` + template + `, ` + small + `}`,
		"the preset":               `{` + template + `, preset: livestash-2026}`,
		"the preset on a laptop":   `{` + template + `, preset: livestash-2026, scale: 100, parallelism: 1}`,
		"the preset on two":        `{` + template + `, preset: livestash-2026, parallelism: 2}`,
		"a URL":                    `{` + byURL + `, ` + smallETS + `}`,
		"an existing fleet":        `{target: {clusterRef: {name: shop}}, ` + smallETS + `}`,
		"a script":                 `{` + template + `, scenario: Script, script: {configMapRef: {name: a, key: b.js}}, ` + small + `}`,
		"all at once":              `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m, ramp: 0s}]}}`,
		"the shortest ttl":         `{` + template + `, matrix: {runs: [{users: 1, ttl: 10s}]}}`,
		"as long a ramp as allows": `{` + template + `, matrix: {runs: [{users: 1, ttl: 1m, ramp: 2m}]}}`,
		"as many as descriptors":   `{` + template + `, parallelism: 2, matrix: {runs: [{users: 39000, ttl: 1m}]}}`,
		"as many, once scaled":     `{` + template + `, parallelism: 1, scale: 2, matrix: {runs: [{users: 39000, ttl: 1m}]}}`,
		"as many runners as users": `{` + template + `, parallelism: 3, matrix: {runs: [{users: 3, ttl: 1m}]}}`,
		"all settings": `{target: {template: {spec: {image: a, replicas: 3, env: [{name: A, value: b}], redis: {managed: {memory: 1Gi}}}}}, scenario: Visits,
			matrix: {adapters: [None, Redis], runs: [{users: 100, ttl: 1m, ramp: 10s, duration: 2m}, {users: 100, ttl: 2m}]}, payload: {keys: 10}, routing: Service,
			thresholds: {minRecovered: "1.0", maxWrong: 2, maxFailed: "0", p99: {firstRender: 2s, join: 1s, stash: 100ms, reconnect: 1s, rejoin: 1s, lateRejoin: 1s}},
			runner: Job, runnerTemplate: {image: k6, imagePullPolicy: Always, resources: {requests: {cpu: "1"}}, nodeSelector: {a: b}, tolerations: [{operator: Exists}]},
			prometheusRemoteWrite: {url: "http://p:9090/api/v1/write"}, cooldown: 0s, runDeadline: 30m, suspend: true, ttlSecondsAfterFinished: 60}`,
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			if _, refusal := createBenchmark(t, strings.Repeat("a", 30), spec, metav1.DryRunAll); refusal != nil {
				t.Errorf("it was refused:\n%v", refusal)
			}
		})
	}
}

func TestBenchmarkDefaults(t *testing.T) {
	created, err := createBenchmark(t, "", `{`+template+`, `+small+`}`, metav1.DryRunAll)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"target": map[string]any{"template": map[string]any{"spec": map[string]any{"image": "a", "replicas": int64(2)}}},
		"matrix": map[string]any{"runs": []any{map[string]any{"users": int64(100), "ttl": "1m"}}},
		"scale":  int64(1), "scenario": "Visits", "routing": "RoundRobin", "runner": "Auto", "runnerTemplate": map[string]any{}, "cooldown": "10s",
		"thresholds": map[string]any{"minRecovered": "0.99", "maxWrong": int64(0), "maxFailed": "0.01"},
	}
	if diff := cmp.Diff(want, created.Object["spec"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The fields of a fleet that have no type here reach the fleet all the same.
func TestTemplateIsKeptWhole(t *testing.T) {
	spec := `{target: {template: {spec: {image: a, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], beam: {fullsweepAfter: 20}}}}, ` + small + `}`
	created, err := createBenchmark(t, "", spec, metav1.DryRunAll)
	if err != nil {
		t.Fatal(err)
	}
	text, err := created.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	typed := &v1alpha1.LiveStashBenchmark{}
	if err := json.Unmarshal(text, typed); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(typed.DeepCopy().Spec.Target.Template.Spec.Raw(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"image": "a", "replicas": 2.0, "beam": map[string]any{"fullsweepAfter": 20.0},
		"env": []any{map[string]any{"name": "A", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is measured is fixed once it is being measured.
func TestBenchmarkChanges(t *testing.T) {
	const first = `{` + template + `, ` + small + `}`
	cases := map[string]struct {
		started bool
		after   string
		says    string
	}{
		"another matrix before the start": {false, `{` + template + `, preset: livestash-2026}`, ""},
		"suspend":                         {true, `{` + template + `, ` + small + `, suspend: true}`, ""},
		"removal when finished":           {true, `{` + template + `, ` + small + `, ttlSecondsAfterFinished: 60}`, ""},
		"another matrix":                  {true, `{` + template + `, matrix: {runs: [{users: 101, ttl: 1m}]}}`, "make a new LiveStashBenchmark"},
		"the preset":                      {true, `{` + template + `, preset: livestash-2026}`, "make a new LiveStashBenchmark"},
		"another image":                   {true, `{target: {template: {spec: {image: b}}}, ` + small + `}`, "what is measured"},
		"a field of the fleet that has no type here": {
			true, `{target: {template: {spec: {image: a, beam: {fullsweepAfter: 20}}}}, ` + small + `}`, "what is measured",
		},
		"another scenario":        {true, `{` + template + `, ` + small + `, scenario: Reconnect}`, "what is measured"},
		"another scale":           {true, `{` + template + `, ` + small + `, scale: 3}`, "what is measured"},
		"another payload":         {true, `{` + template + `, ` + small + `, payload: {keys: 3}}`, "what is measured"},
		"another threshold":       {true, `{` + template + `, ` + small + `, thresholds: {maxWrong: 3}}`, "only suspend and ttlSecondsAfterFinished can change"},
		"another routing":         {true, `{` + template + `, ` + small + `, routing: Service}`, "only suspend"},
		"more runners":            {true, `{` + template + `, ` + small + `, parallelism: 2}`, "only suspend"},
		"another way of running":  {true, `{` + template + `, ` + small + `, runner: Job}`, "only suspend"},
		"another image of k6":     {true, `{` + template + `, ` + small + `, runnerTemplate: {image: k6}}`, "only suspend"},
		"another pause":           {true, `{` + template + `, ` + small + `, cooldown: 1m}`, "only suspend"},
		"another deadline":        {true, `{` + template + `, ` + small + `, runDeadline: 1h}`, "only suspend"},
		"a Prometheus":            {true, `{` + template + `, ` + small + `, prometheusRemoteWrite: {url: "http://p"}}`, "only suspend"},
		"another fleet of theirs": {true, `{target: {clusterRef: {name: a}}, ` + smallETS + `}`, "what is measured"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object, err := createBenchmark(t, "change", first, "")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = benchmarks.Delete(context.Background(), "change", metav1.DeleteOptions{}) }()
			if c.started {
				object.Object["status"] = map[string]any{"startedAt": "2026-07-01T12:00:00Z"}
				if object, err = benchmarks.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			changed := objectOf(t, "LiveStashBenchmark", "change", c.after)
			changed.SetResourceVersion(object.GetResourceVersion())
			_, err = benchmarks.Update(t.Context(), changed, metav1.UpdateOptions{})
			switch {
			case c.says == "" && err != nil:
				t.Errorf("it was refused: %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("Update = %v, want a refusal that says %q", err, c.says)
			}
		})
	}
}

func createBenchmark(t *testing.T, name, spec, dryRun string) (*unstructured.Unstructured, error) {
	t.Helper()
	options := metav1.CreateOptions{}
	if dryRun != "" {
		options.DryRun = []string{dryRun}
	}
	return benchmarks.Create(t.Context(), objectOf(t, "LiveStashBenchmark", name, spec), options)
}
