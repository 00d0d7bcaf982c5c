package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// No image of ours is in a registry yet: whoever runs one has built it and pushed it to a registry of their own, and is told so.
func TestNobodyIsToldToPullOurImages(t *testing.T) {
	pulled := regexp.MustCompile(`image: *["']?ghcr\.io/livestash-dev/[^}\s,]+`)
	installed := regexp.MustCompile(`helm (?:install|upgrade --install) livestash (?:\.|charts/livestash-operator)(?:[^\n]*\\\n)*[^\n]*`)
	for _, path := range pages(t) {
		for _, block := range fences.FindAllString(text(t, path), -1) {
			for _, found := range pulled.FindAllString(block, -1) {
				t.Errorf("%s: %s is in no registry", path, found)
			}
			for _, found := range installed.FindAllString(block, -1) {
				if !strings.Contains(found, "image.repository=") && !strings.Contains(found, "reuse-values") {
					t.Errorf("%s: this installs an operator whose image is in no registry:\n%s", path, found)
				}
			}
		}
	}
	for _, path := range samples(t) {
		sample := text(t, path)
		head, _, _ := strings.Cut(sample, "apiVersion:")
		if strings.Contains(sample, "ghcr.io/livestash-dev/") && !strings.Contains(head, "registry") {
			t.Errorf("%s does not say where its image comes from", path)
		}
	}
}

func samples(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "config", "samples", "livestash*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no samples: ", err)
	}
	for i := range paths {
		paths[i] = filepath.Join("config", "samples", filepath.Base(paths[i]))
	}
	return paths
}

// Available is true with two of three pods. Who waits until a fleet is as it should be waits for Ready.
func TestNobodyIsToldToWaitForAvailable(t *testing.T) {
	told := append(pages(t), filepath.Join("hack", "demo", "run"), filepath.Join("charts", "livestash-operator", "templates", "_notes.tpl"))
	for _, path := range told {
		if strings.Contains(strings.ToLower(text(t, path)), "--for=condition=available") {
			t.Errorf("%s waits for Available", path)
		}
	}
}

// The command of the quickstart fills all words in the form of the load test.
func TestTheQuickstartsLoadTestIsFilled(t *testing.T) {
	command := between(t, page(t, "docs", "quickstart.md"), "## 6.", "kubectl wait job")
	job := page(t, "loadtests", "k6", "job.yaml")
	for _, word := range regexp.MustCompile(`s\|(@\w+@)\|([^|]+)\|`).FindAllStringSubmatch(command, -1) {
		job = strings.ReplaceAll(job, word[1], word[2])
	}
	if left := regexp.MustCompile(`@\w+@`).FindString(job); left != "" || !strings.Contains(command, "loadtests/k6/job.yaml") {
		t.Errorf("%q is left by\n%s", left, command)
	}
}

// What the demo has people try next is one fleet with the image that they have: not every sample, which is hours of benchmarks and an
// image that there is not.
func TestTheDemosNextStepsRun(t *testing.T) {
	next := between(t, page(t, "hack", "demo", "run"), "what_next() {", "\n}")
	files := regexp.MustCompile(`manifests/\S*`).FindAllString(next, -1)
	for _, file := range files {
		found, err := os.Stat(filepath.Join(root, file))
		if err != nil || found.IsDir() || !strings.Contains(page(t, file), "ghcr.io/livestash-dev/") || !strings.Contains(next, "sed 's|ghcr.io/livestash-dev|$REGISTRY|' "+file) {
			t.Errorf("%s cannot be applied: %v", file, err)
		}
	}
	if len(files) == 0 {
		t.Error("it applies nothing")
	}
}
