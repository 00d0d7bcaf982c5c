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
