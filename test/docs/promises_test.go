package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName is a Go test, or a module of the agent's tests.
var testName = regexp.MustCompile(`\b(?:Test[A-Z]\w*|livestash_agent_\w+_tests)\b`)

// Each promise names the tests that fail when it is broken, and they are there: `make test-security` runs those that the page names.
func TestEveryPromiseHasItsTest(t *testing.T) {
	there := map[string]bool{}
	defined := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (path == filepath.Join(root, "bin") || path != root && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case strings.HasSuffix(name, "_tests.erl"):
			there[strings.TrimSuffix(name, ".erl")] = true
		case strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, found := range defined.FindAllStringSubmatch(string(text), -1) {
				there[found[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	security := page(t, "docs", "security.md")
	for _, name := range testName.FindAllString(security, -1) {
		if !there[name] {
			t.Errorf("docs/security.md names %s, and there is no such test", name)
		}
	}
	rows := 0
	for line := range strings.Lines(between(t, security, "## What is promised", "\n## ")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 3 || strings.Contains(line, "---") || strings.Contains(line, "what one could try") {
			continue
		}
		rows++
		if !testName.MatchString(cells[len(cells)-1]) {
			t.Errorf("no test shows: %s", cells[0])
		}
	}
	if rows < 25 {
		t.Errorf("looked at %d promises only", rows)
	}
}
