package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Table is the name of everything that this package has in nftables.
const Table = "localcluster-policies"

// Render writes the guards of a node as one transaction for nft: the same result however often, and no moment without rules.
//
// Addresses of the node's range that no known pod has reach nobody and are reached by nobody but the node: so a pod that was
// just started has no network before its policies have.
func Render(guards []Guard, ofNode netip.Prefix) string {
	var out strings.Builder
	fmt.Fprintf(&out, "table ip %[1]s\ndelete table ip %[1]s\ntable ip %[1]s {\n", Table)
	out.WriteString("\tchain forward {\n\t\ttype filter hook forward priority 10; policy accept;\n\t\tct state established,related accept\n")
	var known, leaving, coming []string
	for _, guard := range guards {
		ip := guard.Pod.IP.String()
		known = append(known, ip)
		if guard.Egress != nil {
			leaving = append(leaving, fmt.Sprintf("%s : jump egress_%[1]s", ip))
		}
		if guard.Ingress != nil {
			coming = append(coming, fmt.Sprintf("%s : jump ingress_%[1]s", ip))
		}
	}
	for _, side := range []struct {
		address string
		guarded []string
	}{{"saddr", leaving}, {"daddr", coming}} {
		fmt.Fprintf(&out, "\t\tip %s %s%s drop\n", side.address, ofNode, except("ip "+side.address, known))
		if len(side.guarded) > 0 {
			fmt.Fprintf(&out, "\t\tip %s vmap { %s }\n", side.address, strings.Join(side.guarded, ", "))
		}
	}
	out.WriteString("\t}\n")
	for _, guard := range guards {
		if guard.Egress != nil {
			writeChain(&out, "egress", "daddr", guard.Pod, *guard.Egress)
		}
		if guard.Ingress != nil {
			writeChain(&out, "ingress", "saddr", guard.Pod, *guard.Ingress)
		}
	}
	out.WriteString("}\n")
	return out.String()
}

// writeChain writes the rules of one direction of a pod; address is the other side's. What a rule allows returns: the packet
// may have the other direction of another pod still before it.
func writeChain(out *strings.Builder, direction, address string, pod Pod, rules Rules) {
	fmt.Fprintf(out, "\tchain %s_%s { # %s/%s\n", direction, pod.IP, pod.Namespace, pod.Name)
	// Nobody can keep a pod from itself.
	lines := []string{fmt.Sprintf("ip %s %s", address, pod.IP)}
	for _, allow := range rules {
		for _, peers := range peerMatches("ip "+address, allow) {
			for _, ports := range portMatches(allow) {
				lines = append(lines, strings.TrimSpace(peers+" "+ports))
			}
		}
	}
	for _, line := range lines {
		fmt.Fprintf(out, "\t\t%s\n", strings.TrimSpace(line+" return"))
	}
	out.WriteString("\t\tdrop\n\t}\n")
}

// peerMatches are the expressions of which one must hold for the other side's address.
func peerMatches(address string, allow Allow) []string {
	if allow.Anybody {
		return []string{""}
	}
	var single, matches []string
	for _, block := range allow.Peers {
		if block.Range.IsSingleIP() {
			single = append(single, block.Range.Addr().String())
			continue
		}
		if !block.Range.Addr().Is4() {
			// Pods have no such addresses.
			continue
		}
		var without []string
		for _, part := range block.Except {
			without = append(without, part.String())
		}
		matches = append(matches, fmt.Sprintf("%s %s%s", address, block.Range, exceptEach(address, without)))
	}
	if len(single) > 0 {
		slices.Sort(single)
		matches = append(matches, fmt.Sprintf("%s { %s }", address, strings.Join(slices.Compact(single), ", ")))
	}
	return matches
}

// except leaves out single addresses.
func except(address string, without []string) string {
	if len(without) == 0 {
		return ""
	}
	return fmt.Sprintf(" %s != { %s }", address, strings.Join(without, ", "))
}

// exceptEach leaves out ranges, which may overlap.
func exceptEach(address string, without []string) string {
	text := ""
	for _, part := range without {
		text += fmt.Sprintf(" %s != %s", address, part)
	}
	return text
}

// portMatches are the expressions of which one must hold for the receiver's port.
func portMatches(allow Allow) []string {
	if allow.AnyPort {
		return []string{""}
	}
	var matches []string
	for _, ports := range allow.Ports {
		numbers := fmt.Sprint(ports.First)
		if ports.Last != ports.First {
			numbers = fmt.Sprintf("%d-%d", ports.First, ports.Last)
		}
		matches = append(matches, fmt.Sprintf("%s dport %s", strings.ToLower(string(ports.Protocol)), numbers))
	}
	return matches
}
