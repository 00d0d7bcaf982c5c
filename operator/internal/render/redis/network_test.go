package redis

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// somebody is a pod of a namespace.
type somebody struct {
	namespace string
	labels    map[string]string
}

// reaches are the ports of the policy's pods that somebody reaches.
func reaches(t *testing.T, policy *networkingv1.NetworkPolicy, who somebody) []int32 {
	t.Helper()
	var ports []int32
	for _, rule := range policy.Spec.Ingress {
		admitted := len(rule.From) == 0
		for _, peer := range rule.From {
			home := who.namespace == policy.Namespace
			if peer.NamespaceSelector != nil {
				home = selects(t, peer.NamespaceSelector, map[string]string{corev1.LabelMetadataName: who.namespace})
			}
			admitted = admitted || home && (peer.PodSelector == nil || selects(t, peer.PodSelector, who.labels))
		}
		for _, port := range rule.Ports {
			if admitted {
				ports = append(ports, port.Port.IntVal)
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Where NetworkPolicies are enforced: Redis is for its own fleet, for who runs it, and its metrics for the readers.
func TestWhoReachesRedis(t *testing.T) {
	in := rendertest.Inputs
	in.OperatorNamespace, in.Readers = "ops", []string{"monitoring"}
	managed := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{}})
	onVolume := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{}}})
	ofOthers := operated(t, v1alpha1.OperatedRedis{})
	home := managed.Namespace
	redisOperator := func(label string) somebody {
		return somebody{"anywhere", map[string]string{label: "redis-operator"}}
	}
	for name, c := range map[string]struct {
		who                        somebody
		managed, onVolume, operate []int32
	}{
		"a pod of the fleet":               {somebody{home, render.SelectorLabels(managed)}, []int32{6379}, []int32{6379}, []int32{6379}},
		"one that says so, elsewhere":      {somebody{"mallory", render.SelectorLabels(managed)}, nil, nil, nil},
		"a neighbour":                      {somebody{home, map[string]string{"app": "web"}}, nil, nil, nil},
		"the managed Redis itself":         {somebody{home, selectorLabels(managed)}, []int32{6379}, nil, nil},
		"the operator":                     {somebody{"ops", map[string]string{"app.kubernetes.io/name": "livestash-operator"}}, []int32{6379, 9121}, []int32{6379, 9121}, nil},
		"the operator's neighbour":         {somebody{"ops", map[string]string{"app": "web"}}, []int32{9121}, []int32{9121}, nil},
		"Prometheus":                       {somebody{"monitoring", map[string]string{"app.kubernetes.io/name": "prometheus"}}, []int32{9121}, []int32{9121}, nil},
		"a Sentinel":                       {somebody{home, operatedMeta(ofOthers).Labels}, nil, nil, []int32{6379, 26379}},
		"redis-operator, by its chart":     {redisOperator("name"), nil, nil, []int32{6379, 26379}},
		"redis-operator, by the usual one": {redisOperator("app.kubernetes.io/name"), nil, nil, []int32{6379, 26379}},
		"redis-operator, by its bundle":    {redisOperator("control-plane"), nil, nil, []int32{6379, 26379}},
		"another operator":                 {somebody{"anywhere", map[string]string{"name": "k6-operator"}}, nil, nil, nil},
	} {
		got := [][]int32{reaches(t, NetworkPolicy(managed, in), c.who), reaches(t, NetworkPolicy(onVolume, in), c.who), reaches(t, OperatedNetworkPolicy(ofOthers), c.who)}
		if diff := cmp.Diff([][]int32{c.managed, c.onVolume, c.operate}, got); diff != "" {
			t.Errorf("%s reaches managed, on a volume, operated (-want +got):\n%s", name, diff)
		}
	}
	if !selects(t, &OperatedNetworkPolicy(ofOthers).Spec.PodSelector, operatedMeta(ofOthers).Labels) {
		t.Error("the policy is not about what redis-operator makes")
	}
	if policy := OperatedNetworkPolicy(managed); policy != nil {
		t.Errorf("without a Redis of redis-operator there is %s", policy.Name)
	}
	ofOthers.Spec.NetworkPolicy.Enabled = ptr.To(false)
	if policy := OperatedNetworkPolicy(ofOthers); policy != nil {
		t.Errorf("though it is disabled, there is %s", policy.Name)
	}
}

// What a restricted fleet may connect to is its Redis, and that of no other fleet.
func TestEgressIsToTheOwnRedis(t *testing.T) {
	cluster := operated(t, v1alpha1.OperatedRedis{})
	rule := Egress(cluster)
	other := cluster.DeepCopy()
	other.Name = "other"
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"managed":            {selectorLabels(cluster), true},
		"operated":           {operatedMeta(cluster).Labels, true},
		"another's managed":  {selectorLabels(other), false},
		"another's operated": {operatedMeta(other).Labels, false},
		"the fleet":          {render.SelectorLabels(cluster), false},
	} {
		got := slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
			return peer.NamespaceSelector == nil && selects(t, peer.PodSelector, c.labels)
		})
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if len(rule.Ports) != 1 || rule.Ports[0].Port.IntVal != redisPort {
		t.Errorf("the ports are %+v", rule.Ports)
	}
}
