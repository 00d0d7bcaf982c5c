package cluster

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// switchLink is the bridge in the control plane's network that the cables of several nodes end at.
const switchLink = "nodes"

// switchMAC is its own address: left alone, a bridge takes that of one of its ports, and would change it with them.
var switchMAC = net.HardwareAddr{0x02, 0x4c, 0x43, 0, 0, 1}

// cable is the control plane's end of the node's connection. A cable that is not plugged in leads nowhere.
func (n node) cable() string { return fmt.Sprintf("node-%d", n.index) }

// makeSwitch is safe to repeat.
func makeSwitch(inside *netlink.Handle) error {
	_, err := inside.LinkByName(switchLink)
	if isMissing(err) {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: switchLink, HardwareAddr: switchMAC}}
		err = inside.LinkAdd(bridge)
	}
	if err != nil {
		return fmt.Errorf("make the link %s: %w", switchLink, err)
	}
	ones, _ := mustCIDR(nodeCIDR).Mask.Size()
	return setAddress(inside, switchLink, net.ParseIP(controlPlaneIP), ones)
}

// wire connects the node with the control plane and with all other nodes. It is safe to repeat, and mends what was cut.
func (c *Cluster) wire(n node) error {
	control, err := c.network(c.mainHost())
	if err != nil {
		return err
	}
	defer control.Close()
	own, err := c.network(c.hostOf(n))
	if err != nil {
		return err
	}
	defer own.Close()
	if err := setUp(own.Handle, "lo"); err != nil {
		return err
	}
	if _, err := own.LinkByName(clusterLink); isMissing(err) {
		if err := removeLinkFrom(control.Handle, n.cable()); err != nil {
			return err
		}
		pair := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: n.cable()}, PeerName: clusterLink, PeerNamespace: netlink.NsFd(int(own.namespace)),
		}
		if err := control.LinkAdd(pair); err != nil {
			return fmt.Errorf("make the link %s: %w", n.cable(), err)
		}
	}
	ones, _ := mustCIDR(nodeCIDR).Mask.Size()
	if err := setAddress(own.Handle, clusterLink, n.ip, ones); err != nil {
		return err
	}
	if err := c.routeNode(n, control.Handle, own.Handle); err != nil {
		return err
	}
	return plug(control.Handle, n.cable())
}

// routeNode tells the node where the others' pods and the API server are, and the control plane where the node's are.
func (c *Cluster) routeNode(n node, control, own *netlink.Handle) error {
	if err := route(own, n.ip); err != nil {
		return err
	}
	server, _, _ := slotNetwork(c.state.Slot)
	ways := map[string]net.IP{server.String(): net.ParseIP(controlPlaneIP)}
	for _, other := range c.nodes() {
		if other.index != n.index {
			ways[other.podCIDR] = other.ip
		}
	}
	for destination, gateway := range ways {
		if err := routeVia(own, destination, gateway); err != nil {
			return err
		}
	}
	return routeVia(control, n.podCIDR, n.ip)
}

func routeVia(handle *netlink.Handle, destination string, gateway net.IP) error {
	if err := handle.RouteReplace(&netlink.Route{Dst: mustCIDR(destination), Gw: gateway}); err != nil {
		return fmt.Errorf("route to %s through %s: %w", destination, gateway, err)
	}
	return nil
}

// plug connects a link of the control plane with the switch.
func plug(control *netlink.Handle, name string) error {
	bridge, err := control.LinkByName(switchLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", switchLink, err)
	}
	link, err := control.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := control.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plug %s in: %w", name, err)
	}
	return setUp(control, name)
}

// unplug takes a link from the switch. What comes out of it is for nobody then: the control plane does not even answer
// the question who has one of its addresses. The node notices nothing but the silence.
func unplug(control *netlink.Handle, name string) error {
	link, err := control.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := control.LinkSetARPOff(link); err != nil {
		return fmt.Errorf("silence %s: %w", name, err)
	}
	if err := control.LinkSetNoMaster(link); err != nil {
		return fmt.Errorf("unplug %s: %w", name, err)
	}
	return nil
}

// removeLinkFrom removes a link, and with it its other end. It is no error when there is none.
func removeLinkFrom(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err == nil {
		err = handle.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove the link %s: %w", name, err)
	}
	return nil
}

// network is a handle on the links and routes of a host.
type network struct {
	*netlink.Handle
	namespace netns.NsHandle
}

func (c *Cluster) network(h host) (network, error) {
	holder, err := c.running(h)
	if err != nil {
		return network{}, err
	}
	namespace, err := netns.GetFromPid(holder)
	if err != nil {
		return network{}, fmt.Errorf("open a network namespace: %w", err)
	}
	handle, err := netlink.NewHandleAt(namespace)
	if err != nil {
		_ = namespace.Close()
		return network{}, fmt.Errorf("enter a network namespace: %w", err)
	}
	return network{handle, namespace}, nil
}

// Close gives the handle back.
func (n network) Close() {
	n.Handle.Close()
	_ = n.namespace.Close()
}
