package policy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/livestash-dev/livestash/test/localcluster/internal/nettest"
)

// How long somebody waits for a connection that is to be kept out, and for one that is to come about.
const (
	keptOut = 150 * time.Millisecond
	letIn   = 5 * time.Second
)

// TestRulesHoldPackets makes a node of network namespaces, with pods on one bridge, as kubelets have them, and a pod of another
// node. What the rules say is then tried with real connections.
func TestRulesHoldPackets(t *testing.T) {
	nft, err := exec.LookPath("/usr/sbin/nft")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("needs nft and root")
	}
	ofNode := netip.MustParsePrefix("10.244.0.0/22")
	world := smallWorld()
	node := nettest.New(t)
	must(t, node.Run(func() error {
		for setting, value := range map[string]string{"ipv4/ip_forward": "1", "bridge/bridge-nf-call-iptables": "1"} {
			if err := os.WriteFile("/proc/sys/net/"+setting, []byte(value), 0); err != nil {
				return err
			}
		}
		return nettest.AddLink(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}, "10.244.0.1/22")
	}))
	pods := map[string]nettest.Namespace{}
	for i, pod := range world.Pods {
		pods[pod.Name] = nettest.New(t)
		local := ofNode.Contains(pod.IP)
		must(t, connect(node, fmt.Sprint("pod", i), pods[pod.Name], pod.IP, local))
		pods[pod.Name].Serve(t, "8080", "6379", "4000")
	}
	mustReach := func(t *testing.T, from string, to Pod, port string, want bool) {
		t.Helper()
		sender, patience := pods[from], letIn
		if from == "node" {
			sender = node
		}
		if !want {
			patience = keptOut
		}
		if err := sender.Run(func() error { return nettest.Dial(to.IP.String(), port, patience) }); (err == nil) != want {
			t.Errorf("that %s reaches %s at %s is not %t: %v", from, to.Name, port, want, err)
		}
	}
	write := func(policies string) {
		t.Helper()
		world.Policies = parsePolicies(t, policies)
		guards, err := Compile(world, ofNode)
		must(t, err)
		must(t, node.Run(func() error { return write(context.Background(), nft, Render(guards, ofNode)) }))
	}
	for name, test := range map[string]struct {
		policies string
		// want maps "from to port" to whether that is a way.
		want map[string]bool
	}{
		"nothing": {want: map[string]bool{"stranger web-0 8080": true, "stranger web-1 8080": true, "operator web-0 8080": true}},
		"ingress": {
			policies: `{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress],
				ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 6379}]}, {ports: [{port: http}]}]}}`,
			want: map[string]bool{
				"web-0 redis 6379": true, "web-1 redis 6379": true, "web-0 redis 8080": false, "web-1 redis 8080": false,
				"stranger redis 6379": false, "operator redis 6379": false, "stranger web-0 4000": true, "operator web-0 4000": true,
				"stranger web-0 8080": false, "web-0 web-0 8080": true, "redis stranger 8080": true,
			},
		},
		"egress": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress],
				egress: [{to: [{ipBlock: {cidr: 10.244.0.0/16, except: [10.244.0.14/32]}}], ports: [{port: 8000, endPort: 8090}]}]}}`,
			want: map[string]bool{
				"web-0 redis 8080": true, "web-0 operator 8080": true, "web-0 stranger 8080": false, "web-0 redis 6379": false,
				"stranger web-0 6379": true, "operator web-0 6379": true, "web-0 web-0 6379": true,
			},
		},
		"both": {
			policies: `{namespace: shop, spec: {podSelector: {matchLabels: {app: redis}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}}
---
{namespace: shop, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}}`,
			want: map[string]bool{"web-0 redis 6379": false, "redis redis 6379": true, "stranger redis 6379": false, "redis stranger 8080": true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			write(test.policies)
			for way, want := range test.want {
				var from, to, port string
				if _, err := fmt.Sscan(way, &from, &to, &port); err != nil {
					t.Fatal(err)
				}
				for _, pod := range world.Pods {
					if pod.Name == to {
						mustReach(t, from, pod, port, want)
					}
				}
			}
			// The kubelet and its pods reach each other whatever the rules are.
			for _, pod := range world.Pods {
				if ofNode.Contains(pod.IP) {
					mustReach(t, "node", pod, "8080", true)
				}
			}
		})
	}
	t.Run("a connection that was allowed goes on", func(t *testing.T) {
		write("")
		var connection net.Conn
		must(t, pods["stranger"].Run(func() (err error) {
			connection, err = net.DialTimeout("tcp", "10.244.0.12:6379", time.Second)
			return err
		}))
		defer func() { _ = connection.Close() }()
		write(`{namespace: shop, spec: {podSelector: {}, policyTypes: [Ingress]}}`)
		must(t, nettest.Echo(connection))
		mustReach(t, "stranger", world.Pods[2], "6379", false)
	})
	t.Run("an address that nobody knows", func(t *testing.T) {
		unknown := world.Pods[2]
		world.Pods = append(world.Pods[:2:2], world.Pods[3:]...)
		write("")
		mustReach(t, "stranger", unknown, "6379", false)
		mustReach(t, "operator", unknown, "6379", false)
		mustReach(t, "redis", world.Pods[0], "8080", false)
		mustReach(t, "node", unknown, "6379", true)
	})
}

// connect links the node with that of a pod: through its bridge, or as another node would be.
func connect(n nettest.Namespace, name string, pod nettest.Namespace, ip netip.Addr, local bool) error {
	gateway := "10.244.0.1"
	err := n.Run(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod.Handle)}
		if !local {
			return nettest.AddLink(pair, "10.244.4.1/22")
		}
		bridge, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		pair.MasterIndex = bridge.Attrs().Index
		return nettest.AddLink(pair, "")
	})
	if err != nil {
		return err
	}
	if !local {
		gateway = "10.244.4.1"
		// Two pods of other nodes have a link each, so each has a route.
		err := n.Run(func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(ip)})
		})
		if err != nil {
			return err
		}
	}
	return pod.Run(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := nettest.AddAddress(link, ip.String()+"/22"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
	})
}

func single(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
