package cluster

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

// clusterLink is the end of the connection inside the namespace.
const clusterLink = "eth0"

// slotTaken says which address or route of the machine overlaps with the slot.
func slotTaken(slot int) (string, error) {
	network, _, _ := slotNetwork(slot)
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", fmt.Errorf("list the machine's routes: %w", err)
	}
	for _, route := range routes {
		if route.Dst == nil || isDefault(route.Dst) {
			continue
		}
		if overlap(*route.Dst, network) {
			return fmt.Sprintf("the machine has a route to %s, which overlaps with %s", route.Dst, &network), nil
		}
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", fmt.Errorf("list the machine's addresses: %w", err)
	}
	for _, address := range addresses {
		if overlap(*address.IPNet, network) {
			return fmt.Sprintf("the machine has the address %s, which overlaps with %s", address.IPNet, &network), nil
		}
	}
	return "", nil
}

func isDefault(network *net.IPNet) bool {
	ones, _ := network.Mask.Size()
	return ones == 0
}

func overlap(a, b net.IPNet) bool { return a.Contains(b.IP) || b.Contains(a.IP) }

// connect links the machine with the network namespace of the process. It is safe to repeat.
func (c *Cluster) connect(holder int) error {
	_, machineIP, clusterIP := slotNetwork(c.state.Slot)
	namespace, err := netns.GetFromPid(holder)
	if err != nil {
		return fmt.Errorf("open the cluster's network namespace: %w", err)
	}
	defer func() { _ = namespace.Close() }()
	inside, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return fmt.Errorf("enter the cluster's network namespace: %w", err)
	}
	defer inside.Close()
	outside, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer outside.Close()

	if err := setUp(inside, "lo"); err != nil {
		return err
	}
	_, insideErr := inside.LinkByName(clusterLink)
	if isMissing(insideErr) {
		if err := c.addLink(outside, int(namespace)); err != nil {
			return err
		}
	}
	if err := setAddress(outside, c.linkName(), machineIP, 30); err != nil {
		return err
	}
	if err := setAddress(inside, clusterLink, clusterIP, 30); err != nil {
		return err
	}
	if err := route(inside, clusterIP); err != nil || c.state.Options.ControlPlaneOnly {
		return err
	}
	if c.severalNodes() {
		if err := makeSwitch(inside); err != nil {
			return err
		}
	}
	return c.fence(holder, machineIP)
}

// addLink makes the pair of links, one end directly in the namespace.
func (c *Cluster) addLink(outside *netlink.Handle, namespace int) error {
	// One whose other end went away with its namespace.
	if err := c.removeLink(); err != nil {
		return err
	}
	obstacle, err := slotTaken(c.state.Slot)
	if err != nil {
		return err
	}
	if obstacle != "" {
		return fmt.Errorf("address range taken: %s; run localcluster down --name %s, then up, to get another range", obstacle, c.Name)
	}
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: c.linkName()},
		PeerName:      clusterLink,
		PeerNamespace: netlink.NsFd(namespace),
	}
	if err := outside.LinkAdd(pair); err != nil {
		return fmt.Errorf("make the link %s: %w", c.linkName(), err)
	}
	return nil
}

// removeLink removes the machine's end of the connection, and with it the other one.
func (c *Cluster) removeLink() error {
	link, err := netlink.LinkByName(c.linkName())
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if link.Type() != "veth" {
		return fmt.Errorf("the machine has a link %s of type %s, a name this cluster needs: rename that link or use another --name",
			c.linkName(), link.Type())
	}
	err = netlink.LinkDel(link)
	// The kernel removes it as well, some time after the last process of the namespace ended.
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove the link %s: %w", c.linkName(), err)
	}
	return nil
}

func setUp(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}

func setAddress(handle *netlink.Handle, name string, ip net.IP, prefix int) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(prefix, 32)}}
	if err := handle.AddrReplace(link, address); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	return setUp(handle, name)
}

// route sets the few routes of the namespace. There is no default route on purpose: nothing leaves the namespace, and a
// program that tries learns so at once.
func route(inside *netlink.Handle, clusterIP net.IP) error {
	link, err := inside.LinkByName(clusterLink)
	if err != nil {
		return err
	}
	// Programs of the host itself reach Services too. kube-proxy rewrites the destination, but only of a packet that
	// has a route to begin with.
	services := &netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: mustCIDR(serviceCIDR), Src: clusterIP}
	if err := inside.RouteReplace(services); err != nil {
		return fmt.Errorf("route to the Services: %w", err)
	}
	return nil
}

// fence keeps pods from opening connections to the machine: it would answer through its own default route, to addresses
// that mean something else there. Answers to the machine, as through a node port, pass.
func (c *Cluster) fence(holder int, machineIP net.IP) error {
	path, err := programPath("nft")
	if err != nil {
		return err
	}
	// Made and deleted before it is made anew, in one transaction: the same result however often.
	rules := fmt.Sprintf(`table ip localcluster
delete table ip localcluster
table ip localcluster {
	chain forward {
		type filter hook forward priority filter
		ct state new ip saddr %s ip daddr %s reject with icmp type host-unreachable
	}
}
`, podCIDR, machineIP)
	return daemon.RunInNetwork(holder, func() error {
		command := exec.Command(path, "-f", "-")
		command.Env = c.environment()
		command.Stdin = strings.NewReader(rules)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("keep pods from the machine: nft: %w: %s", err, output)
		}
		return nil
	})
}

func isMissing(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

func mustCIDR(text string) *net.IPNet {
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return network
}
