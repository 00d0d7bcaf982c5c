package cluster

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/localcluster/internal/pki"
	"github.com/livestash-dev/livestash/test/localcluster/internal/provisioner"
)

func testCluster(t *testing.T) *Cluster {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "one")
	return &Cluster{Name: "one", Dir: dir, BinDir: t.TempDir(), id: "0123abcd", progress: newProgress(&bytes.Buffer{})}
}

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"livestash": true, "a": true, "a-1": true, strings.Repeat("a", 30): true,
		"": false, "-a": false, "a-": false, "A": false, "a/b": false, "..": false, strings.Repeat("a", 31): false,
	} {
		if validName.MatchString(name) != valid {
			t.Errorf("%q is said to be valid: %t", name, !valid)
		}
	}
}

func TestSlotNetworksAreApart(t *testing.T) {
	network, machine, cluster := slotNetwork(0)
	if network.String() != "198.19.0.0/30" || machine.String() != "198.19.0.1" || cluster.String() != "198.19.0.2" {
		t.Errorf("slot 0 is %s with %s and %s", &network, machine, cluster)
	}
	network, machine, cluster = slotNetwork(slots - 1)
	if network.String() != "198.19.255.252/30" || machine.String() != "198.19.255.253" || cluster.String() != "198.19.255.254" {
		t.Errorf("the last slot is %s with %s and %s", &network, machine, cluster)
	}
	for slot := range slots - 1 {
		this, _, _ := slotNetwork(slot)
		next, _, _ := slotNetwork(slot + 1)
		if overlap(this, next) {
			t.Fatalf("%s and %s overlap", &this, &next)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"198.19.0.0/30", "198.19.0.0/16", true},
		{"198.18.0.0/15", "198.19.0.4/30", true},
		{"198.19.0.0/30", "198.19.0.4/30", false},
		{"10.0.0.0/8", "198.19.0.0/30", false},
	} {
		if got := overlap(*mustCIDR(test.a), *mustCIDR(test.b)); got != test.want {
			t.Errorf("%s and %s overlap: %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

func TestNodesHaveTheirOwnAddresses(t *testing.T) {
	c := testCluster(t)
	first, second := mustCIDR(c.node(0).podCIDR), mustCIDR(c.node(1).podCIDR)
	if overlap(*first, *second) {
		t.Errorf("%s and %s overlap", first, second)
	}
	for _, network := range []*net.IPNet{first, second} {
		if !mustCIDR(podCIDR).Contains(network.IP) {
			t.Errorf("%s is not part of %s", network, podCIDR)
		}
	}
	if ones, _ := first.Mask.Size(); 1<<(32-ones)-3 < maxPodsPerNode {
		t.Errorf("%s is too small for %d pods", first, maxPodsPerNode)
	}
}

func TestMissingPackages(t *testing.T) {
	plugins := t.TempDir()
	for _, plugin := range neededPlugins {
		if err := os.WriteFile(filepath.Join(plugins, plugin), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := func(string) bool { return true }
	if problems := missingPackages(all, plugins); len(problems) > 0 {
		t.Errorf("nothing is missing, but: %v", problems)
	}
	if err := os.Remove(filepath.Join(plugins, "portmap")); err != nil {
		t.Fatal(err)
	}
	problems := missingPackages(func(name string) bool { return name != "nft" && name != "ctr" }, plugins)
	if len(problems) != 1 {
		t.Fatalf("%d problems, want 1: %v", len(problems), problems)
	}
	for _, want := range []string{"nft", "ctr", "portmap", "apt-get install containerd containernetworking-plugins nftables"} {
		if !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%q is not in: %v", want, problems[0])
		}
	}
}

func TestMissingBinaries(t *testing.T) {
	c := testCluster(t)
	for _, name := range []string{"localcluster", "kubernetes"} {
		if err := os.WriteFile(c.program(name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if problems := c.missingBinaries(Options{ControlPlaneOnly: true}); len(problems) > 0 {
		t.Errorf("a control plane needs no more, but: %v", problems)
	}
	problems := c.missingBinaries(Options{})
	if len(problems) != 1 || !strings.Contains(problems[0].Error(), "coredns, pause") {
		t.Errorf("got %v", problems)
	}
	if err := os.Chmod(c.program("kubernetes"), 0o644); err != nil {
		t.Fatal(err)
	}
	if problems := c.missingBinaries(Options{ControlPlaneOnly: true}); len(problems) != 1 {
		t.Errorf("a file that cannot be run counts as a program: %v", problems)
	}
}

// The components ignore what they do not know in some versions: a misspelt setting would go unnoticed.
func TestConfigsAreWhatTheProgramsRead(t *testing.T) {
	c := testCluster(t)
	authority, err := pki.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	node := c.node(0)
	var kubelet kubeletv1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(kubeletConfig(node, "group", certificates{authority: authority, kubelets: make([]keyPair, 1)})), &kubelet); err != nil {
		t.Errorf("kubelet: %v", err)
	}
	if kubelet.CgroupRoot != "/group" || kubelet.ClusterDNS[0] != dnsIP || kubelet.EvictionHard["nodefs.available"] != "0%" {
		t.Errorf("kubelet: %+v", kubelet)
	}
	var proxy kubeproxyv1alpha1.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict([]byte(kubeProxyConfig(node.name, "", "/kubeconfig")), &proxy); err != nil {
		t.Errorf("kube-proxy: %v", err)
	}
	if proxy.Mode != "nftables" || *proxy.Conntrack.MaxPerCore != 0 || proxy.ClientConnection.Kubeconfig != "/kubeconfig" {
		t.Errorf("kube-proxy: %+v", proxy)
	}
	if !json.Valid([]byte(cniConfig(node))) {
		t.Errorf("not JSON: %s", cniConfig(node))
	}
}

func TestAddons(t *testing.T) {
	objects, err := addons("registry/coredns:1", Options{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, object := range objects {
		found[object.GetKind()+" "+object.GetName()] = object.Object
	}
	if got := found["StorageClass standard"]["provisioner"]; got != provisioner.Name {
		t.Errorf("the StorageClass has the provisioner %v, want %s", got, provisioner.Name)
	}
	subject := found["ClusterRoleBinding localcluster:provisioner"]["subjects"].([]any)[0].(map[string]any)
	if subject["name"] != provisionerUser {
		t.Errorf("the provisioner's role is given to %v, want %s", subject["name"], provisionerUser)
	}
	spec := found["Service kube-dns"]["spec"].(map[string]any)
	if spec["clusterIP"] != dnsIP {
		t.Errorf("the name server's address is %v, want %s", spec["clusterIP"], dnsIP)
	}
	if found["ClusterRole "+policyUser] != nil {
		t.Error("a role for network policies, which nobody enforces")
	}
	objects, err = addons("registry/coredns:1", Options{Nodes: 3, NetworkPolicies: true})
	if err != nil || !slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetName() == policyUser }) {
		t.Errorf("no role for network policies: %v", err)
	}
	text, err := json.Marshal(found["Deployment coredns"])
	if err != nil || !strings.Contains(string(text), `"image":"registry/coredns:1"`) {
		t.Errorf("no such image (%v): %s", err, text)
	}
}

func TestRolesAreTheProcesses(t *testing.T) {
	for _, options := range []Options{{ControlPlaneOnly: true, Nodes: 1}, {Nodes: 1}, {Nodes: 3}, {Nodes: 2, NetworkPolicies: true}} {
		c := testCluster(t)
		c.state.Options = options
		files := certificates{authority: &pki.Authority{}, kubelets: make([]keyPair, options.Nodes)}
		holders, processes := map[string]bool{c.mainHost().holder: true}, c.controlPlane(files)
		for _, n := range c.nodes() {
			holders[c.hostOf(n).holder] = true
			own, err := c.nodeProcesses(n, files)
			if err != nil {
				t.Skipf("this machine has no containerd: %v", err)
			}
			processes = append(processes, own...)
		}
		if !options.ControlPlaneOnly {
			processes = append(processes, c.lastProcesses()...)
		}
		got := slices.Sorted(maps.Keys(holders))
		for _, process := range processes {
			got = append(got, process.role)
		}
		if diff := cmp.Diff(c.roles(), got); diff != "" {
			t.Errorf("%s: %s", options, diff)
		}
	}
}

func TestOnlySeveralNodesAreApart(t *testing.T) {
	c := testCluster(t)
	c.state.Options.Nodes = 1
	only := c.node(0)
	if c.hostOf(only).group.Name != c.group.Name || !only.ip.Equal(c.apiServerIP()) || only.zone() != "" {
		t.Errorf("the only node has a host of its own: %+v", only)
	}
	c.state.Options.Nodes = 3
	seen := map[string]bool{}
	for _, n := range c.nodes() {
		for _, own := range []string{n.name, n.dir, n.podCIDR, n.ip.String(), n.zone(), c.hostOf(n).group.Name, c.hostOf(n).holder} {
			if seen[own] {
				t.Errorf("two nodes have %q", own)
			}
			seen[own] = true
		}
		if !mustCIDR(nodeCIDR).Contains(n.ip) {
			t.Errorf("%s is not in %s", n.ip, nodeCIDR)
		}
	}
	if _, err := c.nodeNamed("one-3"); err == nil || !strings.Contains(err.Error(), "one-2") {
		t.Errorf("a node that is not there: %v", err)
	}
}

func TestOptions(t *testing.T) {
	c := testCluster(t)
	for _, bad := range []Options{{Nodes: 0}, {Nodes: maxNodes + 1}, {Nodes: 2, ControlPlaneOnly: true}, {Nodes: 1, ControlPlaneOnly: true, NetworkPolicies: true}} {
		if _, err := c.complete(bad); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	if _, err := c.complete(Options{Nodes: 1, AuditLog: "/no/such/folder/log"}); err == nil {
		t.Error("an audit log in no folder was accepted")
	}
	if _, err := c.complete(Options{Nodes: 1, AuditUser: "me"}); err == nil {
		t.Error("a user without an audit log was accepted")
	}
	t.Chdir(t.TempDir())
	got, err := c.complete(Options{Nodes: 1, AuditLog: "log"})
	if err != nil || !filepath.IsAbs(got.AuditLog) {
		t.Errorf("got %+v, error %v", got, err)
	}
	want := "--nodes 1 --control-plane-only --audit-log /log --audit-user me"
	if got := (Options{Nodes: 1, ControlPlaneOnly: true, AuditLog: "/log", AuditUser: "me"}).String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMountsBelow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	content := `1 0 0:1 / / rw - ext4 /dev/vda rw
2 1 0:2 / /state/one/a\040b rw - tmpfs tmpfs rw
3 1 0:3 / /state/one-more rw - tmpfs tmpfs rw
4 1 0:4 / /state/one rw - tmpfs tmpfs rw
`
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := mountsBelow(file, "/state/one")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/state/one/a b", "/state/one"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWait(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	asked := 0
	err := p.wait(context.Background(), "it", time.Minute, func(context.Context) (string, error) {
		asked++
		if asked < 3 {
			return "not yet", nil
		}
		return "", nil
	})
	if err != nil || asked != 3 {
		t.Errorf("asked %d times, error %v", asked, err)
	}
	broken := errors.New("broken")
	if err := p.wait(context.Background(), "it", time.Minute, func(context.Context) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	never := func(context.Context) (string, error) { return "the last thing missing", nil }
	if err := p.wait(context.Background(), "it", time.Millisecond, never); err == nil || !strings.Contains(err.Error(), "the last thing missing") {
		t.Errorf("got %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.wait(cancelled, "it", time.Minute, never); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
}

func TestPortsFree(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := portsFree([]int{port}); err == nil {
		t.Error("a port in use is said to be free")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := portsFree([]int{port}); err != nil {
		t.Error(err)
	}
}

func TestWithoutProxies(t *testing.T) {
	got := withoutProxies([]string{"PATH=/bin", "https_proxy=http://x", "HTTP_PROXY=http://x", "KUBECONFIG=/other", "EMPTY="})
	if diff := cmp.Diff([]string{"PATH=/bin", "EMPTY="}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte("1\n2\n3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for lines, want := range map[int]string{1: "3", 2: "2\n3", 9: "1\n2\n3"} {
		if got := tail(file, lines); got != want {
			t.Errorf("the last %d lines are said to be %q, want %q", lines, got, want)
		}
	}
}

func TestReplaceFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "file")
	if err := replaceFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, past, past); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || time.Since(info.ModTime()) < time.Minute {
		t.Errorf("a file with the same content was written again (%v)", err)
	}
	if err := replaceFile(file, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "two" {
		t.Errorf("content %q, error %v", content, err)
	}
}

// The image's tag is the version of CoreDNS, of which the program has only some plugins.
func TestCoreDNSVersion(t *testing.T) {
	for want, modules := range map[string][]*debug.Module{
		"1.14.7":  {{Path: "k8s.io/client-go", Version: "v0.37.1"}, {Path: "github.com/coredns/coredns", Version: "v1.14.7"}},
		"unknown": {{Path: "k8s.io/client-go", Version: "v0.37.1"}},
	} {
		if got := coreDNSVersion(&buildinfo.BuildInfo{Deps: modules}); got != want {
			t.Errorf("version %q of %v, want %q", got, modules, want)
		}
	}
}
