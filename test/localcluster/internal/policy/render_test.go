package policy

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRender(t *testing.T) {
	world := smallWorld()
	world.Policies = parsePolicies(t, `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: redis}, {port: 9100, endPort: 9155}]}],
		egress: [{}]}}`)
	guards, err := Compile(world, netip.MustParsePrefix("10.244.0.0/22"))
	if err != nil {
		t.Fatal(err)
	}
	want := `table ip localcluster-policies
delete table ip localcluster-policies
table ip localcluster-policies {
	chain forward {
		type filter hook forward priority 10; policy accept;
		ct state established,related accept
		ip saddr 10.244.0.0/22 ip saddr != { 10.244.0.10, 10.244.0.12, 10.244.0.15, 10.244.0.14 } drop
		ip saddr vmap { 10.244.0.12 : jump egress_10.244.0.12 }
		ip daddr 10.244.0.0/22 ip daddr != { 10.244.0.10, 10.244.0.12, 10.244.0.15, 10.244.0.14 } drop
		ip daddr vmap { 10.244.0.12 : jump ingress_10.244.0.12 }
	}
	chain egress_10.244.0.12 { # shop/redis
		ip daddr 10.244.0.12 return
		return
		drop
	}
	chain ingress_10.244.0.12 { # shop/redis
		ip saddr 10.244.0.12 return
		ip saddr 10.0.0.0/8 ip saddr != 10.1.0.0/16 tcp dport 6379 return
		ip saddr 10.0.0.0/8 ip saddr != 10.1.0.0/16 tcp dport 9100-9155 return
		ip saddr { 10.244.0.10, 10.244.4.11 } tcp dport 6379 return
		ip saddr { 10.244.0.10, 10.244.4.11 } tcp dport 9100-9155 return
		drop
	}
}
`
	if diff := cmp.Diff(want, Render(guards, netip.MustParsePrefix("10.244.0.0/22"))); diff != "" {
		t.Error(diff)
	}
}

// Whatever the policies are, nft takes the rules.
func TestNftTakesTheRules(t *testing.T) {
	nft, err := exec.LookPath("/usr/sbin/nft")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs nft and root")
	}
	rules := []string{Render(nil, everyNode)}
	for seed := range uint64(20) {
		guards := mustCompile(t, randomWorld(rand.New(rand.NewPCG(seed, 2))))
		rules = append(rules, Render(values(guards), everyNode))
	}
	for _, text := range rules {
		check := exec.Command(nft, "--check", "-f", "-")
		check.Stdin = strings.NewReader(text)
		if output, err := check.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s in\n%s", err, output, text)
		}
	}
}

func TestFromAPI(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{PodIP: "10.244.0.2"}}
		p.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "side", Protocol: "TCP", ContainerPort: 1}}}}
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", Protocol: "TCP", ContainerPort: 2}, {ContainerPort: 3}}}}
		change(p)
		return p
	}
	got, ok := FromAPI(pod(func(*corev1.Pod) {}))
	if diff := cmp.Diff([]NamedPort{{"side", "TCP", 1}, {"http", "TCP", 2}}, got.Ports); !ok || diff != "" {
		t.Errorf("an address of its own: %t; %s", ok, diff)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"no address":          func(p *corev1.Pod) { p.Status.PodIP = "" },
		"the node's network":  func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"ended":               func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"ended with an error": func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		if _, ok := FromAPI(pod(change)); ok {
			t.Errorf("%s: has an address of its own", name)
		}
	}
}

func TestAnAddressBelongsToTheYoungerPod(t *testing.T) {
	world := smallWorld()
	successor := world.Pods[0]
	successor.Name, successor.Born = "successor", successor.Born.Add(1)
	world.Pods = append(world.Pods, successor)
	world.sort()
	if len(world.Pods) != 6 || world.Pods[0].Name != "successor" {
		t.Errorf("got %+v", world.Pods)
	}
}
