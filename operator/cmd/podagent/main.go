// Command podagent is the operator's hand inside a pod of a fleet.
//
//	podagent install --dir DIR   wait for Redis, if the fleet needs it, then write the agent's code and the boot arguments into
//	                             DIR, before the application starts
//	podagent serve --dir DIR     keep the boot arguments up to date and answer the readiness probe
//	podagent version             print the version
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/livestash-dev/livestash/operator/internal/podagent"
)

// version is stamped by the build.
var version = "dev"

var errUsage = errors.New("usage: podagent install --dir DIR | podagent serve --dir DIR | podagent version")

func main() {
	beSmall()
	err := run(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dir := flags.String("dir", "", "Folder that the application reads the agent from.")
	if err := flags.Parse(args[1:]); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	if args[0] == "version" {
		fmt.Println(version)
		return nil
	}
	if *dir == "" {
		return errUsage
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := log.New(os.Stderr, "", log.LstdFlags|log.LUTC|log.Lmsgprefix)
	settings := podagent.FromEnvironment(os.Getenv, logger)
	settings.Version = version
	switch args[0] {
	case "install":
		if err := podagent.AwaitStore(ctx, settings, logger); err != nil {
			return err
		}
		// Only now: what DNS says of the peers is to be fresh.
		return podagent.Install(ctx, *dir, settings, logger)
	case "serve":
		logger.Printf("podagent %s answers readiness probes on port %d", version, settings.ProbePort)
		return podagent.Serve(ctx, *dir, settings, logger)
	default:
		return errUsage
	}
}

// beSmall trades speed, of which next to none is needed, for memory: there is one of this program in every pod.
func beSmall() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	debug.SetMemoryLimit(16 << 20)
}
