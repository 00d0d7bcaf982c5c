package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// nodeName is whether each node has the name that its peers look for. rel/env.sh.eex of a release can change it.
func nodeName(f *Facts) []Finding {
	var found []Finding
	for _, pod := range slices.Sorted(maps.Keys(f.Agents)) {
		name := f.Agents[pod].Node
		want := fmt.Sprintf("%s@%s.%s.%s.svc.", f.Cluster.Name, pod, render.HeadlessName(f.Cluster), f.Cluster.Namespace)
		switch {
		case strings.HasPrefix(name, want):
		case strings.HasPrefix(name, "nonode@"):
			found = append(found, broken(fmt.Sprintf("The virtual machine of %s is no BEAM node (%s): it sees no peer.", pod, name),
				"Remove RELEASE_DISTRIBUTION from rel/env.sh.eex, and -sname or -name from rel/vm.args.eex; or write RELEASE_DISTRIBUTION=\"${RELEASE_DISTRIBUTION:-none}\"."))
		default:
			found = append(found, broken(fmt.Sprintf("The node of %s is named %s, and its peers look for %s...: they do not find it.", pod, name, want),
				"Remove RELEASE_NODE from rel/env.sh.eex (fly.io's example sets it), or write RELEASE_NODE=\"${RELEASE_NODE:-...}\"."))
		}
	}
	return found
}

// adapter is whether the pods have the adapter of the spec: a rollout that waits looks so.
func adapter(f *Facts) []Finding {
	var found []Finding
	want := store.For(f.Cluster).Name()
	for _, pod := range slices.Sorted(maps.Keys(f.Agents)) {
		status := f.Agents[pod]
		if status.Adapter == want && !status.Store.Ready && status.Store.Reason != "" {
			found = append(found, broken(fmt.Sprintf("The application in %s keeps no stashes: %s", pod, status.Store.Reason),
				"Start the adapter that LIVE_STASH_ADAPTER names: the lines for config/runtime.exs are in docs/reference/environment.md."))
		}
	}
	return found
}

// trap is a line of a log that tells what is wrong.
type trap struct {
	line          *regexp.Regexp
	wrong, change string
}

// traps are what applications say that were made for another place. $1 is the first group of the line.
var traps = []trap{
	{regexp.MustCompile(`node not running in distributed mode`), "dns_cluster says that the virtual machine is no BEAM node.",
		"Remove RELEASE_DISTRIBUTION and RELEASE_NODE from rel/env.sh.eex: the pod has them."},
	{regexp.MustCompile(`\*\* System (NOT )?running to use (fully qualified|short) hostnames`), "Nodes with short and with long names try to reach each other.",
		"Remove RELEASE_DISTRIBUTION=sname and -sname from the release: nodes have long names here."},
	{regexp.MustCompile(`Connection attempt (?:from|with) node \S+ rejected\. Invalid (?:challenge|cookie)`), "A node shows another cookie than its peers.",
		"Remove RELEASE_COOKIE from rel/env.sh.eex and `cookie:` from mix.exs (releases), and -setcookie from rel/vm.args.eex."},
	{regexp.MustCompile(`unable to connect to :?"?\S+@\d+\.\d+\.\d+\.\d+`), "dns_cluster looks for nodes by their IP addresses, and they are named by their host names.",
		"Remove {DNSCluster, ...} from the supervisor in application.ex: the agent connects the nodes. Or use libcluster as docs/reference/environment.md has it."},
	{regexp.MustCompile(`Could not check origin for Phoenix\.Socket transport`), "Phoenix refuses the sockets of an origin that it does not know: pages reload for ever.",
		"Set spec.http.host to the name in the browser's address bar; with several names, set check_origin in config/runtime.exs."},
	{regexp.MustCompile(`environment variable (\w+) is missing`), "The application stops because the variable $1 is missing.",
		"Set $1 in spec.env, or in a Secret that spec.envFrom names."},
	{regexp.MustCompile(`Configuration :server was not enabled for|:server option.*not.*enabled`), "The endpoint does not listen.",
		"Keep `if System.get_env(\"PHX_SERVER\"), do: config :my_app, MyAppWeb.Endpoint, server: true` in config/runtime.exs."},
	{regexp.MustCompile(`Running \S+ with .* at (127\.0\.0\.1|::1|localhost):`), "The endpoint listens on $1 alone, where no user gets to.",
		"Bind to all addresses in config/runtime.exs: http: [ip: {0, 0, 0, 0, 0, 0, 0, 0}, port: port]."},
	{regexp.MustCompile(`:eaddrinuse`), "A port that the application wants is taken.",
		"See that nothing of the application listens on 4369, spec.clustering.distributionPort and the nine after it, spec.agent.port and the one after it."},
	{regexp.MustCompile(`the name \S+ seems to be in use by another Erlang node`), "A second virtual machine in the pod wants the application's node name.",
		"Start tools with `bin/app rpc` or `bin/app eval`, not with `bin/app start`."},
	{regexp.MustCompile(`livestash agent: ((?:this node has no name|this node is called|it does not start|it did not start|it has stopped|the application handles signals itself).*)`),
		"The agent says: $1", "Do what it asks for; docs/runbooks/LiveStashAgentUnhealthy.md has more."},
}

// running is where a Phoenix endpoint says that it listens.
var running = regexp.MustCompile(`Running \S+ with .* at \S*:(\d+)\b`)

// logLines are lines of the pods' logs that tell what is wrong, each once for all pods.
func logLines(f *Facts) []Finding {
	var found []Finding
	told := map[string]bool{}
	for _, pod := range slices.Sorted(maps.Keys(f.Logs)) {
		for _, line := range f.Logs[pod] {
			finding, is := trapped(line)
			if port := running.FindStringSubmatch(line); port != nil && port[1] != fmt.Sprint(f.Cluster.Spec.HTTP.Port) {
				finding, is = broken(fmt.Sprintf("The endpoint listens on port %s, and spec.http.port is %d.", port[1], f.Cluster.Spec.HTTP.Port),
					"Read the port from PORT in config/runtime.exs, or set spec.http.port: "+port[1]), true
			}
			if !is || told[finding.Wrong] {
				continue
			}
			told[finding.Wrong] = true
			finding.Wrong = pod + ": " + finding.Wrong
			found = append(found, finding)
		}
	}
	return found
}

func trapped(line string) (Finding, bool) {
	for _, trap := range traps {
		groups := trap.line.FindStringSubmatch(line)
		if groups == nil {
			continue
		}
		first := ""
		if len(groups) > 1 {
			first = groups[1]
		}
		return broken(strings.ReplaceAll(trap.wrong, "$1", first), strings.ReplaceAll(trap.change, "$1", first)), true
	}
	return Finding{}, false
}

// overrideOf is spec.podTemplate.spec as far as it is a PodSpec.
func overrideOf(c *v1alpha1.LiveStashCluster) corev1.PodSpec {
	var spec corev1.PodSpec
	if patch := c.Spec.PodTemplate.Spec.Patch(); patch != nil {
		_ = json.Unmarshal(patch, &spec) // the API server and the operator say what is wrong with it
	}
	return spec
}
