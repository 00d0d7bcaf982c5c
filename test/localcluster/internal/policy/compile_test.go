package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

var everyNode = netip.MustParsePrefix("10.244.0.0/16")

// The pods of the table: two of a fleet, its Redis, the operator, one of Prometheus, and a stranger. Two have a named port, with
// different numbers.
func smallWorld() World {
	pod := func(namespace, name, app, ip string, ports ...NamedPort) Pod {
		return Pod{Namespace: namespace, Name: name, Labels: labels.Set{"app": app}, IP: netip.MustParseAddr(ip), Ports: ports}
	}
	return World{
		Namespaces: map[string]labels.Set{
			"shop":   {"name": "shop", "team": "shop"},
			"system": {"name": "system"},
			"other":  {"name": "other"},
		},
		Pods: []Pod{
			pod("shop", "web-0", "web", "10.244.0.10", NamedPort{"http", corev1.ProtocolTCP, 4000}),
			pod("shop", "web-1", "web", "10.244.4.11", NamedPort{"http", corev1.ProtocolTCP, 4001}),
			pod("shop", "redis", "redis", "10.244.0.12", NamedPort{"redis", corev1.ProtocolTCP, 6379}),
			pod("system", "operator", "operator", "10.244.4.13"),
			pod("system", "web-2", "web", "10.244.0.15"),
			pod("other", "stranger", "stranger", "10.244.0.14"),
		},
	}
}

// TestWhoReachesWhom has one or more policies in YAML, and for each of some ports the pairs that may talk. All other pairs may not.
func TestWhoReachesWhom(t *testing.T) {
	const all = "everybody"
	for name, test := range map[string]struct {
		policies string
		// want maps PROTOCOL/PORT to lines of "from: to to".
		want map[string]string
	}{
		"no policy": {want: map[string]string{"TCP/80": all, "UDP/53": all}},
		"deny ingress": {
			policies: `{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress]}}`,
			want: map[string]string{"TCP/80": `
				web-0: web-0 operator web-2 stranger
				web-1: web-1 operator web-2 stranger
				redis: redis operator web-2 stranger
				operator: operator web-2 stranger
				web-2: operator web-2 stranger
				stranger: operator web-2 stranger`},
		},
		"deny egress": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}}`,
			want: map[string]string{"TCP/80": `
				web-0: web-0
				web-1: web-1
				redis: ` + everyone + `
				operator: ` + everyone + `
				web-2: ` + everyone + `
				stranger: ` + everyone},
		},
		"pods of the own namespace, at a port": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress],
				ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 6379}]}]}}`,
			want: map[string]string{
				"TCP/6379": only("redis", "web-0", "web-1"),
				"TCP/6380": only("redis"),
				"UDP/6379": only("redis"),
			},
		},
		"a name of a port is each receiver's": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}}`,
			want: map[string]string{
				"TCP/4000": only("web-1"),
				"TCP/4001": only("web-0"),
				"TCP/80":   onlyEach("web-0", "web-1"),
			},
		},
		"a name of a port, for a pod without it": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{ports: [{port: http}]}]}}`,
			want:     map[string]string{"TCP/4000": only("redis"), "TCP/6379": only("redis")},
		},
		"a name of a port of the other protocol": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{ports: [{port: redis, protocol: UDP}]}]}}`,
			want:     map[string]string{"TCP/6379": only("redis"), "UDP/6379": only("redis")},
		},
		"egress to a name of a port": {
			policies: `{namespace: other, spec: {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}}`,
			want: map[string]string{
				"TCP/4000": strangerOnlyTo("web-0"),
				"TCP/4001": strangerOnlyTo("web-1"),
				"TCP/6379": strangerOnlyTo(),
			},
		},
		"a range of ports": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{ports: [{port: 9100, endPort: 9155}]}]}}`,
			want: map[string]string{
				"TCP/9099": only("redis"), "TCP/9100": all, "TCP/9155": all, "TCP/9156": only("redis"), "UDP/9100": only("redis"),
			},
		},
		"a protocol, all ports": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP}]}]}}`,
			want:     map[string]string{"TCP/53": only("redis"), "UDP/53": all},
		},
		"a namespace": {
			policies: `{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {name: system}}}]}]}}`,
			want: map[string]string{"TCP/80": `
				web-0: web-0 operator web-2 stranger
				web-1: web-1 operator web-2 stranger
				redis: redis operator web-2 stranger
				operator: ` + everyone + `
				web-2: ` + everyone + `
				stranger: operator web-2 stranger`},
		},
		"pods of a namespace: both must hold": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress],
				ingress: [{from: [{namespaceSelector: {matchLabels: {name: system}}, podSelector: {matchLabels: {app: web}}}]}]}}`,
			want: map[string]string{"TCP/80": only("redis", "web-2")},
		},
		"two peers: one must hold": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress],
				ingress: [{from: [{namespaceSelector: {matchLabels: {name: system}}}, {podSelector: {matchLabels: {app: web}}}]}]}}`,
			want: map[string]string{"TCP/80": only("redis", "web-0", "web-1", "web-2", "operator")},
		},
		"an empty selector of namespaces means all": {
			policies: `{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}}]}]}}`,
			want:     map[string]string{"TCP/80": all},
		},
		"expressions": {
			policies: `{namespace: shop, spec: {podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}, policyTypes: [Ingress],
				ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}]}]}}`,
			want: map[string]string{"TCP/80": only("redis", "web-0", "web-1")},
		},
		"a range of addresses without some": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress],
				ingress: [{from: [{ipBlock: {cidr: 10.244.0.0/22, except: [10.244.0.14/32]}}]}]}}`,
			want: map[string]string{"TCP/80": only("redis", "web-0", "web-2")},
		},
		"egress to a range of addresses": {
			policies: `{namespace: other, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.244.4.0/22}}], ports: [{port: 80}]}]}}`,
			want:     map[string]string{"TCP/80": strangerOnlyTo("web-1", "operator"), "TCP/81": strangerOnlyTo()},
		},
		"both sides must allow": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}}
---
{namespace: shop, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: 6379}]}]}}`,
			want: map[string]string{
				"TCP/6379": `
				web-0: web-0 web-1 redis
				web-1: web-0 web-1 redis
				redis: ` + everyone + `
				operator: web-0 web-1 operator web-2 stranger
				web-2: web-0 web-1 operator web-2 stranger
				stranger: web-0 web-1 operator web-2 stranger`,
			},
		},
		"policies add up": {
			policies: `{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress]}}
---
{namespace: shop, spec: {podSelector: {}, ingress: [{}]}}`,
			want: map[string]string{"TCP/80": all, "UDP/1": all},
		},
		"types that nobody wrote down: no egress": {
			policies: `{namespace: other, spec: {podSelector: {}}}`,
			want:     map[string]string{"TCP/80": only("stranger")},
		},
		"types that nobody wrote down: egress": {
			policies: `{namespace: other, spec: {podSelector: {}, ingress: [{}], egress: [{ports: [{port: 53, protocol: UDP}]}]}}`,
			want:     map[string]string{"TCP/80": strangerOnlyTo(), "UDP/53": all},
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := smallWorld()
			world.Policies = parsePolicies(t, test.policies)
			guards := mustCompile(t, world)
			for port, want := range test.want {
				if want == all {
					want = only("")
				}
				if diff := cmp.Diff(lines(want), reach(t, world, guards, port)); diff != "" {
					t.Errorf("%s: %s", port, diff)
				}
			}
		})
	}
}

const everyone = "web-0 web-1 redis operator web-2 stranger"

// only says that one pod is reached by nobody but itself and some.
func only(closed string, but ...string) string {
	return pairs(func(from, to string) bool { return to != closed || contains(but, from) })
}

// onlyEach says that some pods are reached by nobody but themselves.
func onlyEach(closed ...string) string {
	return pairs(func(_, to string) bool { return !contains(closed, to) })
}

// strangerOnlyTo says that the stranger reaches nobody but itself and some.
func strangerOnlyTo(but ...string) string {
	return pairs(func(from, to string) bool { return from != "stranger" || contains(but, to) })
}

func contains(list []string, name string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+name+" ")
}

// pairs lists who reaches whom; everybody reaches themselves.
func pairs(allowed func(from, to string) bool) string {
	text := ""
	for _, from := range strings.Fields(everyone) {
		text += from + ":"
		for _, to := range strings.Fields(everyone) {
			if from == to || allowed(from, to) {
				text += " " + to
			}
		}
		text += "\n"
	}
	return text
}

func lines(text string) []string {
	var found []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

// reach lists who reaches whom by the guards.
func reach(t *testing.T, world World, guards map[netip.Addr]Guard, port string) []string {
	t.Helper()
	protocol, number := parsePort(t, port)
	var found []string
	for _, from := range world.Pods {
		line := from.Name + ":"
		for _, to := range world.Pods {
			if passes(guards, from, to, protocol, number) {
				line += " " + to.Name
			}
		}
		found = append(found, line)
	}
	return found
}

func parsePort(t *testing.T, text string) (corev1.Protocol, uint16) {
	t.Helper()
	protocol, number, _ := strings.Cut(text, "/")
	var parsed uint16
	if _, err := fmt.Sscan(number, &parsed); err != nil {
		t.Fatal(err)
	}
	return corev1.Protocol(protocol), parsed
}

// parsePolicies reads documents of YAML with a namespace and a spec.
func parsePolicies(t *testing.T, text string) []*networkingv1.NetworkPolicy {
	t.Helper()
	var found []*networkingv1.NetworkPolicy
	for _, document := range strings.Split(text, "---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var parsed struct {
			Namespace string                         `json:"namespace"`
			Spec      networkingv1.NetworkPolicySpec `json:"spec"`
		}
		// Tabs only make the table readable; YAML takes none.
		if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(document, "\t", " ")), &parsed); err != nil {
			t.Fatal(err)
		}
		policy := &networkingv1.NetworkPolicy{Spec: parsed.Spec}
		policy.Namespace, policy.Name = parsed.Namespace, fmt.Sprint(len(found))
		found = append(found, policy)
	}
	return found
}

// mustCompile returns the guards of all pods, as the nodes together have them.
func mustCompile(t *testing.T, world World) map[netip.Addr]Guard {
	t.Helper()
	guards, err := Compile(world, everyNode)
	if err != nil {
		t.Fatal(err)
	}
	found := map[netip.Addr]Guard{}
	for _, guard := range guards {
		found[guard.Pod.IP] = guard
	}
	return found
}

// passes does with the guards what the rendered rules do with a packet.
func passes(guards map[netip.Addr]Guard, from, to Pod, protocol corev1.Protocol, port uint16) bool {
	if from.IP == to.IP {
		return true
	}
	return allows(guards[from.IP].Egress, to.IP, protocol, port) && allows(guards[to.IP].Ingress, from.IP, protocol, port)
}

func allows(rules *Rules, peer netip.Addr, protocol corev1.Protocol, port uint16) bool {
	if rules == nil {
		return true
	}
	for _, allow := range *rules {
		if allow.means(peer) && allow.hasPort(protocol, port) {
			return true
		}
	}
	return false
}

func (a Allow) hasPort(protocol corev1.Protocol, port uint16) bool {
	if a.AnyPort {
		return true
	}
	for _, ports := range a.Ports {
		if ports.Protocol == protocol && ports.First <= port && port <= ports.Last {
			return true
		}
	}
	return false
}
