package image

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestWriteProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(program, []byte("program"), 0o644); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "new", "pause.tar")
	const reference = "localhost/test/pause:1"
	if err := WriteProgram(archive, reference, program); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: []string{"/pause"}, User: "65532:65532", WorkingDir: "/"}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Error(diff)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	files := tar.NewReader(content)
	header, err := files.Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != "pause" || header.Mode != 0o755 || string(got) != "program" {
		t.Errorf("file %s, mode %o, content %q", header.Name, header.Mode, got)
	}
	if _, err := files.Next(); err != io.EOF {
		t.Errorf("more files than one: %v", err)
	}
}

func TestWriteProgramRefuses(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteProgram(archive, "Not A Name", "/bin/true"); err == nil {
		t.Error("a bad name was accepted")
	}
	if err := WriteProgram(archive, "localhost/test/none:1", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing program was accepted")
	}
	if _, err := os.Stat(archive); err == nil {
		t.Error("an archive was left behind")
	}
}
