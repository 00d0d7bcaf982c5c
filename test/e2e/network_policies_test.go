package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The names of those who knock.
const (
	fleetPod     = "a pod of the fleet"
	neighbour    = "a pod of its namespace"
	otherTenant  = "a pod of another tenant"
	twin         = "a pod of another tenant with the fleet's labels"
	impostor     = "one that calls itself k6-operator"
	reader       = "a pod of the namespace monitoring"
	operatorsOwn = "a pod of the operator's namespace"
	operatorPod  = "a pod with the operator's labels"
)

// knocker is a pod that tries to connect.
type knocker struct {
	space     space
	pod       string
	container string
}

// door is a port of a pod, and who may connect to it. Nobody else may.
type door struct {
	address string
	open    []string
}

// Every port of ours is open to those who need it, and to nobody else, on a network that enforces policies. The table
// in docs/security.md says the same.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	if os.Getenv("NETWORK_POLICIES") == "" {
		t.Skip("NETWORK_POLICIES is not set: it is not known whether this cluster's network enforces policies, as the local cluster's does")
	}
	s := newSpace(t, "doors")
	tenant := newSpace(t, "doors-tenant")
	monitoring := existing(t, "monitoring")
	operator := space{t, releaseNamespace}

	const spec = "adapter: Redis\nreplicas: 2\nredis: {managed: {memory: 64Mi}}"
	s.apply(spec)
	knockers := map[string]knocker{
		neighbour:    s.knocks("neighbour", ""),
		otherTenant:  tenant.knocks("stranger", ""),
		impostor:     tenant.knocks("impostor", "app.kubernetes.io/name: k6-operator"),
		reader:       monitoring.knocks("e2e-reader", ""),
		operatorsOwn: operator.knocks("e2e-beside", ""),
		operatorPod:  operator.knocks("e2e-operator", "app.kubernetes.io/name: livestash-operator"),
	}
	s.settled()
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	knockers[fleetPod] = knocker{s, "shop-0", "app"}
	knockers[twin] = tenant.knocks("twin", strings.Trim(s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.labels}"), "{}"))

	everybody := slices.Collect(maps.Keys(knockers))
	readers := []string{reader, operatorsOwn, operatorPod}
	shop, redis := s.address("shop-1"), s.address("shop-redis-0")
	manager := operator.must("", "get", "pods", "-l", "app.kubernetes.io/component=operator", "-o", "jsonpath={.items[0].status.podIP}")
	doors := map[string]door{
		"the application's HTTP":   {shop + ":4000", everybody},
		"epmd":                     {shop + ":4369", []string{fleetPod}},
		"Erlang distribution":      {shop + ":9100", []string{fleetPod}},
		"the agent":                {shop + ":9568", readers},
		"the agent's helper":       {shop + ":9569", nil},
		"Redis":                    {redis + ":6379", []string{fleetPod, operatorPod}},
		"the exporter of Redis":    {redis + ":9121", readers},
		"the operator's metrics":   {manager + ":8443", readers},
		"the operator's readiness": {manager + ":8081", []string{operatorsOwn, operatorPod}},
	}
	s.admits(knockers, doors)

	t.Run("k6's API", func(t *testing.T) {
		s := s.in(t)
		s.benchmark("doors", `matrix: {adapters: [Redis], runs: [{users: 5, ttl: 10s, ramp: 2s, duration: 10m}]}
target: {url: "http://shop"}`)
		job := s.running("doors").Runs[0].Runner
		runner := s.must("", "get", "pods", "-l", "livestash.dev/benchmark-test="+job, "-o", "jsonpath={.items[0].status.podIP}")
		s.admits(knockers, map[string]door{"k6's API": {runner + ":6565", []string{operatorPod, impostor}}})
	})

	// What keeps strangers out is the policy, and nothing else: without it each of these ports answers them.
	t.Run("without a policy", func(t *testing.T) {
		s := s.in(t)
		s.apply(spec + "\nnetworkPolicy: {enabled: false}")
		for name := range doors {
			if strings.HasPrefix(name, "the operator's") {
				delete(doors, name)
				continue
			}
			doors[name] = door{doors[name].address, everybody}
		}
		s.admits(knockers, doors)
	})
}

// existing is a namespace that other tests may have, too.
func existing(t *testing.T, name string) space {
	t.Helper()
	s := space{t, name}
	if _, err := s.kubectl("", "get", "namespace", name); err != nil {
		s.must("", "create", "namespace", name)
		t.Cleanup(func() { _, _ = s.kubectl("", "delete", "namespace", name, "--wait=false") })
	}
	return s
}

// knocks makes a pod of that name and with those labels that does nothing by itself.
func (s space) knocks(name, labels string) knocker {
	s.t.Helper()
	s.must(strings.NewReplacer("NAME", name, "IMAGE", s.redisImage(), "LABELS", labels).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {LABELS}}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: knocker
    image: IMAGE
    command: [sleep, infinity]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`), "apply", "-f", "-")
	s.t.Cleanup(func() { _, _ = s.kubectl("", "delete", "pod", name, "--wait=false") })
	s.must("", "wait", "pod/"+name, "--for=condition=Ready", "--timeout=1m")
	return knocker{s, name, "knocker"}
}

func (s space) address(pod string) string {
	s.t.Helper()
	return s.must("", "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
}

// admits checks who gets through which door. A changed policy takes a moment to hold.
func (s space) admits(knockers map[string]knocker, doors map[string]door) {
	s.t.Helper()
	var addresses []string
	for _, name := range slices.Sorted(maps.Keys(doors)) {
		addresses = append(addresses, doors[name].address)
	}
	for who, k := range knockers {
		k.space.t = s.t
		s.eventually(time.Minute, func() error {
			open, err := k.tries(addresses)
			if err != nil {
				return err
			}
			for name, door := range doors {
				if want := slices.Contains(door.open, who); open[door.address] != want {
					return fmt.Errorf("%s is open to %s: %t, and it must be %t", name, who, open[door.address], want)
				}
			}
			return nil
		})
	}
}

// tries connects to all addresses at once, and returns which accept. What a policy closes drops the packets.
func (k knocker) tries(addresses []string) (map[string]bool, error) {
	const script = `for at in "$@"; do (
  timeout 5 bash -c "exec 3<>/dev/tcp/${at%:*}/${at##*:}" 2>/dev/null && echo "open $at" || echo "closed $at"
) & done; wait`
	out, err := k.space.kubectl("", append([]string{"exec", k.pod, "-c", k.container, "--", "bash", "-c", script, "bash"}, addresses...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	open, told := map[string]bool{}, 0
	for line := range strings.Lines(out) {
		is, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.Contains(addresses, at) {
			continue
		}
		told++
		open[at] = is == "open"
	}
	if told != len(addresses) {
		return nil, fmt.Errorf("%s has tried %d of %d addresses: %s", k.pod, told, len(addresses), out)
	}
	return open, nil
}
