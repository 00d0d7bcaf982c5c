package rendertest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the rendered objects to testdata instead of comparing")

// CompareGolden compares objects with the file of that name, which shows them as a user would read them. After a wanted change: go test -update.
func CompareGolden[T client.Object](t *testing.T, name string, objects ...T) {
	t.Helper()
	var got bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(text)
	}
	Golden(t, name+".golden.yaml", got.Bytes())
}

// Golden compares a text with the file of that name below testdata. After a wanted change: go test -update.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("it differs from %s (-want +got):\n%s", golden, diff)
	}
}
