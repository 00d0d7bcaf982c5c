//go:build integration

package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const stranger = `{"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": %q, "namespace": "other", "labels": {"app": "stranger"}},
	"spec": {"nodeName": %q, "terminationGracePeriodSeconds": 1,
		"containers": [{"name": "probe", "image": %q, "args": ["serve"], "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1}}]}}`

// testPolicies has strangers on two nodes knock at the pods, which policies of several kinds guard. What the kinds mean in full is
// the table of internal/policy; this is whether the rules hold real packets.
func (m *machines) testPolicies() {
	m.kubectl("create", "namespace", "other")
	defer m.kubectl("delete", "namespace", "other", "--wait=false")
	near, far := "stranger-near", "stranger-far"
	for name, node := range map[string]string{near: m.nodes[0], far: m.nodes[1]} {
		m.apply(fmt.Sprintf(stranger, name, node, probeImage))
	}
	m.kubectl("wait", "-n", "other", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
	pods := "http://" + m.ips[0] + ":8080"
	fromPod, fromControlPlane := func() bool { return m.reaches(1, 0) }, func() bool { return m.fromControlPlane("get", pods).err == nil }
	from := func(name, url string) func() bool {
		return func() bool { return m.tryKubectl("exec", "-n", "other", name, "--", "/probe", "get", url).err == nil }
	}
	service := "http://nearest.probe.svc.cluster.local"
	for _, step := range []struct {
		name, policy string
		open, closed map[string]func() bool
	}{
		{
			name: "no policy",
			open: map[string]func() bool{"a pod": fromPod, near: from(near, pods), far: from(far, pods), "the control plane": fromControlPlane},
		},
		{
			name: "only the fleet's own, at a port with a name",
			policy: `{"podSelector": {}, "policyTypes": ["Ingress"],
				"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "probe"}}}], "ports": [{"port": "http"}]}]}`,
			open: map[string]func() bool{"a pod": fromPod},
			closed: map[string]func() bool{
				near: from(near, pods), far: from(far, pods), "a Service": from(near, service), "the control plane": fromControlPlane,
			},
		},
		{
			name: "another port",
			policy: `{"podSelector": {}, "policyTypes": ["Ingress"],
				"ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 8081, "endPort": 8090}]}]}`,
			closed: map[string]func() bool{"a pod": fromPod, near: from(near, pods)},
		},
		{
			name: "a namespace, and the control plane's address",
			policy: `{"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [
				{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}, "podSelector": {"matchLabels": {"app": "stranger"}}},
				{"ipBlock": {"cidr": "10.243.0.0/24", "except": ["10.243.0.10/32"]}}]}]}`,
			open: map[string]func() bool{
				near: from(near, pods), far: from(far, pods), "a Service": from(near, service), "the control plane": fromControlPlane,
			},
			closed: map[string]func() bool{"a pod": fromPod},
		},
		{
			name:   "no way out but to name servers",
			policy: `{"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}`,
			open: map[string]func() bool{
				"a name server": func() bool {
					return m.tryKubectl("exec", "-n", "probe", m.pods[0], "--", "/probe", "a", "nearest").err == nil
				},
				near: from(near, pods),
			},
			closed: map[string]func() bool{"a pod": fromPod},
		},
		{
			name: "no policy again",
			open: map[string]func() bool{"a pod": fromPod, near: from(near, pods)},
		},
	} {
		m.t.Run(step.name, func(t *testing.T) {
			own := *m.lab
			own.t = t
			if step.policy == "" {
				own.kubectl("delete", "networkpolicy", "-n", "probe", "--all")
			} else {
				own.apply(fmt.Sprintf(`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
					"metadata": {"name": "one", "namespace": "probe"}, "spec": %s}`, step.policy))
			}
			for who, reaches := range step.open {
				own.eventually(who+" is let in", func() string {
					if !reaches() {
						return "it is not"
					}
					return ""
				})
			}
			for who, reaches := range step.closed {
				own.eventually(who+" is kept out", func() string {
					if reaches() {
						return "it is not"
					}
					return ""
				})
			}
			// The kubelet reaches its pods whatever the policies say.
			ready := own.kubectl("get", "statefulset", "-n", "probe", "probe", "-o", "jsonpath={.status.readyReplicas}")
			equal(t, "ready pods", ready, "3")
		})
	}
}

// apply gives kubectl an object.
func (l *lab) apply(object string) {
	l.t.Helper()
	command := exec.Command(filepath.Join(l.bin, "kubectl"), "--kubeconfig", l.path("kubeconfig"), "apply", "-f", "-")
	command.Stdin = strings.NewReader(object)
	l.must(run(command))
}
