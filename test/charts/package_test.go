package charts

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxPackage is the most bytes a packaged root chart may have. Helm keeps every release, and with it the chart, in a
// Secret of at most 1 MiB.
const maxPackage = 120_000

// TestPackage: the root chart stands at the root of the repository, so that everything else there must be kept out.
func TestPackage(t *testing.T) {
	folder := t.TempDir()
	if _, err := helm(t, "package", root, "--destination", folder); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "livestash-"+chartVersion(t)+".tgz")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > maxPackage {
		t.Errorf("the package has %d bytes, the most is %d: name what is not the chart's in .helmignore", info.Size(), maxPackage)
	}
	for _, name := range packed(t, path) {
		inside, _, _ := strings.Cut(strings.TrimPrefix(name, "livestash/"), "/")
		switch inside {
		case "Chart.yaml", "values.yaml", "values.schema.json", "templates", "README.md", "LICENSE":
		case "charts":
			if !strings.HasPrefix(name, "livestash/charts/livestash-operator/") && !strings.HasPrefix(name, "livestash/charts/livestash-observability/") {
				t.Errorf("%s is packed, but is no part of the root chart", name)
			}
		default:
			t.Errorf("%s is packed: name it in .helmignore", name)
		}
	}
}

// TestPlatformIsLeftOut: charts/livestash-platform is a release of its own that stands beside the parts.
func TestPlatformIsLeftOut(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "livestash")
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", ".helmignore", "templates", "charts"} {
		source := filepath.Join(root, name)
		info, err := os.Stat(source)
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() {
			writeFile(t, filepath.Join(chart, name), readFile(t, source))
			continue
		}
		if err := os.CopyFS(filepath.Join(chart, name), os.DirFS(source)); err != nil {
			t.Fatal(err)
		}
	}
	platform := filepath.Join(chart, "charts/livestash-platform")
	if err := os.RemoveAll(platform); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(platform, "Chart.yaml"), []byte("apiVersion: v2\nname: livestash-platform\nversion: 0.1.0\n"))
	writeFile(t, filepath.Join(platform, "templates/map.yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: platform}\n"))

	if found := render(t, chart, ""); found["ConfigMap /platform"] != nil {
		t.Error("the root chart installs charts/livestash-platform")
	}
	if err := os.Remove(filepath.Join(chart, ".helmignore")); err != nil {
		t.Fatal(err)
	}
	if _, err := template(t, chart, ""); err == nil {
		t.Error("without .helmignore the platform is not noticed either: this test shows nothing")
	}
}

func TestLint(t *testing.T) {
	if out, err := helm(t, append([]string{"lint", "--strict", root}, parts...)...); err != nil {
		t.Error(err, out)
	}
}

func packed(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
