// Package docs checks that what the pages say is so, where a test can tell.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// page is a file of the repository.
func page(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between is the text after the first line with begin and before the next one with end.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, begin)
	_, rest, line := strings.Cut(rest, "\n")
	inside, _, ended := strings.Cut(rest, end)
	if !found || !line || !ended {
		t.Fatalf("there is no text between %q and %q", begin, end)
	}
	return inside
}

// What an application is told to do about the contract are lines that the Phoenix workload is compiled from.
func TestTheContractsLinesAreThoseOfTheWorkload(t *testing.T) {
	shown := page(t, "docs", "reference", "environment.md")
	for _, source := range [][]string{{"config", "runtime.exs"}, {"lib", "stash_workload_web", "stash.ex"}} {
		text := page(t, append([]string{"loadtests", "workloads", "phoenix"}, source...)...)
		lines := between(t, text, "# contract:", "# end of the contract")
		lines = strings.TrimSpace(strings.ReplaceAll(lines, ":stash_workload", ":my_app"))
		if !strings.Contains(shown, lines) {
			t.Errorf("docs/reference/environment.md does not show these lines of %s:\n%s", filepath.Join(source...), lines)
		}
	}
}

// The page for those who prepare their application shows lines that the Phoenix workload is made of, too.
func TestTheStepsLinesAreThoseOfTheWorkload(t *testing.T) {
	shown := page(t, "docs", "how-to", "prepare-your-app.md")
	source := func(path ...string) string {
		text := page(t, append([]string{"loadtests", "workloads", "phoenix"}, path...)...)
		return strings.NewReplacer("StashWorkload", "MyApp", ":stash_workload", ":my_app").Replace(text)
	}
	hook := strings.TrimSpace(between(t, source("lib", "stash_workload_web", "stash.ex"), "# contract:", "# end of the contract"))
	for path, lines := range map[string]string{
		"stash.ex":             hook,
		"health_controller.ex": strings.TrimSpace(source("lib", "stash_workload_web", "controllers", "health_controller.ex")),
		"router.ex":            `get "/healthz", HealthController, :show`,
	} {
		if !strings.Contains(shown, lines) {
			t.Errorf("docs/how-to/prepare-your-app.md does not show these lines of the workload's %s:\n%s", path, lines)
		}
	}
	for _, called := range []string{"LiveStash.recover_state(socket)", "LiveStash.stash()"} {
		if !strings.Contains(shown, called) {
			t.Errorf("docs/how-to/prepare-your-app.md does not call %s", called)
		}
	}
}

// tableEvents are the events of `make survival` as the tables for readers name them.
var tableEvents = map[string]string{
	"rollout-image":    "a new image",
	"rollout-config":   "a new configuration",
	"pod-delete":       "a pod deleted",
	"eviction":         "a pod evicted",
	"operator-restart": "the operator restarts in mid-rollout",
	"operator-upgrade": "a new version of the operator",
	"scale-down":       "3 to 2 pods",
	"scale-up":         "2 to 4 pods",
	"kill":             "a BEAM killed (SIGKILL)",
	"split":            "a pod cut off for 30 s (network split)",
}

// The tables for readers leave out no event that was measured, and say what was measured.
func TestTheTablesOfLossesAreTheMeasuredOnes(t *testing.T) {
	measured := map[string]string{}
	rows := regexp.MustCompile(`(?m)^\| (\w+) \| ([-a-z]+) \| ([^|]+) \| [^|]+ \| ([^|]+) \| [^|]+ \|$`)
	lost := func(cell string) string { return cell[strings.LastIndex(cell, " ")+1:] }
	section := between(t, page(t, "docs", "reference", "survival.md"), "## The real Phoenix", "\n## ")
	for _, row := range rows.FindAllStringSubmatch(section, -1)[1:] { // without the table's head
		measured[row[1]+" "+row[2]], measured[row[1]+" without "+row[2]] = lost(row[3]), lost(row[4])
	}
	columns := []string{"ETS", "ETS without", "Mnesia", "Mnesia without", "BrowserMemory", "Redis", "Redis without"}
	want := map[string][]string{}
	for event, named := range tableEvents {
		for _, column := range columns {
			want[named] = append(want[named], measured[column+" "+event])
		}
	}
	for _, path := range [][]string{{"README.md"}, {"docs", "concepts.md"}} {
		got := map[string][]string{}
		table := between(t, page(t, path...), "| 500 sessions, lost |", "\n\n")
		for line := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
			if len(cells) == 1+len(columns) {
				got[cells[0]] = cells[1:]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-measured +table):\n%s", filepath.Join(path...), diff)
		}
	}
	for key := range measured {
		if event := key[strings.LastIndex(key, " ")+1:]; tableEvents[event] == "" {
			t.Errorf("%s was measured and is in no table", event)
		}
	}
}

// Whoever removes everything is told of every kind of ours.
func TestEveryDefinitionIsRemoved(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no definitions: ", err)
	}
	for _, path := range []string{"templates/_notes.tpl", "README.md"} {
		text := page(t, "charts", "livestash-operator", filepath.FromSlash(path))
		told := strings.Fields(strings.Trim(regexp.MustCompile("kubectl delete crd [^`\n]+").FindString(text), "."))
		for _, file := range files {
			group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
			if !slices.Contains(told, plural+"."+group) {
				t.Errorf("charts/livestash-operator/%s does not remove %s.%s: %q", path, plural, group, told)
			}
		}
	}
}

// What becomes of stashes when the managed Redis is full is told alike wherever it is told, and is how Redis is set.
func TestAFullRedisIsToldAlike(t *testing.T) {
	if !strings.Contains(page(t, "operator", "internal", "render", "redis", "redis.go"), "\nmaxmemory-policy volatile-ttl\n") {
		t.Error("the managed Redis drops other stashes than the pages say")
	}
	for path, told := range map[string]string{
		"docs/how-to/redis.md":                                 "those that would expire first are dropped",
		"docs/concepts.md":                                     "drops the stashes that would expire first",
		"docs/runbooks/LiveStashRedisMemoryNearLimit.md":       "drops the stashes that would expire first",
		"charts/livestash-observability/rules/livestash.yaml":  "drops those that would expire first",
		"charts/livestash-observability/dashboards/fleet.json": "drops the stashes that would expire first",
	} {
		if text := strings.Join(strings.Fields(text(t, path)), " "); !strings.Contains(text, told) {
			t.Errorf("%s does not say %q", path, told)
		}
	}
}
