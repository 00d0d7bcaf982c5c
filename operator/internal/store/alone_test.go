package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Who tells adapters apart is who the package says does. A new adapter is a file here, and no search through the operator.
func TestWhoTellsAdaptersApart(t *testing.T) {
	others := []string{"api/", "internal/loadtest/", "internal/cli/", "internal/store/", "internal/render/rendertest/", "internal/controller/cluster/store_change.go"}
	named := regexp.MustCompile(`v1alpha1\.Adapter(ETS|BrowserMemory|Redis|Mnesia|None)\b`)
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		name, err := filepath.Rel(root, path)
		if err != nil || slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(filepath.ToSlash(name), other) }) {
			return err
		}
		text, err := os.ReadFile(path)
		if found := named.Find(text); found != nil {
			t.Errorf("operator/%s names %s: ask this package, or say there that it does not", name, found)
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}
