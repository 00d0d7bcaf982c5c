// kubectl-livestash is the plugin `kubectl livestash`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"

	"github.com/livestash-dev/livestash/operator/internal/cli"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := cli.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, version).ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode is that of the command which ran in a pod, if one did; it has said itself what was wrong.
func exitCode(err error) int {
	var ended exec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.Code
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}
