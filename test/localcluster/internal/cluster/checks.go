package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
	"github.com/livestash-dev/livestash/test/localcluster/internal/policy"
)

// check is one thing a healthy cluster has. missing says what is not there yet, or nothing.
type check struct {
	what    string
	missing func(ctx context.Context) string
}

func (c *Cluster) checks(client kubernetes.Interface) []check {
	checks := []check{
		{"the API server", func(ctx context.Context) string { return missingAPIServer(ctx, client) }},
		{"the controller manager", func(ctx context.Context) string { return missingServiceAccount(ctx, client) }},
	}
	if c.state.Options.ControlPlaneOnly {
		return checks
	}
	for _, n := range c.nodes() {
		checks = append(checks, c.nodeChecks(client, n)...)
	}
	if c.severalNodes() {
		main := c.mainHost()
		checks = append(checks, check{"CoreDNS", func(ctx context.Context) string { return c.missingDNS(ctx, client, main) }})
	}
	return checks
}

// nodeChecks are what a healthy node has.
func (c *Cluster) nodeChecks(client kubernetes.Interface, n node) []check {
	what, dns := "the node", "CoreDNS"
	if !n.alone {
		what, dns = "the node "+n.name, "CoreDNS as seen from "+n.name
	}
	checks := []check{
		{what, func(ctx context.Context) string { return missingNode(ctx, client, n.name) }},
		{n.inText("the kubelet"), func(ctx context.Context) string { return missingPods(ctx, client, n.name) }},
		{dns, func(ctx context.Context) string { return c.missingDNS(ctx, client, c.hostOf(n)) }},
	}
	if c.state.Options.NetworkPolicies {
		checks = append(checks, check{n.inText("the network policies"), func(context.Context) string { return c.missingRules(n) }})
	}
	return checks
}

// missingRules shows that the policies were read and written.
func (c *Cluster) missingRules(n node) string {
	holder, err := c.running(c.hostOf(n))
	if err != nil {
		return err.Error()
	}
	nft, err := programPath("nft")
	if err != nil {
		return err.Error()
	}
	return errorText(daemon.RunInNetwork(holder, func() error {
		output, err := exec.Command(nft, "list", "chain", "ip", policy.Table, "forward").CombinedOutput()
		if err != nil {
			return fmt.Errorf("no rules yet: %w: %s; see %s", err, output, c.logFile(n.role("network-policies")))
		}
		return nil
	}))
}

// missingServiceAccount shows that the controller manager works: without the account, no pod can be made.
func missingServiceAccount(ctx context.Context, client kubernetes.Interface) string {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "it has not made the ServiceAccount default/default yet"
	}
	return errorText(err)
}

func missingNode(ctx context.Context, client kubernetes.Interface, name string) string {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "the kubelet has not registered " + name + " yet"
	}
	if err != nil {
		return err.Error()
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return condition.Message
		}
		return missingUntainted(node)
	}
	return name + " has no condition Ready yet"
}

// missingUntainted names the first taint: a new node keeps the one of a node that is not ready for a moment longer.
func missingUntainted(node *corev1.Node) string {
	if len(node.Spec.Taints) > 0 {
		return "it still has the taint " + node.Spec.Taints[0].Key
	}
	return ""
}

// missingAPIServer says why the API server is not ready, or nothing.
func missingAPIServer(ctx context.Context, client kubernetes.Interface) string {
	answer, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return fmt.Sprintf("%v %s", err, answer)
	}
	return ""
}

// missingPods asks the kubelet itself which pods it has. The condition Ready of its node is no answer to that: it stays
// true for some time after the kubelet ended, and a kubelet that starts knows no pods at first.
func missingPods(ctx context.Context, client kubernetes.Interface, node string) string {
	wanted, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err.Error()
	}
	answer, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("pods").DoRaw(ctx)
	if err != nil {
		return fmt.Sprintf("%v %s", err, answer)
	}
	var got corev1.PodList
	if err := json.Unmarshal(answer, &got); err != nil {
		return err.Error()
	}
	known := map[string]bool{}
	for _, pod := range got.Items {
		known[string(pod.UID)] = true
	}
	for _, pod := range wanted.Items {
		if !known[string(pod.UID)] {
			return fmt.Sprintf("it does not know the pod %s/%s yet", pod.Namespace, pod.Name)
		}
	}
	return ""
}

// missingDNS asks for a name as pods do: that needs CoreDNS, its Service, and kube-proxy on the host.
func (c *Cluster) missingDNS(ctx context.Context, client kubernetes.Interface, h host) string {
	holder, err := c.running(h)
	if err != nil {
		return err.Error()
	}
	err = daemon.RunInNetwork(holder, func() error { return lookUpAPIServer(net.JoinHostPort(dnsIP, "53")) })
	if err == nil {
		return ""
	}
	pods, listErr := client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if listErr != nil {
		return errors.Join(err, listErr).Error()
	}
	for _, pod := range pods.Items {
		for _, container := range pod.Status.ContainerStatuses {
			if waiting := container.State.Waiting; waiting != nil {
				return fmt.Sprintf("pod %s: %s %s", pod.Name, waiting.Reason, waiting.Message)
			}
		}
	}
	return err.Error()
}

// lookUpAPIServer sends one question over the calling thread's network and checks the answer.
func lookUpAPIServer(server string) error {
	name, err := dnsmessage.NewName("kubernetes.default.svc." + clusterDomain + ".")
	if err != nil {
		return err
	}
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := question.Pack()
	if err != nil {
		return err
	}
	connection, err := net.DialTimeout("udp", server, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := connection.Write(packed); err != nil {
		return err
	}
	buffer := make([]byte, 512)
	length, err := connection.Read(buffer)
	if err != nil {
		return fmt.Errorf("no answer from the name server: %w", err)
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(buffer[:length]); err != nil {
		return err
	}
	for _, record := range answer.Answers {
		if address, ok := record.Body.(*dnsmessage.AResource); ok && net.IP(address.A[:]).String() == serviceIP {
			return nil
		}
	}
	return fmt.Errorf("the name server does not know %s yet (%s)", name, answer.RCode)
}
