package podagent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// stoppingFile tells the agent that the pod is being stopped. The application's own SIGTERM is lost when it comes before the
// BEAM handles signals, or when a shell that does not pass it on is process 1. So is this program's, in the first moments of its
// container; but the kubelet also runs a hook, which cannot come too early.
const stoppingFile = "stopping"

// TellStopping tells the agent that the pod is being stopped. An error means that dir cannot be written.
func TellStopping(dir string) error {
	if err := replaceFile(filepath.Join(dir, stoppingFile), nil); err != nil {
		return cannotWrite(dir, err)
	}
	return nil
}

// forgetStopping is for a pod that starts anew with its volume, as after a restart of its machine.
func forgetStopping(dir string) error {
	if err := os.Remove(filepath.Join(dir, stoppingFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cannotWrite(dir, err)
	}
	return nil
}
