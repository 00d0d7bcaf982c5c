package doctor

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// lastLines and lastBytes are how much of a pod's log is read.
	lastLines = int64(300)
	lastBytes = int64(256 << 10)
	// mostLogs is of how many pods a log is read: they run the same release.
	mostLogs = 5
)

// others are the APIs of other operators that a spec may ask for.
var others = []string{"cert-manager.io", "redis.redis.opstreelabs.in", "monitoring.coreos.com"}

// Gather reads what checks look at, as far as the user may. What may not be read is named in Unread; only what the API server cannot
// answer is an error.
func Gather(ctx context.Context, access *kube.Access, c *v1alpha1.LiveStashCluster) (*Facts, error) {
	f := &Facts{Cluster: c, Objects: map[string]Object{}, Agents: map[string]agentclient.Status{}, Logs: map[string][]string{}, Kinds: map[string]bool{}}
	if store.For(c) == nil {
		return f, nil
	}
	g := &gathering{ctx: ctx, access: access, facts: f}
	g.objects()
	g.lists()
	g.kinds()
	if g.err != nil {
		return nil, g.err
	}
	g.pods()
	return f, g.err
}

// gathering goes on when something may not be read, and ends with the first error of another kind.
type gathering struct {
	ctx    context.Context
	access *kube.Access
	facts  *Facts
	err    error
}

// may is whether something was read.
func (g *gathering) may(what string, err error) bool {
	switch {
	case err == nil:
		return g.err == nil
	case kube.Absent(err):
		g.facts.Unread = append(g.facts.Unread, what)
	case g.err == nil:
		g.err = fmt.Errorf("reading %s: %w", what, err)
	}
	return false
}

func (g *gathering) objects() {
	c := g.facts.Cluster
	for _, ref := range fleet.SecretRefs(c) {
		g.object(fleet.SecretReference, ref.Name)
	}
	for _, ref := range c.Spec.ImagePullSecrets {
		g.object(fleet.SecretReference, ref.Name)
	}
	for _, ref := range fleet.References(c) {
		g.object(ref.Kind, ref.Name)
	}
}

// object notes what is known of a ConfigMap or Secret. The values go no further.
func (g *gathering) object(kind, name string) {
	key, known := client.ObjectKey{Namespace: g.facts.Cluster.Namespace, Name: name}, kind+" "+name
	if _, done := g.facts.Objects[known]; done || g.err != nil {
		return
	}
	object := Object{Exists: true, Keys: map[string]Value{}}
	var err error
	if kind == fleet.ConfigMapReference {
		from := &corev1.ConfigMap{}
		err = g.access.Get(g.ctx, key, from)
		for name, value := range from.Data {
			object.Keys[name] = valueOf([]byte(value))
		}
		for name, value := range from.BinaryData {
			object.Keys[name] = valueOf(value)
		}
	} else {
		from := &corev1.Secret{}
		err = g.access.Get(g.ctx, key, from)
		object.Type = from.Type
		for name, value := range from.Data {
			object.Keys[name] = valueOf(value)
		}
	}
	if client.IgnoreNotFound(err) == nil {
		object.Exists = err == nil
		g.facts.Objects[known] = object
		return
	}
	g.may(known, err)
}

func (g *gathering) lists() {
	f := g.facts
	var ingresses networkingv1.IngressList
	if g.list("Ingresses", &ingresses, true) {
		f.Ingresses = ingresses.Items
	}
	var quotas corev1.ResourceQuotaList
	if g.list("ResourceQuotas", &quotas, true) {
		f.Quotas = quotas.Items
	}
	var policies networkingv1.NetworkPolicyList
	if g.list("NetworkPolicies", &policies, true) {
		f.Policies = policies.Items
	}
	var budgets policyv1.PodDisruptionBudgetList
	if g.list("PodDisruptionBudgets", &budgets, true) {
		f.Budgets = budgets.Items
	}
	var autoscalers autoscalingv2.HorizontalPodAutoscalerList
	if g.list("HorizontalPodAutoscalers", &autoscalers, true) {
		f.Autoscalers = autoscalers.Items
	}
	var nodes corev1.NodeList
	if g.list("Nodes", &nodes, false) {
		f.Nodes = nodes.Items
	}
	var classes storagev1.StorageClassList
	if g.list("StorageClasses", &classes, false) {
		f.Classes = classes.Items
		if f.Classes == nil {
			f.Classes = []storagev1.StorageClass{}
		}
	}
}

func (g *gathering) list(what string, into client.ObjectList, namespaced bool) bool {
	var options []client.ListOption
	if namespaced {
		options = append(options, client.InNamespace(g.facts.Cluster.Namespace))
	}
	return g.may(what, g.access.List(g.ctx, into, options...))
}

// kinds asks which APIs the cluster has, and for HTTPRoutes where it has them.
func (g *gathering) kinds() {
	groups, err := g.access.Clientset.Discovery().ServerGroups()
	if !g.may("the cluster's APIs", err) {
		return
	}
	has := map[string]bool{}
	for _, group := range groups.Groups {
		has[group.Name] = true
	}
	for _, name := range others {
		g.facts.Kinds[name] = has[name]
	}
	if has["gateway.networking.k8s.io"] {
		routes := &unstructured.UnstructuredList{}
		routes.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRouteList"})
		if g.list("HTTPRoutes", routes, true) {
			g.facts.Routes = routes.Items
		}
	}
}

// pods asks what runs: the agents, and the applications' logs.
func (g *gathering) pods() {
	f := g.facts
	pods, err := g.access.FleetPods(g.ctx, f.Cluster)
	if !g.may("Pods", err) {
		return
	}
	f.Pods = pods
	if f.Cluster.AgentEnabled() {
		for pod, answer := range g.access.Agents(g.ctx, pods, f.Cluster.Spec.Agent.Port) {
			if answer.Err == nil {
				f.Agents[pod] = answer.Status
				continue
			}
			f.Unread = append(f.Unread, fmt.Sprintf("the agent of %s (%v)", pod, answer.Err))
		}
	}
	for i := range pods[:min(len(pods), mostLogs)] {
		g.log(&pods[i])
	}
	slices.Sort(f.Unread)
}

// log is what an application said last; of one that was started again, what it said before it ended.
func (g *gathering) log(pod *corev1.Pod) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != fleet.AppContainer || status.State.Waiting != nil && status.RestartCount == 0 {
			continue
		}
		lines, bytes := lastLines, lastBytes
		stream, err := g.access.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
			Container: fleet.AppContainer, TailLines: &lines, LimitBytes: &bytes, Previous: status.RestartCount > 0,
		}).Stream(g.ctx)
		if err != nil {
			g.facts.Unread = append(g.facts.Unread, fmt.Sprintf("the log of %s (%v)", pod.Name, err))
			continue
		}
		scanner := bufio.NewScanner(stream)
		scanner.Buffer(nil, int(lastBytes)+1)
		for scanner.Scan() {
			g.facts.Logs[pod.Name] = append(g.facts.Logs[pod.Name], strings.TrimRight(scanner.Text(), "\r"))
		}
		_ = stream.Close()
	}
}
