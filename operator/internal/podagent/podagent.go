// Package podagent does what the BEAM agent needs done outside the BEAM: it brings the agent's code and the boot
// arguments into the pod, and answers the readiness probe, also when there is no agent to ask.
//
// It is part of a program that runs in every pod, so it speaks HTTP by hand: with net/http it takes 4 MiB more.
package podagent

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path"
	"path/filepath"
	"time"
)

// ebin holds the agent's compiled code, which the build puts there; a README keeps it from being empty without.
//
//go:embed ebin
var ebin embed.FS

// lookupTime bounds what DNS may cost the boot of a pod.
const lookupTime = 5 * time.Second

// dns is Go's own: an image from scratch has no C library.
var dns = &net.Resolver{PreferGo: true}

// ErrNoAgent says that the program was built without the agent's code.
var ErrNoAgent = errors.New("this podagent was built without the agent's code: build it with `make operator`")

// Install writes the agent's code and the boot arguments into dir. When DNS does not answer within five seconds, the
// application boots without knowing its peers, which the agent connects later; an error means that dir could not be written.
func Install(ctx context.Context, dir string, settings Settings, logger *log.Logger) error {
	if err := forgetStopping(dir); err != nil {
		return err
	}
	if err := installCode(ebin, dir); err != nil {
		return err
	}
	bootArgs := newBootArgs(dir, settings, dns, logger)
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return bootArgs.install(ctx)
}

func installCode(code fs.FS, dir string) error {
	files, err := codeFiles(code)
	if err != nil {
		return err
	}
	target := filepath.Join(dir, "ebin")
	if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // the application, another user, reads it
		return cannotWrite(dir, err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(code, file)
		if err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(target, path.Base(file)), content); err != nil {
			return cannotWrite(dir, err)
		}
	}
	return nil
}

func codeFiles(code fs.FS) ([]string, error) {
	beams, err := fs.Glob(code, "ebin/*.beam")
	if err != nil {
		return nil, err
	}
	apps, err := fs.Glob(code, "ebin/*.app")
	if err != nil {
		return nil, err
	}
	if len(beams) == 0 || len(apps) == 0 {
		return nil, ErrNoAgent
	}
	return append(beams, apps...), nil
}

// replaceFile writes file in one step: who reads it sees the old content or the new, never a part. There is one writer.
// The application's container reads it as another user.
func replaceFile(file string, content []byte) error {
	part := file + ".tmp"
	if err := os.WriteFile(part, content, 0o644); err != nil { //nolint:gosec // the same
		return err
	}
	if err := os.Chmod(part, 0o644); err != nil { //nolint:gosec // the same
		return err
	}
	return os.Rename(part, file)
}

func cannotWrite(dir string, err error) error {
	return fmt.Errorf("cannot write the agent into %s: %w; mount a volume there that this container's user may write and that has room", dir, err)
}
