package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compiled is what the TypeScript compiler says about dashboards, by their files' names, when they are held against Grafana's own types.
func compiled(t *testing.T, contents map[string]string) string {
	t.Helper()
	modules := os.Getenv("GRAFANA_SCHEMA")
	if modules == "" {
		t.Skip("without Grafana's types: `make test-grafana` fetches them and sets GRAFANA_SCHEMA")
	}
	modules, err := filepath.Abs(modules)
	if err != nil {
		t.Fatal(err)
	}
	types, err := os.ReadFile("grafana/dashboards.ts")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(folder, "node_modules")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"dashboards.ts": string(types)}
	for name, content := range contents {
		files[name+".ts"] = fmt.Sprintf("import {Whole} from './dashboards';\nexport const dashboard: Whole = %s;\n", strings.TrimSpace(content))
	}
	args := []string{filepath.Join(modules, "node_modules", "typescript", "bin", "tsc"), "--noEmit", "--strict", "--skipLibCheck",
		"--preserveSymlinks", "--moduleResolution", "bundler", "--module", "esnext", "--target", "es2022"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	command := exec.CommandContext(t.Context(), "node", args...)
	command.Dir = folder
	said, err := command.CombinedOutput()
	if err != nil && len(said) == 0 {
		t.Fatal(err)
	}
	return string(said)
}

// The dashboards are what Grafana publishes as the type of a dashboard, its panels and their options.
func TestGrafanasTypes(t *testing.T) {
	contents := map[string]string{}
	files, err := filepath.Glob("../../charts/livestash-observability/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		contents[strings.TrimSuffix(filepath.Base(file), ".json")] = string(content)
	}
	if said := compiled(t, contents); said != "" {
		t.Error(said)
	}

	// What is wrong is found.
	wrong := map[string]string{}
	for i, change := range [][3]string{
		{"fleet", `"drawStyle": "line"`, `"drawStyle": "lines"`}, {"fleet", `"graphMode": "none"`, `"graphMod": "none"`},
		{"fleets", `"showHeader": true`, `"showHeader": "yes"`}, {"fleet", `"mergeValues": true`, `"mergeValue": true`},
		{"fleets", `"type": "color-text"`, `"type": "colour-text"`}, {"fleet", `"mode": "fixed"`, `"mode": "fixd"`},
		{"fleets", `"id": "noValue"`, `"id": "noValues"`}, {"fleets", `"type": "stat"`, `"type": "state"`},
		{"beam", `"refresh": 2`, `"refresh": "always"`}, {"fleet", `"useValueForTime": true`, `"useValueAsTime": true`},
	} {
		text := strings.Replace(contents[change[0]], change[1], change[2], 1)
		if text == contents[change[0]] {
			t.Errorf("%s is not in %s: this test shows nothing", change[1], change[0])
		}
		wrong[fmt.Sprintf("wrong%d", i)] = text
	}
	said := compiled(t, wrong)
	for name := range wrong {
		if !regexp.MustCompile(`(?m)^` + name + `\.ts\(`).MatchString(said) {
			t.Errorf("what is wrong in %s is not found", name)
		}
	}
}
