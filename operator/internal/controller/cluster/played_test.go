package cluster

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// What the StatefulSet controller, the kubelet and the agents would do, a test does itself, step by step.

func fleetSet(t *testing.T, cluster *v1alpha1.LiveStashCluster) *appsv1.StatefulSet {
	t.Helper()
	return await(t, cluster.Namespace, cluster.Name, &appsv1.StatefulSet{})
}

// fleetPod makes a pod of the template that the StatefulSet has now, and calls that revision so. It is on a node, which must say
// that it has stopped before it is gone.
func fleetPod(t *testing.T, cluster *v1alpha1.LiveStashCluster, ordinal int, revision string) *corev1.Pod {
	t.Helper()
	return fleetPodOn(t, cluster, ordinal, revision, usualNode)
}

// fleetPodOn is fleetPod on that node.
func fleetPodOn(t *testing.T, cluster *v1alpha1.LiveStashCluster, ordinal int, revision, node string) *corev1.Pod {
	t.Helper()
	set := fleetSet(t, cluster)
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = cluster.Namespace, fmt.Sprintf("%s-%d", cluster.Name, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Spec.NodeName = node
	suite.Must(t, api.Create(t.Context(), pod))
	isKnown(t, pod, &corev1.Pod{}) // that a pod is made rouses nobody
	return pod
}

var addresses atomic.Int32

// hasAddress gives a pod an address, at which its agent says that.
func hasAddress(t *testing.T, pod *corev1.Pod, status agentclient.Status) {
	t.Helper()
	number := addresses.Add(1)
	address := fmt.Sprintf("10.7.%d.%d", number/256, number%256)
	agents.say(address, status)
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	isKnown(t, pod, &corev1.Pod{})
}

// serves makes a pod ready, whose agent says that.
func serves(t *testing.T, pod *corev1.Pod, status agentclient.Status) {
	t.Helper()
	servesSince(t, pod, status, time.Time{})
}

// servesSince is serves, of a pod that got ready at a time that matters.
func servesSince(t *testing.T, pod *corev1.Pod, status agentclient.Status, since time.Time) {
	t.Helper()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	hasAddress(t, pod, status)
}

// gone ends a pod with its last word.
func gone(t *testing.T, pod *corev1.Pod, report string) {
	t.Helper()
	suite.Must(t, get(t, pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: report}},
	}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
}

// acted lets the StatefulSet controller have acted on the StatefulSet as it is, with those pods that are there. current is the
// revision that was last rolled out completely, update that of the template.
func acted(t *testing.T, cluster *v1alpha1.LiveStashCluster, current, update string) {
	t.Helper()
	suite.Eventually(t, func() error {
		set, pods := fleetSet(t, cluster), &corev1.PodList{}
		if err := api.List(t.Context(), pods, client.InNamespace(cluster.Namespace), client.MatchingLabels(render.SelectorLabels(cluster))); err != nil {
			return err
		}
		noted := current
		if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType && set.Status.CurrentRevision != "" {
			noted = set.Status.CurrentRevision // before Kubernetes 1.37 nobody notes another one then
		}
		set.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: set.Generation, CurrentRevision: noted, UpdateRevision: update, Replicas: int32(len(pods.Items)),
		}
		for i := range pods.Items {
			if podReady(&pods.Items[i]) {
				set.Status.ReadyReplicas++
			}
			if pods.Items[i].Labels[appsv1.StatefulSetRevisionLabel] == update && pods.Items[i].DeletionTimestamp.IsZero() {
				set.Status.UpdatedReplicas++
			}
		}
		set.Status.AvailableReplicas = set.Status.ReadyReplicas
		return api.Status().Update(t.Context(), set)
	})
}

// usualNode is where pods run, where it does not matter.
const usualNode = "node-1"

// fleetAtRest is a LiveStashCluster with that many pods of the revision a, and everything is well.
func fleetAtRest(t *testing.T, replicas int32, change func(*v1alpha1.LiveStashClusterSpec)) (*v1alpha1.LiveStashCluster, []*corev1.Pod) {
	t.Helper()
	return fleetOn(t, replicas, usualNode, change)
}

// fleetOn is fleetAtRest with all pods on that node.
func fleetOn(t *testing.T, replicas int32, node string, change func(*v1alpha1.LiveStashClusterSpec)) (*v1alpha1.LiveStashCluster, []*corev1.Pod) {
	t.Helper()
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Replicas = ptr.To(replicas)
		if change != nil {
			change(spec)
		}
	})
	return cluster, comeToRest(t, cluster, node)
}

// comeToRest makes the pods of a LiveStashCluster, of the revision a, on that node, and waits until it is Ready.
func comeToRest(t *testing.T, cluster *v1alpha1.LiveStashCluster, node string) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	replicas := int(cluster.DesiredReplicas())
	for i := range replicas {
		pod := fleetPodOn(t, cluster, i, "a", node)
		serves(t, pod, wellAmong(replicas, pod.Name))
		pods = append(pods, pod)
	}
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllWell)
	return pods
}

// replicasAre waits until the StatefulSet is to have that many pods.
func replicasAre(t *testing.T, cluster *v1alpha1.LiveStashCluster, want int32) {
	t.Helper()
	suite.Eventually(t, func() error {
		if got := *fleetSet(t, cluster).Spec.Replicas; got != want {
			return fmt.Errorf("%d replicas, want %d", got, want)
		}
		return nil
	})
}

// terminating are the names of the pods that were told to stop.
func terminating(t *testing.T, cluster *v1alpha1.LiveStashCluster) []string {
	t.Helper()
	pods := &corev1.PodList{}
	suite.Must(t, api.List(t.Context(), pods, client.InNamespace(cluster.Namespace)))
	var names []string
	for i := range pods.Items {
		if !pods.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names
}

// stops waits until those pods are told to stop, and no others.
func stops(t *testing.T, cluster *v1alpha1.LiveStashCluster, pods ...string) {
	t.Helper()
	suite.Eventually(t, func() error {
		if diff := cmp.Diff(pods, terminating(t, cluster)); diff != "" {
			return fmt.Errorf("pods that stop (-want +got):\n%s", diff)
		}
		return nil
	})
}

// looks has the operator look at the LiveStashCluster a few times, and checks that it does nothing.
func looks(t *testing.T, cluster *v1alpha1.LiveStashCluster, why string) {
	t.Helper()
	set, stop := fleetSet(t, cluster), terminating(t, cluster)
	for range 3 {
		later(t, cluster, 0)
	}
	if diff := cmp.Diff(stop, terminating(t, cluster)); diff != "" {
		t.Errorf("%s, pods that stop (-before +after):\n%s", why, diff)
	}
	if diff := cmp.Diff(set.Spec, fleetSet(t, cluster).Spec); diff != "" {
		t.Errorf("%s, the StatefulSet (-before +after):\n%s", why, diff)
	}
}
