// Package image turns static programs into container images, without Docker and without a registry.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is who the programs run as: no user of any machine.
const user = "65532:65532"

// WriteProgram writes an archive with one image, named reference, that holds only the static program, as /NAME, and runs it.
func WriteProgram(archive, reference, program string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	image, err := programImage(program)
	if err != nil {
		return fmt.Errorf("make the image %s: %w", reference, err)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, image)
}

func programImage(program string) (v1.Image, error) {
	layer, err := programLayer(program)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + filepath.Base(program)}, User: user, WorkingDir: "/"}
	return mutate.ConfigFile(image, config)
}

func programLayer(path string) (v1.Layer, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := &tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(program); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
}
