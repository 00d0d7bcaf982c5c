package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// staged are modules that are published with Kubernetes: 0.37.1 is that of 1.37.1. Others of k8s.io have versions of their own.
var staged = regexp.MustCompile(`^k8s\.io/(api|apiextensions-apiserver|apimachinery|apiserver|cli-runtime|client-go|component-base|kubectl|pod-security-admission)$`)

// TestOneVersionOfKubernetes: with two versions of its libraries, most of what is built here is compiled twice.
func TestOneVersionOfKubernetes(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^KUBERNETES_VERSION *:= v1(\.\d+\.\d+)$`).FindStringSubmatch(string(makefile))
	if version == nil {
		t.Fatal("the Makefile names no version of Kubernetes")
	}
	seen := 0
	for _, module := range []string{"operator", "test", "test/coredns", "test/localcluster", "hack/tools"} {
		file := filepath.Join("../..", module, "go.mod")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := modfile.Parse(file, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, required := range parsed.Require {
			found[required.Mod.Path] = required.Mod.Version
		}
		for _, replaced := range parsed.Replace {
			found[replaced.Old.Path] = replaced.New.Version
		}
		for path, got := range found {
			want := "v0" + version[1]
			if path == "k8s.io/kubernetes" {
				want = "v1" + version[1]
			}
			if !staged.MatchString(path) && path != "k8s.io/kubernetes" {
				continue
			}
			seen++
			if got != want {
				t.Errorf("%s names %s %s, and by the Makefile's KUBERNETES_VERSION it is to be %s in all modules", strings.TrimPrefix(file, "../../"), path, got, want)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d requirements were looked at", seen)
	}
}
