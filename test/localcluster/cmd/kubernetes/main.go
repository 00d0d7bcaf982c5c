// Command kubernetes is etcd, the Kubernetes control plane and the node agents in one binary.
//
// Its name decides which program it is: called through a link named kube-apiserver it is the API server. Called as
// kubernetes, the first argument names the program: "kubernetes kubelet --config=...". One binary instead of six
// builds in a sixth of the time and keeps one copy of the shared libraries in memory. kubectl is none of them: it is called
// thousands of times, and each start would make all of Kubernetes ready.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs name their time zone, and the machine need not have the zone files.

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of every component
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name a program is called by to its main function. Each one ends the process.
var programs = map[string]func(args []string){
	"etcd":                    runEtcd,
	"kube-apiserver":          component(apiserver.NewAPIServerCommand),
	"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              component(proxy.NewProxyCommand),
}

func main() {
	args := slices.Clone(os.Args)
	args[0] = filepath.Base(args[0])
	run, known := programs[args[0]]
	if !known && len(args) > 1 {
		args = args[1:]
		run, known = programs[args[0]]
	}
	if !known {
		fmt.Fprintf(os.Stderr, "usage: kubernetes PROGRAM [argument ...], where PROGRAM is one of: %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	// The programs read os.Args themselves.
	os.Args = args
	run(args)
}

func names() []string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func runEtcd(args []string) {
	etcdmain.Main(args)
	os.Exit(0)
}

func component(newCommand func() *cobra.Command) func([]string) {
	return func([]string) { os.Exit(cli.Run(newCommand())) }
}
