package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// release is about what a Phoenix release takes with no user there.
var release = resource.MustParse("128Mi")

// defaultKeep is spec.drain.keepBytes when it is not set.
var defaultKeep = resource.MustParse("256Mi")

// memoryLimit is whether a pod has room for the stashes that it may have to keep.
func memoryLimit(f *Facts) []Finding {
	c := f.Cluster
	limit, is := c.Spec.Resources.Limits[corev1.ResourceMemory]
	if !is || !inMemory(c) {
		return nil
	}
	var found []Finding
	keep := defaultKeep
	if c.Spec.Drain.KeepBytes != nil {
		keep = *c.Spec.Drain.KeepBytes
	}
	need := release.DeepCopy()
	need.Add(keep)
	if c.AgentEnabled() && limit.Cmp(need) < 0 {
		found = append(found, risky(fmt.Sprintf("spec.resources.limits.memory is %s, and a pod may keep %s of stashes for hidden tabs (spec.drain.keepBytes) beside what the release takes: it is killed when it does, with all that it holds.", limit.String(), keep.String()),
			fmt.Sprintf("Raise the limit to %s or more, or set spec.drain.keepBytes lower.", need.String())))
	}
	if held := f.heldElsewhere(); held > 0 && held > limit.Value()/2 {
		found = append(found, risky(fmt.Sprintf("The pods hold %d MiB of stashes, and each may take %s: when one goes, the others have hardly room for its.", held>>20, limit.String()),
			"Raise spec.resources.limits.memory, or spec.replicas."))
	}
	return found
}

// heldElsewhere is how many bytes of stashes a pod has when one of the others is gone, as the agents count.
func (f *Facts) heldElsewhere() int64 {
	sum, most := int64(0), int64(0)
	for _, status := range f.Agents {
		sum += status.StashBytes
		most = max(most, status.StashBytes)
	}
	if f.Cluster.Spec.Adapter == v1alpha1.AdapterMnesia || len(f.Agents) < 2 {
		return most
	}
	return sum / int64(len(f.Agents)-1)
}

// quota is whether the fleet fits into the namespace, with the pod more that a rollout may need.
func quota(f *Facts) []Finding {
	c := f.Cluster
	missing := int64(c.DesiredReplicas()) - int64(len(f.Pods))
	surge := c.Spec.Rollout.Surge
	if surge == v1alpha1.SurgeAlways || surge == v1alpha1.SurgeStays || c.DesiredReplicas() == 1 && surge != v1alpha1.SurgeNever {
		missing = max(missing, int64(c.DesiredReplicas())+1-int64(len(f.Pods)))
	}
	if missing <= 0 {
		return nil
	}
	var found []Finding
	for i := range f.Quotas {
		if names := short(&f.Quotas[i], c, missing); len(names) > 0 {
			found = append(found, broken(fmt.Sprintf("The quota %s has no room for %s more (%s), with the additional one that a rollout may need.",
				f.Quotas[i].Name, text.Count(missing, "pod", "pods"), strings.Join(names, ", ")), "Raise the quota, ask for less in spec.resources, or lower spec.replicas. See docs/how-to/quotas.md."))
		}
	}
	return found
}

// short are the resources of a quota that so many pods would exceed.
func short(quota *corev1.ResourceQuota, c *v1alpha1.LiveStashCluster, pods int64) []string {
	var names []string
	for name, hard := range quota.Status.Hard {
		each, counts := perPod(string(name), c)
		if !counts {
			continue
		}
		needed := quota.Status.Used[name]
		needed = needed.DeepCopy()
		for range pods {
			needed.Add(each)
		}
		if needed.Cmp(hard) > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// perPod is how much of a quota's resource a pod takes.
func perPod(name string, c *v1alpha1.LiveStashCluster) (resource.Quantity, bool) {
	if name == "pods" || name == "count/pods" {
		return resource.MustParse("1"), true
	}
	requests, limits := c.Spec.Resources.Requests, c.Spec.Resources.Limits
	resourceName, isLimit := strings.CutPrefix(name, "limits.")
	resourceName, isRequest := strings.CutPrefix(resourceName, "requests.")
	if isLimit {
		each, is := limits[corev1.ResourceName(resourceName)]
		return each, is
	}
	each, is := requests[corev1.ResourceName(resourceName)]
	if !is { // a limit is the request too, when there is none
		each, is = limits[corev1.ResourceName(resourceName)]
	}
	return each, is && (isRequest || resourceName == "cpu" || resourceName == "memory")
}

// spread is whether every pod may have a node of its own, when the spec insists on it, and whether any node will do.
func spread(f *Facts) []Finding {
	c := f.Cluster
	if f.Nodes == nil {
		return nil
	}
	selector := nodeSelector(c)
	fit := 0
	for i := range f.Nodes {
		if !f.Nodes[i].Spec.Unschedulable && selector.Matches(labels.Set(f.Nodes[i].Labels)) {
			fit++
		}
	}
	if fit == 0 && len(f.Nodes) > 0 {
		return []Finding{broken(fmt.Sprintf("No node that is not cordoned has the labels of podTemplate.spec.nodeSelector (%s): pods stay Pending.", selector), "Label a node, or correct the selector.")}
	}
	return nil
}

func nodeSelector(c *v1alpha1.LiveStashCluster) labels.Selector {
	if c.Spec.PodTemplate == nil {
		return labels.Everything()
	}
	return labels.SelectorFromSet(overrideOf(c).NodeSelector)
}

func storageClass(f *Facts) []Finding {
	redis := f.Cluster.Spec.Redis
	if f.Classes == nil || redis == nil || redis.Managed == nil || redis.Managed.Persistence == nil {
		return nil
	}
	if want := redis.Managed.Persistence.StorageClassName; want != nil && *want != "" {
		for i := range f.Classes {
			if f.Classes[i].Name == *want {
				return nil
			}
		}
		return []Finding{broken(fmt.Sprintf("redis.managed.persistence names the StorageClass %s, which does not exist.", *want), "Name one of `kubectl get storageclass`.")}
	}
	for i := range f.Classes {
		if f.Classes[i].Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return nil
		}
	}
	return []Finding{broken("redis.managed.persistence needs a volume, and no StorageClass is the default one.", "Name one in redis.managed.persistence.storageClassName.")}
}

// operatorMissing are other operators that the spec asks for.
func operatorMissing(f *Facts) []Finding {
	c := f.Cluster
	var found []Finding
	lacks := func(api string) bool {
		has, known := f.Kinds[api]
		return known && !has
	}
	if c.Spec.Clustering.TLS.IssuerRef != nil && lacks("cert-manager.io") {
		found = append(found, broken("clustering.tls.issuerRef needs cert-manager, which this cluster does not have.", "Install cert-manager, or remove issuerRef: the operator then makes the certificates itself."))
	}
	if c.Spec.Redis != nil && c.Spec.Redis.Operator != nil && lacks("redis.redis.opstreelabs.in") {
		found = append(found, broken("redis.operator needs redis-operator, which this cluster does not have.", "Install redis-operator, or use redis.managed."))
	}
	if c.Spec.Monitoring.PodMonitor.Enabled && lacks("monitoring.coreos.com") {
		found = append(found, risky("monitoring.podMonitor needs prometheus-operator, which this cluster does not have.", "Install it, or remove monitoring.podMonitor."))
	}
	return found
}

// autoscaler is one that scales the StatefulSet, which the operator sets back.
func autoscaler(f *Facts) []Finding {
	var found []Finding
	for i := range f.Autoscalers {
		target := f.Autoscalers[i].Spec.ScaleTargetRef
		if target.Kind == "StatefulSet" && target.Name == f.Cluster.Name {
			found = append(found, broken(fmt.Sprintf("The HorizontalPodAutoscaler %s scales the StatefulSet, and the operator sets that back.", f.Autoscalers[i].Name),
				fmt.Sprintf("Let its scaleTargetRef name apiVersion %s, kind LiveStashCluster, name %s.", v1alpha1.GroupVersion, f.Cluster.Name)))
		}
	}
	return found
}

// disruptionBudget is a second one over the same pods, with which no eviction is allowed at all.
func disruptionBudget(f *Facts) []Finding {
	var found []Finding
	for i := range f.Budgets {
		budget := &f.Budgets[i]
		if budget.Spec.Selector == nil || budget.Labels[render.ClusterLabel] == f.Cluster.Name || !selects(budget.Spec.Selector, labels.Set(render.SelectorLabels(f.Cluster))) {
			continue
		}
		found = append(found, broken(fmt.Sprintf("The PodDisruptionBudget %s is for the fleet's pods too: Kubernetes evicts no pod that two of them are for, so node drains hang.", budget.Name),
			"Delete it, or set spec.disruptionBudget.enabled: false."))
	}
	return found
}
