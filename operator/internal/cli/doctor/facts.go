// Package doctor looks for what is wrong with a fleet before a pod rolls: in its spec, in what that names, in what stands before it
// and in what its pods say. Each check is a pure function of facts.
package doctor

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// Facts are what checks look at. What could not be read is not in them, and is named in Unread.
type Facts struct {
	Cluster *v1alpha1.LiveStashCluster
	// Refused is what the API server says of the spec. Empty: it takes it.
	Refused string

	// Objects are the ConfigMaps and Secrets that the spec names, by kind and name ("Secret shop-env").
	Objects map[string]Object

	Pods   []corev1.Pod
	Agents map[string]agentclient.Status
	// Logs are the last lines of each pod's application.
	Logs map[string][]string

	Ingresses   []networkingv1.Ingress
	Routes      []unstructured.Unstructured
	Quotas      []corev1.ResourceQuota
	Policies    []networkingv1.NetworkPolicy
	Budgets     []policyv1.PodDisruptionBudget
	Autoscalers []autoscalingv2.HorizontalPodAutoscaler
	// Nodes and Classes are nil when they may not be read.
	Nodes   []corev1.Node
	Classes []storagev1.StorageClass
	// Kinds are those of other operators that the cluster has or not, by the name of their API ("cert-manager.io"). Missing: not known.
	Kinds map[string]bool

	// Unread is what could not be read.
	Unread []string
}

// Object is what is known of a ConfigMap or Secret: never a value.
type Object struct {
	// Exists is whether it is there.
	Exists bool
	// Type is a Secret's.
	Type corev1.SecretType
	Keys map[string]Value
}

// Value is what is known of a value.
type Value struct {
	Bytes int
	// Break is whether it ends with a line break, Control whether there is another control character in it.
	Break, Control bool
}

func valueOf(data []byte) Value {
	v := Value{Bytes: len(data)}
	for i, b := range data {
		switch {
		case b >= ' ' && b != 0x7f:
		case i == len(data)-1 && b == '\n':
			v.Break = true
		default:
			v.Control = true
		}
	}
	return v
}

// Severity is how bad a finding is.
type Severity string

const (
	// Broken says that pods do not start, or users cannot connect, or lose their state.
	Broken Severity = "Broken"
	// Risky says that it goes well until something happens.
	Risky Severity = "Risky"
)

// Finding is one thing that is wrong.
type Finding struct {
	// Check names the check, for scripts.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Wrong says what, Change what to do.
	Wrong  string `json:"wrong"`
	Change string `json:"change"`
}

// check is what is looked for, and its name.
type check struct {
	name string
	look func(*Facts) []Finding
}

// checks are all that there are, in the order of the report. The first asks nothing of the spec.
var checks = []check{
	{"spec-refused", specRefused},
	{"secret-missing", secretMissing},
	{"secret-value", secretValue},
	{"reference-missing", referenceMissing},
	{"pull-secret", pullSecret},
	{"contract-variable", contractVariable},
	{"tag-moves", tagMoves},
	{"host", host},
	{"ingress-backend", ingressBackend},
	{"proxy-timeout", proxyTimeout},
	{"quota", quota},
	{"memory-limit", memoryLimit},
	{"no-peer", noPeer},
	{"agent-off", agentOff},
	{"ttl", ttl},
	{"spread", spread},
	{"storage-class", storageClass},
	{"operator-missing", operatorMissing},
	{"autoscaler", autoscaler},
	{"disruption-budget", disruptionBudget},
	{"egress", egress},
	{"node-name", nodeName},
	{"adapter", adapter},
	{"log", logLines},
}

// Names are those of all checks.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// checksOf are those that can be made. Without an adapter that there is, the fleet would have no pods to look at: the API server refuses it.
func checksOf(c *v1alpha1.LiveStashCluster) []check {
	if store.For(c) == nil {
		return checks[:1]
	}
	return checks
}

// Examine is everything that is wrong, the worst first.
func Examine(facts *Facts) []Finding {
	broken, risky := []Finding{}, []Finding{}
	for _, c := range checksOf(facts.Cluster) {
		for _, finding := range c.look(facts) {
			finding.Check = c.name
			if finding.Severity == Broken {
				broken = append(broken, finding)
				continue
			}
			risky = append(risky, finding)
		}
	}
	return append(broken, risky...)
}

func broken(wrong, change string) Finding {
	return Finding{Severity: Broken, Wrong: wrong, Change: change}
}

func risky(wrong, change string) Finding {
	return Finding{Severity: Risky, Wrong: wrong, Change: change}
}
