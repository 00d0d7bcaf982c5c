package charts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cosign writes down what it is asked for.
const cosign = `#!/bin/sh
echo "$@" >>"$(dirname "$0")/asked"
`

// TestSign: every image and chart of ours is signed by its digest, with what is inside of each image, and no one of others.
func TestSign(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "cosign")
	writeFile(t, program, []byte(cosign))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	sign := func(digests []string, change ...string) error {
		writeFile(t, filepath.Join(folder, "digests"), []byte(strings.Join(digests, "\n")+"\n"))
		command := exec.Command(filepath.Join(root, "hack", "sign"), filepath.Join(folder, "digests"), folder)
		command.Env = append(append(os.Environ(), "COSIGN="+program), change...)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	asked := func() string {
		text, err := os.ReadFile(filepath.Join(folder, "asked"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	refuses := func(name, sentence string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), sentence) || asked() != "" {
			t.Errorf("%s: %v, and asked %q; want %q and nothing signed", name, err, asked(), sentence)
		}
	}

	refuses("without the charts' digests", "charts.digests", sign(digests()))
	chart := "ghcr.io/livestash-dev/charts/livestash sha256:" + strings.Repeat("a", 64)
	writeFile(t, filepath.Join(folder, "charts.digests"), []byte(chart+"\n"))
	refuses("without what is inside", "livestash-operator.spdx.json", sign(digests()))
	for _, name := range []string{"livestash-operator", "livestash-k6"} {
		writeFile(t, filepath.Join(folder, name+".spdx.json"), []byte("{}"))
	}
	for name, digest := range map[string]string{"a tag": "v1.2.3", "nothing": "", "a digest that is cut": "sha256:0123"} {
		refuses("with "+name, "no digest", sign(append(digests(), "ghcr.io/livestash-dev/livestash-k6 "+digest)))
	}
	refuses("with no image of ours", "no image", sign(digests()[2:]))
	refuses("without cosign", "cosign is missing", sign(digests(), "COSIGN="+program+"-elsewhere"))

	if err := sign(digests()); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, line := range digests()[:2] {
		image, digest, _ := strings.Cut(line, " ")
		want = append(want, "sign --yes "+image+"@"+digest,
			"attest --yes --type spdxjson --predicate "+filepath.Join(folder, filepath.Base(image))+".spdx.json "+image+"@"+digest)
	}
	want = append(want, "sign --yes "+strings.Replace(chart, " ", "@", 1))
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(asked()), "\n")); diff != "" {
		t.Errorf("asked of cosign (-want +got):\n%s", diff)
	}

	writeFile(t, filepath.Join(folder, "asked"), nil)
	if err := sign(digests(), "COSIGN_FLAGS=--key mine"); err != nil {
		t.Fatal(err)
	}
	if flagged := strings.Count(asked(), " --key mine "); flagged != len(want) {
		t.Errorf("%d of %d have the flags:\n%s", flagged, len(want), asked())
	}
}
