// Command manager runs the LiveStash operator.
//
//	manager [flags]           run the operator
//	manager check URL [CA]    exit 0 when URL answers 200, for `helm test`; over https, when an authority in the file CA vouches for the server
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/clusterdomain"
	"github.com/livestash-dev/livestash/operator/internal/controller/benchmark"
	"github.com/livestash-dev/livestash/operator/internal/controller/cluster"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/metricsauth"
	"github.com/livestash-dev/livestash/operator/internal/metricscert"
	"github.com/livestash-dev/livestash/operator/internal/observe"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
)

// version is stamped by the build.
var version = "dev"

// collectAt is by how many percent the heap grows before garbage is collected, unless GOGC says otherwise. Most of the heap is caches,
// which stay: with Go's usual 100 the process takes twice their size and more. At rest it makes little garbage, and saves nothing by that.
const collectAt = 25

const (
	// leaseDuration is how long other replicas wait for the leader's next sign of life before one of them leads. A leader gives up by itself after ten
	// seconds without one.
	leaseDuration = 15 * time.Second
	// changeTakes is how long a change may take until it is made.
	changeTakes = 3 * time.Second
)

// options are the command line.
type options struct {
	namespaces       string
	clusterDomain    string
	agentImage       string
	agentReaders     string
	redisImage       string
	exporterImage    string
	runnerImage      string
	starterImage     string
	upgrade          string
	upgradesAtOnce   int
	concurrency      int
	allowPrivileged  bool
	leaderElection   bool
	electionInNS     string
	electionID       string
	metricsAddress   string
	metricsSecure    bool
	metricsService   string
	healthAddress    string
	logging          zap.Options
	printVersionOnly bool
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=system
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,namespace=system

func main() {
	if len(os.Args) >= 3 && os.Args[1] == "check" {
		os.Exit(check(os.Args[2], strings.Join(os.Args[3:], " ")))
	}
	opts := parse()
	if opts.printVersionOnly {
		fmt.Println(version)
		return
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&opts.logging)))
	if _, told := os.LookupEnv("GOGC"); !told {
		debug.SetGCPercent(collectAt)
	}
	if limit := memoryLimit(); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	if err := run(opts); err != nil {
		ctrl.Log.Error(err, "Stopping")
		os.Exit(1)
	}
}

// memoryLimit is from when on garbage is collected at any cost: nine tenths of what the container may have, in bytes, which Kubernetes tells.
// 0: nobody tells, or somebody who knows better has set GOMEMLIMIT.
func memoryLimit() int64 {
	if _, told := os.LookupEnv("GOMEMLIMIT"); told {
		return 0
	}
	limit, err := strconv.ParseInt(os.Getenv("CONTAINER_MEMORY_LIMIT"), 10, 64)
	if err != nil || limit <= 0 {
		return 0
	}
	return limit / 10 * 9
}

func parse() options {
	var opts options
	flag.StringVar(&opts.namespaces, "namespaces", "", "Comma-separated namespaces whose LiveStashClusters and LiveStashBenchmarks are reconciled. Empty: all.")
	flag.StringVar(&opts.clusterDomain, "cluster-domain", "", "DNS domain of the Kubernetes cluster. Empty: taken from /etc/resolv.conf, else "+clusterdomain.Default+".")
	flag.StringVar(&opts.agentImage, "agent-image", "ghcr.io/livestash-dev/livestash-operator:"+version, "Image that pods take the agent from: the operator's own, as it is named in the fleets' clusters.")
	flag.StringVar(&opts.agentReaders, "agent-readers", "monitoring", "Comma-separated namespaces whose pods may reach the agents' port, and that of the exporter of a Redis that the operator runs: Prometheus'. The operator's own namespace always may. *: all.")
	flag.StringVar(&opts.redisImage, "redis-image", "docker.io/valkey/valkey:9.1.4", "Image of the Redis that the operator runs for a fleet, unless the fleet names one. Redis or Valkey.")
	flag.StringVar(&opts.exporterImage, "redis-exporter-image", "docker.io/oliver006/redis_exporter:v1.93.0", "Image of the exporter of that Redis' metrics, unless the fleet names one.")
	flag.StringVar(&opts.runnerImage, "runner-image", "ghcr.io/livestash-dev/livestash-k6:"+version, "Image of the load tests of LiveStashBenchmarks, unless the benchmark names one.")
	flag.StringVar(&opts.starterImage, "starter-image", "ghcr.io/grafana/k6-operator:starter-v1.6.0", "Image with which k6-operator starts the runners of LiveStashBenchmarks. It has the programs sh and curl.")
	flag.StringVar(&opts.upgrade, "upgrade", string(v1alpha1.UpgradeWithNextRollout), "When the pods of fleets without spec.upgrade get what this version of the operator makes of them, unlike the last one: WithNextRollout, of their own, or Immediately.")
	flag.IntVar(&opts.upgradesAtOnce, "upgrades-at-once", 1, "How many of the fleets that are upgraded immediately have their pods replaced at the same time. The next one follows when one is Ready again.")
	flag.IntVar(&opts.concurrency, "concurrency", 64, "How many LiveStashClusters are reconciled at once. A reconcile mostly waits for the API server, which holds back those who ask too much.")
	flag.BoolVar(&opts.allowPrivileged, "allow-privileged-pod-templates", false, "Make pods that have more than their namespace when a LiveStashCluster asks for them: files, network and processes of the node, added capabilities. Whoever may write LiveStashClusters then has the nodes.")
	flag.BoolVar(&opts.leaderElection, "leader-elect", true, "Let one of several replicas work, the others wait.")
	flag.StringVar(&opts.electionInNS, "leader-election-namespace", "", "Namespace of the leader election's Lease. Empty: the pod's own. Needed outside a pod.")
	flag.StringVar(&opts.electionID, "leader-election-id", "livestash-operator", "Name of that Lease. Two operators of one namespace need two, else one of them waits for ever.")
	flag.StringVar(&opts.metricsAddress, "metrics-bind-address", ":8443", "Address of /metrics. 0 turns it off.")
	flag.BoolVar(&opts.metricsSecure, "metrics-secure", true, "Serve /metrics over TLS, to those only whose token may get /metrics. False: over HTTP, to all.")
	flag.StringVar(&opts.metricsService, "metrics-service", "", "Name of the Service that leads to /metrics, for whose DNS name the certificate is made. Its authority is in the ConfigMap of that name and -metrics-ca, the authority's key in the Secret of that name and -metrics; both must be there, empty. Empty, or outside a pod: with a certificate made at the start, which nobody can verify.")
	flag.StringVar(&opts.healthAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz.")
	flag.BoolVar(&opts.printVersionOnly, "version", false, "Print the version and stop.")
	opts.logging.BindFlags(flag.CommandLine)
	flag.Parse()
	if err := opts.check(); err != nil {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), err)
		os.Exit(2)
	}
	return opts
}

// check refuses a command line that means nothing.
func (o options) check() error {
	switch policy := v1alpha1.UpgradePolicy(o.upgrade); {
	case policy != v1alpha1.UpgradeImmediately && policy != v1alpha1.UpgradeWithNextRollout:
		return fmt.Errorf("--upgrade=%s is neither Immediately nor WithNextRollout", o.upgrade)
	case o.upgradesAtOnce < 1:
		return fmt.Errorf("--upgrades-at-once=%d must be at least 1: with --upgrade=WithNextRollout no fleet is upgraded by itself", o.upgradesAtOnce)
	}
	return nil
}

func run(opts options) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "livestash-operator/" + version
	ctx := ctrl.SetupSignalHandler()
	if err := awaitAPIServer(ctx, config); err != nil {
		return err
	}

	fence := &fencing.Fence{Lasts: leaseDuration - changeTakes, Clock: clock.RealClock{}}
	election := rest.CopyConfig(config)
	election.Wrap(fence.Renewals)
	config.Wrap(fence.Changes)
	certificate := &metricscert.Certificate{Namespace: ownNamespace(), Service: opts.metricsService, Clock: clock.RealClock{}}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(opts.namespaces),
		Metrics:                       metricsOptions(opts, certificate),
		HealthProbeBindAddress:        opts.healthAddress,
		LeaderElection:                opts.leaderElection,
		LeaderElectionID:              opts.electionID,
		LeaderElectionNamespace:       opts.electionInNS,
		LeaderElectionConfig:          election,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
	})
	if err != nil {
		return err
	}

	domain := opts.clusterDomain
	if domain == "" {
		domain = clusterdomain.Detect("/etc/resolv.conf")
	}
	agents := agentclient.New()
	news := cluster.NewNews()
	observer := &observe.Observer{Agents: agents, Changed: news.Tell}
	if err := mgr.Add(observer); err != nil {
		return err
	}
	named, err := cluster.NewNamed(mgr, names(opts.namespaces)...)
	if err != nil {
		return err
	}
	seesNodes, err := cluster.CanSeeNodes(ctx, mgr.GetAPIReader())
	if err != nil {
		return fmt.Errorf("asking whether nodes may be seen: %w", err)
	}
	if !seesNodes {
		ctrl.Log.Info("Nodes may not be seen: pods leave a cordoned node only when they are evicted. A ClusterRole that may get, list and watch nodes changes that")
	}
	redis := redisadmin.New()
	redis.MayTell = fence.Check
	reconciler := &cluster.Reconciler{
		Named:              named,
		Client:             mgr.GetClient(),
		Live:               mgr.GetAPIReader(),
		Recorder:           mgr.GetEventRecorder("livestash-operator"),
		ClusterDomain:      domain,
		AgentImage:         opts.agentImage,
		RedisImage:         opts.redisImage,
		RedisExporterImage: opts.exporterImage,
		Redis:              redis,
		Namespace:          ownNamespace(),
		Readers:            names(opts.agentReaders),
		AllowPrivileged:    opts.allowPrivileged,
		Version:            version,
		Upgrade:            v1alpha1.UpgradePolicy(opts.upgrade),
		UpgradesAtOnce:     opts.upgradesAtOnce,
		Clock:              clock.RealClock{},
		SeesNodes:          seesNodes,
		Agents:             observer,
		News:               news.Told,
	}
	if err := reconciler.SetupWithManager(mgr, opts.concurrency); err != nil {
		return err
	}
	if err := setUpBenchmarks(mgr, opts, domain, agents, fence); err != nil {
		return err
	}
	if err := setUpMetrics(mgr, opts, certificate); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version, "clusterDomain", domain, "namespaces", opts.namespaces)
	return mgr.Start(ctx)
}

// setUpMetrics has the fleets told of, and the metrics' certificate made.
func setUpMetrics(mgr manager.Manager, opts options, certificate *metricscert.Certificate) error {
	fleets := &cluster.Metrics{Reader: mgr.GetClient(), Version: version, Elected: mgr.Elected()}
	if err := metrics.Registry.Register(fleets); err != nil {
		return err
	}
	if !verifiable(opts, certificate) {
		return nil
	}
	certificate.Reader, certificate.Writer = mgr.GetAPIReader(), mgr.GetClient()
	return mgr.Add(certificate)
}

func setUpBenchmarks(mgr manager.Manager, opts options, domain string, agents *agentclient.Client, fence *fencing.Fence) error {
	tests, err := benchmark.NewTestsCache(mgr, cacheOptions(opts.namespaces).DefaultNamespaces)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	runners := runner.NewHTTP()
	runners.Transport = fence.Changes(runners.Transport)
	reconciler := &benchmark.Reconciler{
		Client:        mgr.GetClient(),
		Live:          mgr.GetAPIReader(),
		Tests:         tests,
		Clients:       clients,
		Recorder:      mgr.GetEventRecorder("livestash-operator"),
		Agents:        observe.NewPool(agents, 0),
		Logs:          runner.PodLogs{Clients: clients},
		Job:           &runner.Job{Reader: tests, HTTP: runners},
		ClusterDomain: domain,
		RunnerImage:   opts.runnerImage,
		StarterImage:  opts.starterImage,
		UsageImage:    opts.agentImage,
		RedisImage:    opts.redisImage,
		Namespace:     ownNamespace(),
		Version:       version,
		Clock:         clock.RealClock{},
	}
	return reconciler.SetupWithManager(mgr)
}

// ownNamespace is where the operator's pod is. Empty outside of a pod.
func ownNamespace() string {
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(namespace))
}

// metricsOptions protects the metrics: they tell the names of all fleets.
func metricsOptions(opts options, certificate *metricscert.Certificate) server.Options {
	metrics := server.Options{BindAddress: opts.metricsAddress, SecureServing: opts.metricsSecure}
	if opts.metricsSecure {
		metrics.FilterProvider = metricsauth.Filter
	}
	if verifiable(opts, certificate) {
		metrics.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = certificate.Get }}
	}
	return metrics
}

// verifiable is whether the metrics have a certificate that others can verify.
func verifiable(opts options, certificate *metricscert.Certificate) bool {
	return opts.metricsSecure && opts.metricsAddress != "0" && certificate.Service != "" && certificate.Namespace != ""
}

// names are those of a comma-separated list.
func names(list string) []string {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}

func cacheOptions(namespaces string) cache.Options {
	options := cluster.CacheOptions()
	for _, namespace := range names(namespaces) {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}
