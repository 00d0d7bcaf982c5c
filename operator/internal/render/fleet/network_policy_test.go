package fleet

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// anybody, and the fleet's own pods, in the tests of what is open to whom.
const (
	anybody  = "anybody"
	ownFleet = "the fleet"
)

// opened is each rule of the policy: its ports, and who may reach them.
func opened(policy *networkingv1.NetworkPolicy) []rule {
	var rules []rule
	for _, ingress := range policy.Spec.Ingress {
		var now rule
		for _, port := range ingress.Ports {
			now.Ports = append(now.Ports, port.Port.IntVal)
		}
		for _, peer := range ingress.From {
			now.From = append(now.From, admitted(peer)...)
		}
		if ingress.From == nil {
			now.From = []string{anybody}
		}
		rules = append(rules, now)
	}
	return rules
}

type rule struct {
	Ports []int32
	From  []string
}

func admitted(peer networkingv1.NetworkPolicyPeer) []string {
	if peer.NamespaceSelector == nil {
		return []string{ownFleet}
	}
	var namespaces []string
	for _, want := range peer.NamespaceSelector.MatchExpressions {
		if want.Key == "kubernetes.io/metadata.name" && want.Operator == metav1.LabelSelectorOpIn {
			namespaces = append(namespaces, want.Values...)
		}
	}
	return namespaces
}

// Ports of pods of another template stay open until the last of them is gone.
func TestNetworkPolicy(t *testing.T) {
	http, nodes := rule{[]int32{4000}, []string{anybody}}, rule{[]int32{4369, 9100}, []string{ownFleet}}
	held := render.Ports{HTTP: []int32{4000, 4100}, Agent: []int32{9600}, Distribution: []int32{9200}}
	cases := map[string]struct {
		operator string
		readers  []string
		noAgent  bool
		held     render.Ports
		want     []rule
	}{
		"one reader":                    {"ops", []string{"monitoring"}, false, render.Ports{}, []rule{http, {[]int32{9568}, []string{"monitoring", "ops"}}, nodes}},
		"several, and the operator":     {"ops", []string{"z", "ops", "a"}, false, render.Ports{}, []rule{http, {[]int32{9568}, []string{"a", "ops", "z"}}, nodes}},
		"no reader":                     {"ops", nil, false, render.Ports{}, []rule{http, {[]int32{9568}, []string{"ops"}}, nodes}},
		"all namespaces":                {"ops", []string{"monitoring", "*"}, false, render.Ports{}, []rule{http, {[]int32{9568}, []string{anybody}}, nodes}},
		"an operator who knows not his": {"", []string{"monitoring"}, false, render.Ports{}, []rule{http, {[]int32{9568}, []string{anybody}}, nodes}},
		"no agent":                      {"ops", []string{"monitoring"}, true, render.Ports{}, []rule{http, nodes}},
		"ports of before": {"ops", nil, false, held, []rule{
			{[]int32{4000, 4100}, []string{anybody}}, {[]int32{9568, 9600}, []string{"ops"}}, {[]int32{4369, 9100, 9200}, []string{ownFleet}},
		}},
		"ports of before, the agent's too": {"ops", nil, true, held, []rule{
			{[]int32{4000, 4100}, []string{anybody}}, {[]int32{9600}, []string{"ops"}}, {[]int32{4369, 9100, 9200}, []string{ownFleet}},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, in := rendertest.Cluster(t, "smallest"), rendertest.Inputs
			cluster.Spec.Agent.Enabled = ptr.To(!c.noAgent)
			in.OperatorNamespace, in.Readers, in.HeldPorts = c.operator, c.readers, c.held
			if diff := cmp.Diff(c.want, opened(NetworkPolicy(cluster, in))); diff != "" {
				t.Errorf("what is open to whom (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("disabled", func(t *testing.T) {
		cluster := rendertest.Cluster(t, "smallest")
		cluster.Spec.NetworkPolicy.Enabled = ptr.To(false)
		if policy := NetworkPolicy(cluster, rendertest.Inputs); policy != nil {
			t.Errorf("got %v, want none", policy)
		}
	})
}

// Restricted pods reach DNS, each other and their Redis, and what the user allows. What is open to them does not change by that.
func TestEgress(t *testing.T) {
	cluster, in := rendertest.Cluster(t, "smallest"), rendertest.Inputs
	in.HeldPorts = render.Ports{Distribution: []int32{9200}}
	free := NetworkPolicy(cluster, in)
	if len(free.Spec.PolicyTypes) != 1 || free.Spec.Egress != nil {
		t.Errorf("a fleet that asks for nothing may connect to %v", free.Spec.Egress)
	}
	database := networkingv1.NetworkPolicyEgressRule{Ports: render.PolicyPorts(5432)}
	cluster.Spec.NetworkPolicy.Egress = &v1alpha1.EgressSpec{Allow: []networkingv1.NetworkPolicyEgressRule{database}}
	policy := NetworkPolicy(cluster, in)
	if diff := cmp.Diff([]networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(free.Spec.Ingress, policy.Spec.Ingress); diff != "" {
		t.Errorf("what is open changes (-want +got):\n%s", diff)
	}
	type open struct {
		Ports []string
		To    int
	}
	var got []open
	for _, rule := range policy.Spec.Egress {
		now := open{To: len(rule.To)}
		for _, port := range rule.Ports {
			now.Ports = append(now.Ports, fmt.Sprint(*port.Protocol, " ", port.Port.IntVal))
		}
		got = append(got, now)
	}
	want := []open{{[]string{"UDP 53", "TCP 53"}, 0}, {[]string{"TCP 4369", "TCP 9100", "TCP 9200"}, 1}, {[]string{"TCP 6379"}, 2}, {[]string{"TCP 5432"}, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the pods may connect to (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(render.Selector(cluster), policy.Spec.Egress[1].To[0].PodSelector); diff != "" {
		t.Errorf("the peers (-want +got):\n%s", diff)
	}
}
