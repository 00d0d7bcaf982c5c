// Command scale measures what it costs the operator to make many LiveStashClusters, against a real API server.
//
//	go run ./scale -n 300 -bin ../bin
//	go run ./scale -n 1000 -pods 10 -agents -bin ../bin
//
// It starts etcd, an API server and a controller manager, and no nodes: the pods are never run. With -agents they run as far as
// the operator can tell, on a simulated node, with agents that answer or, a share of them, never do. The operator runs as a
// process, with the account and the roles it is installed with. The last line of standard output is one JSON object; see
// docs/reference/scale.md for its fields.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// idleWindow is how long an operator that has nothing to do is watched.
const idleWindow = time.Minute

func main() {
	opts := options{out: os.Stdout}
	var checkBounds, checkPace bool
	var operatorArgs, faultNames string
	flag.IntVar(&opts.clusters, "n", 300, "How many LiveStashClusters are made.")
	flag.IntVar(&opts.pods, "pods", 3, "How many pods each has.")
	flag.IntVar(&opts.wave, "wave", 0, "How many LiveStashClusters are made at once; the next are made when these have their pods. 0: all, or 50 with -agents.")
	flag.BoolVar(&opts.withAgents, "agents", false, "Let the pods run on a simulated node, with agents that answer, and measure the operator at rest and how fast it acts.")
	flag.Float64Var(&opts.silent, "silent", 0.33, "Share of the pods whose agents never answer.")
	flag.DurationVar(&opts.idle, "idle", idleWindow, "How long the operator is watched that has nothing to do.")
	flag.BoolVar(&opts.upheavals, "upheavals", false, "With -agents: start the operator anew too, take a third of the pods away for a minute, and change 100 LiveStashClusters at once.")
	flag.StringVar(&faultNames, "faults", "", "Faults to put the operator through while LiveStashClusters are made, changed and deleted, with commas between them, or all; nothing else is measured.")
	flag.StringVar(&opts.bin, "bin", "../bin", "Folder of the programs localcluster, kubernetes, kubectl and manager.")
	flag.StringVar(&opts.config, "config", "../config", "Folder of the project's config/, for the CRD and the roles.")
	flag.StringVar(&opts.name, "name", "bench", "Name of the local cluster. What is left of an earlier one of that name is removed.")
	flag.StringVar(&opts.keep, "keep", "", "Folder that gets audit.log and operator.log. Empty: they are removed in the end.")
	flag.StringVar(&operatorArgs, "operator-args", "", "More arguments for the operator, separated by spaces.")
	flag.BoolVar(&checkBounds, "check", false, "Fail when a bound on requests or memory is broken.")
	flag.BoolVar(&checkPace, "check-pace", false, "Fail when the operator is slower, or takes more CPU time, than it should. Only for a machine with nothing else to do.")
	flag.Parse()
	opts.operatorArgs = strings.Fields(operatorArgs)

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if faultNames != "" {
		err := printFaults(ctx, opts, faultNames)
		cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
		return
	}
	measured, err := run(ctx, opts)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
	line, err := json.Marshal(measured.report())
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
	fmt.Println(string(line))

	var broken []string
	if checkBounds {
		broken = append(broken, measured.brokenBounds()...)
	}
	if checkPace {
		broken = append(broken, measured.brokenPace()...)
	}
	for _, bound := range broken {
		fmt.Fprintln(os.Stderr, "scale: broken bound:", bound)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}
