// Package licenses tests that the programs that are published consist of modules whose licences allow that.
package licenses

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
	"golang.org/x/mod/module"
)

// allowed are the licences that a module may have: they ask for their text and a notice, and for nothing of who uses them.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense", "Zlib"}

// exceptions are modules with another one, and why they are there all the same. k6 is a program of its own, which the image of the load tests
// holds as it was published; nothing of it is linked with ours.
var exceptions = map[string]string{
	"go.k6.io/k6 AGPL-3.0":                                                 "k6 itself, unchanged: whoever passes the image on, passes on the source of that version",
	"github.com/grafana/k6provider AGPL-3.0":                               "a part of k6",
	"github.com/grafana/xk6-dashboard AGPL-3.0":                            "a part of k6",
	"github.com/grafana/xk6-dashboard-assets AGPL-3.0":                     "a part of k6",
	"github.com/r3labs/sse/v2 MPL-2.0":                                     "a part of k6, whose own files are unchanged",
	"github.com/grafana/k6-cloud-openapi-client-go " + unknown:             "a part of k6 that Grafana generates and publishes without the file",
	"buf.build/gen/go/prometheus/prometheus/protocolbuffers/go " + unknown: "a part of k6: generated from Prometheus, which is Apache-2.0",
}

// unknown is what a module has in whose root there is no licence that is known.
const unknown = "none that is known"

// licenseFile are the names that modules give the file.
var licenseFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)`)

func TestLicenses(t *testing.T) {
	cache := moduleCache(t)
	used := map[string]bool{}
	for program, least := range map[string]int{"manager": 50, "podagent": 0, "kubectl-livestash": 50, "k6": 50} {
		info, err := buildinfo.ReadFile(filepath.Join("..", "..", "bin", program))
		if err != nil {
			t.Fatalf("%v: `make operator kubectl-livestash k6` builds it", err)
		}
		if len(info.Deps) < least {
			t.Errorf("%s says that it has %d modules", program, len(info.Deps))
		}
		for _, m := range append(info.Deps, &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			if strings.HasPrefix(m.Path, "github.com/livestash-dev/livestash") {
				continue
			}
			for _, license := range licensesOf(t, cache, m) {
				if slices.Contains(allowed, license) {
					continue
				}
				used[m.Path+" "+license] = true
				if exceptions[m.Path+" "+license] == "" {
					t.Errorf("%s: %s %s has the licence %q", program, m.Path, m.Version, license)
				}
			}
		}
	}
	for exception := range exceptions {
		if !used[exception] {
			t.Errorf("%s is an exception that no program needs", exception)
		}
	}
}

// licensesOf are the licences in the root of a module, or that it has none.
func licensesOf(t *testing.T, cache string, m *debug.Module) []string {
	t.Helper()
	path, err := module.EscapePath(m.Path)
	if err != nil {
		t.Fatal(err)
	}
	version, err := module.EscapeVersion(m.Version)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, path+"@"+version)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatalf("%v: `go mod download` brings it", err)
	}
	var found []string
	for _, entry := range entries {
		if entry.IsDir() || !licenseFile.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range licensecheck.Scan(text).Match {
			found = append(found, match.ID)
		}
	}
	if len(found) == 0 {
		return []string{unknown}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func moduleCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
