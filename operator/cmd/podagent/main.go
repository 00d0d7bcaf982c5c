// Command podagent is the operator's hand inside a pod of a fleet.
//
//	podagent install --dir DIR   wait for Redis, if the fleet needs it, then write the agent's code and the boot arguments into
//	                             DIR, before the application starts
//	podagent serve --dir DIR     keep the boot arguments up to date and answer the readiness probe; with --crash-dump FILE --keep N also
//	                             the last N crash dumps of the application
//	podagent stopping --dir DIR  tell the agent that the pod is being stopped, and end
//	podagent dumps --crash-dump FILE [NAME]   list them, as JSON; with a NAME, write that one to standard output
//	podagent usage --port PORT --containers N   answer what the N containers of a pod use, beside a server that has no agent
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

var errUsage = errors.New("usage: podagent install --dir DIR | podagent serve --dir DIR [--crash-dump FILE --keep N] | podagent stopping --dir DIR | " +
	"podagent dumps --crash-dump FILE [NAME] | podagent usage --port PORT --containers N | podagent version")

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
	crashDump := flags.String("crash-dump", "", "File that the virtual machine writes a crash dump to.")
	port := flags.Int("port", 0, "Port to answer on.")
	containers := flags.Int("containers", 0, "How many containers the pod has.")
	keep := flags.Int("keep", 0, "How many crash dumps are kept. 0: they are left as they are.")
	if err := flags.Parse(args[1:]); err != nil {
		return errUsage
	}
	dumps := podagent.Dumps{File: *crashDump, Keep: *keep}
	if args[0] == "dumps" {
		return show(dumps, flags.Args())
	}
	if flags.NArg() > 0 || (*keep > 0) != (*crashDump != "") {
		return errUsage
	}
	if args[0] == "version" {
		fmt.Println(version)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case args[0] == "usage" && *port > 0 && *containers > 0:
		return podagent.ServeUsage(ctx, *port, *containers, version)
	case *dir == "":
		return errUsage
	}
	return runBeside(ctx, args[0], *dir, dumps)
}

// runBeside does what belongs to the application whose agent is in the folder.
func runBeside(ctx context.Context, what, dir string, dumps podagent.Dumps) error {
	logger := log.New(os.Stderr, "", log.LstdFlags|log.LUTC|log.Lmsgprefix)
	settings := podagent.FromEnvironment(os.Getenv, logger)
	settings.Version = version
	switch what {
	case "install":
		if err := podagent.AwaitStore(ctx, settings, logger); err != nil {
			return err
		}
		// Only now: what DNS says of the peers is to be fresh.
		return podagent.Install(ctx, dir, settings, logger)
	case "serve":
		logger.Printf("podagent %s answers readiness probes on port %d", version, settings.ProbePort)
		if dumps.Keep > 0 {
			go dumps.Watch(ctx, logger)
		}
		return podagent.Serve(ctx, dir, settings, logger)
	case "stopping":
		return podagent.TellStopping(dir)
	default:
		return errUsage
	}
}

// show lists the crash dumps, or writes the one that is named.
func show(dumps podagent.Dumps, names []string) error {
	switch {
	case dumps.File == "" || len(names) > 1:
		return errUsage
	case len(names) == 1:
		return dumps.Copy(os.Stdout, names[0])
	}
	return dumps.List(os.Stdout)
}

// beSmall trades speed, of which next to none is needed, for memory: there is one of this program in every pod.
func beSmall() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	debug.SetMemoryLimit(16 << 20)
}
