package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackageHasDigests: in the charts of a release every image is named by its digest, also those that the operator's arguments name.
func TestPackageHasDigests(t *testing.T) {
	folder := t.TempDir()
	lines := digests()
	if _, err := packaged(t, folder, lines[1:]); err == nil || !strings.Contains(err.Error(), "no digest of ghcr.io/livestash-dev/livestash-operator") {
		t.Errorf("without the operator's digest: %v", err)
	}
	for what, digest := range map[string]string{"a tag": "v1.2.3", "a digest that is cut": "sha256:0123", "one that goes on": "sha256:" + strings.Repeat("0", 65)} {
		name, _, _ := strings.Cut(lines[0], " ")
		if _, err := packaged(t, folder, append([]string{name + " " + digest}, lines[1:]...)); err == nil || !strings.Contains(err.Error(), "no digest of "+name) {
			t.Errorf("with %s: %v", what, err)
		}
	}
	if out, err := packaged(t, folder, lines); err != nil {
		t.Fatal(err, out)
	}
	for _, name := range []string{"livestash", "livestash-operator"} {
		found := render(t, filepath.Join(folder, name+"-"+chartVersion(t)+".tgz"), "")
		images := imagesOf(t, found)
		if len(images) != 6 {
			t.Errorf("%s names %d images: %q", name, len(images), images)
		}
		for _, image := range images {
			if !regexp.MustCompile(`^[a-z0-9./_-]+:[a-z0-9.-]+@sha256:0{63}[1-5]$`).MatchString(image) {
				t.Errorf("%s: the image %s has no digest", name, image)
			}
		}
	}
}

// digests are lines as docs/how-to/release.md has them made, with a digest for each image.
func digests() []string {
	var lines []string
	for i, name := range []string{"ghcr.io/livestash-dev/livestash-operator", "ghcr.io/livestash-dev/livestash-k6", "docker.io/valkey/valkey",
		"docker.io/oliver006/redis_exporter", "ghcr.io/grafana/k6-operator"} {
		lines = append(lines, fmt.Sprintf("%s sha256:%064d", name, i+1))
	}
	return lines
}

func packaged(t *testing.T, folder string, digests []string) (string, error) {
	t.Helper()
	file := filepath.Join(folder, "digests")
	writeFile(t, file, []byte(strings.Join(digests, "\n")+"\n"))
	command := exec.Command(filepath.Join(root, "hack", "package"), file, folder)
	command.Env = append(os.Environ(), "HELM="+helmProgram(t))
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("hack/package: %w\n%s", err, out)
	}
	return string(out), nil
}
