package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// wholePod is a pod as the API server has it, of which the application's container and its init container are in these states.
func wholePod(app, starter corev1.ContainerState, conditions ...corev1.PodCondition) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop-0", UID: "1", Generation: 3, GenerateName: "shop-",
			Labels:          map[string]string{appsv1.StatefulSetRevisionLabel: "a", render.ClusterLabel: "shop", render.ComponentLabel: render.FleetComponent, "team": "web"},
			Annotations:     map[string]string{"team": "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "shop", UID: "2", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			InitContainers: []corev1.Container{{Name: fleet.InitContainer, Image: "agent:1"}},
			Containers: []corev1.Container{
				{Name: fleet.AppContainer, Image: "shop:1", Ports: []corev1.ContainerPort{{Name: fleet.AgentPort, ContainerPort: 9568}}},
				{Name: "sidecar", Image: "sidecar:1"},
			},
		},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", HostIP: "10.0.0.2", Conditions: conditions,
			InitContainerStatuses: []corev1.ContainerStatus{{Name: fleet.InitContainer, Image: "agent:1", State: starter}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "sidecar", Image: "sidecar:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: fleet.AppContainer, Image: "shop:1", ImageID: "sha256:1", State: app},
			},
		},
	}
}

// told is all that a pass asks about it.
type told struct {
	Trouble, Broken string
	Unstarted       bool
	Starting        bool
	MayStopFor      time.Duration
	Ready           bool
	Drained         bool
	Port            int32
	UnseenBy        string
}

func tellsOf(pod *corev1.Pod) told {
	m := &member{Pod: pod}
	_, drained := drainReport(pod)
	return told{podTrouble(pod), m.broken(), m.unstarted(), m.starting(said), m.mayStopFor(), podReady(pod), drained, portOf(pod, fleet.AgentPort), unseenBy(pod)}
}

// What the cache drops of a pod makes no difference: before one goes, a plan made of slim pods must be that of whole ones.
func TestSlimPodTellsTheSame(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(said.Add(-time.Second))}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: `{"sessionsBefore":1}`}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: "0/1 nodes"}
	}
	ready := condition(corev1.PodReady, corev1.ConditionTrue, "")
	for name, pod := range map[string]*corev1.Pod{
		"serves":               wholePod(running, ended, condition(corev1.PodScheduled, corev1.ConditionTrue, ""), ready),
		"runs, not yet ready":  wholePod(running, ended, condition(corev1.PodReady, corev1.ConditionFalse, "")),
		"runs, its agent not":  wholePod(running, waits("ImagePullBackOff"), condition(corev1.PodReady, corev1.ConditionFalse, "")),
		"starts":               wholePod(waits("PodInitializing"), running),
		"has no agent":         wholePod(waits("PodInitializing"), waits("ImagePullBackOff")),
		"has no image":         wholePod(waits("ImagePullBackOff"), ended),
		"crashes":              wholePod(waits("CrashLoopBackOff"), ended),
		"has drained":          wholePod(ended, ended),
		"has drained just now": wholePod(ended, ended, ready),
		"has no room":          wholePod(corev1.ContainerState{}, corev1.ContainerState{}, condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable)),
		"has no scheduler":     {Spec: corev1.PodSpec{SchedulerName: "nobody"}},
		"has a scheduler": {Spec: corev1.PodSpec{SchedulerName: "nobody"}, Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{condition(corev1.PodScheduled, corev1.ConditionFalse, "SchedulingGated")}}},
		"stops":                {ObjectMeta: metav1.ObjectMeta{Name: "shop-0", DeletionTimestamp: ptr.To(metav1.NewTime(said)), DeletionGracePeriodSeconds: ptr.To[int64](600)}},
		"has nothing told yet": {ObjectMeta: metav1.ObjectMeta{Name: "shop-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tellsOf(pod), tellsOf(slimPod(pod))); diff != "" {
				t.Errorf("-whole +slim:\n%s", diff)
			}
		})
	}
}

// There are ten thousand pods of which this is all that is needed.
func TestSlimPodHoldsLittle(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	pod := wholePod(running, ended, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, ready)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop-0", UID: types.UID("1"), OwnerReferences: pod.OwnerReferences,
			Labels: map[string]string{appsv1.StatefulSetRevisionLabel: "a", render.ClusterLabel: "shop", render.ComponentLabel: render.FleetComponent},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: fleet.AppContainer, Ports: pod.Spec.Containers[0].Ports}}},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{ready},
		},
	}
	if diff := cmp.Diff(want, slimPod(pod)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
