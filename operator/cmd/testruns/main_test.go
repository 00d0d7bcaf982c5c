package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

var ours = images{"ghcr.io/livestash-dev/livestash-k6:0.1.0", "starter"}

const samples = "../../../config/samples"

func rendered(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := render(samples, ours)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]*unstructured.Unstructured{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		run := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &run.Object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runs[name] = run
	}
	return runs
}

// TestEveryCellIsThere: one TestRun for each, that names its load, and that belongs to nobody.
func TestEveryCellIsThere(t *testing.T) {
	runs := rendered(t)
	if len(runs) != 35+len(others) {
		t.Errorf("%d TestRuns, want %d", len(runs), 35+len(others))
	}
	names := map[string]bool{}
	for file, run := range runs {
		if len(run.GetOwnerReferences()) > 0 || run.GetNamespace() != "" {
			t.Errorf("%s belongs to somebody: %v in %q", file, run.GetOwnerReferences(), run.GetNamespace())
		}
		if others[file] != nil {
			continue
		}
		names[run.GetName()] = true
		option := options(t, run)
		parallelism, _, err := unstructured.NestedFieldNoCopy(run.Object, "spec", "parallelism")
		if err != nil {
			t.Fatal(err)
		}
		users, _ := strconv.Atoi(option["USERS"])
		want := 1.0
		if users > 20000 {
			want = 2
		}
		if parallelism != want || option["RUNNERS"] != strconv.Itoa(int(want)) {
			t.Errorf("%s: %d users, parallelism %v, RUNNERS=%s; want %v", file, users, parallelism, option["RUNNERS"], want)
		}
		if !strings.Contains(file, "-"+option["USERS"]+"-users-") || !strings.HasSuffix(run.GetName(), file[strings.LastIndex(file, "-"):len(file)-len(".yaml")]) {
			t.Errorf("%s has %s users and is named %s", file, option["USERS"], run.GetName())
		}
	}
	if len(names) != 35 {
		t.Errorf("%d names, want 35", len(names))
	}
	largest := options(t, runs["35-25000-users-15m-mnesia.yaml"])
	for name, want := range map[string]string{
		"TTL": "900s", "DURATION": "2700s", "RAMP": "685s", "ADAPTER": "mnesia",
		"BASE_URLS": "http://my-fleet-0.my-fleet-nodes:4000,http://my-fleet-1.my-fleet-nodes:4000",
	} {
		if largest[name] != want {
			t.Errorf("%s=%s, want %s", name, largest[name], want)
		}
	}
}

// others are the files of the other published tests, with what tells their loads.
var others = map[string]map[string]string{
	"36-json-api-12.yaml":           {"CONNECTIONS": "12", "REQUEST_PATH": "/api/sum", "DURATION": "60s", "RUNNERS": "1", "MAX_FAILED": "0.01"},
	"37-json-api-100.yaml":          {"CONNECTIONS": "100", "RATE": "0"},
	"38-fullsweep-1000.yaml":        {"USERS": "1000", "ROOM_SIZE": "25", "SPEAKERS": "5", "EVERY": "1s-2s", "BYTES": "10240", "RUNNERS": "1"},
	"39-chat-100k-100000.yaml":      {"USERS": "100000", "BYTES": "1024", "RUNNERS": "6", "RAMP": "180s", "DURATION": "420s"},
	"40-chat-100k-100000-10kb.yaml": {"USERS": "100000", "BYTES": "10240", "RUNNERS": "6"},
	"41-channels-vs-cable-250.yaml": {"USERS": "250", "ROOM_SIZE": "50", "SPEAKERS": "50", "PROTOCOL": "phoenix", "RUNNERS": "1"},
}

// TestTheOtherTestsAreThere: one TestRun for each of their loads, with its own script, under a name that no other has.
func TestTheOtherTestsAreThere(t *testing.T) {
	runs := rendered(t)
	names := map[string]bool{}
	for file, want := range others {
		run := runs[file]
		if run == nil {
			t.Errorf("there is no %s", file)
			continue
		}
		names[run.GetName()] = true
		got := options(t, run)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s=%s, want %s", file, name, got[name], value)
			}
		}
		script, _, err := unstructured.NestedString(run.Object, "spec", "script", "localFile")
		if err != nil || strings.HasSuffix(script, "/requests.js") != (got["CONNECTIONS"] != "") || strings.HasSuffix(script, "/rooms.js") != (got["USERS"] != "") {
			t.Errorf("%s runs %q, %v", file, script, err)
		}
		if parallelism, _, err := unstructured.NestedFieldNoCopy(run.Object, "spec", "parallelism"); err != nil || fmt.Sprint(parallelism) != got["RUNNERS"] {
			t.Errorf("%s: parallelism %v, RUNNERS=%s, %v", file, parallelism, got["RUNNERS"], err)
		}
	}
	if len(names) != len(others) {
		t.Errorf("%d names, want %d", len(names), len(others))
	}
}

func options(t *testing.T, run *unstructured.Unstructured) map[string]string {
	t.Helper()
	list, found, err := unstructured.NestedSlice(run.Object, "spec", "runner", "env")
	if err != nil || !found {
		t.Fatalf("the runner has no options: %v", err)
	}
	read := map[string]string{}
	for _, entry := range list {
		option := entry.(map[string]any)
		read[option["name"].(string)] = option["value"].(string)
	}
	return read
}

// The schema is not the project's to keep: CRDS names a folder that has it.
func TestK6OperatorKnowsWhatItIsAskedFor(t *testing.T) {
	folder := os.Getenv("CRDS")
	if folder == "" {
		t.Skip("set CRDS to a folder with k6-operator's custom resource definitions to check against them")
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{folder}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal("this test needs an API server, see `make test-operator`: ", err)
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for file, run := range rendered(t) {
		run.SetNamespace("default")
		if err := api.Create(context.Background(), run, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
