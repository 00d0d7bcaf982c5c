package cluster

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func TestConditions(t *testing.T) {
	done := appsv1.StatefulSetStatus{ObservedGeneration: 4, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, CurrentRevision: "a", UpdateRevision: "a"}
	with := func(change func(*appsv1.StatefulSetStatus)) *appsv1.StatefulSetStatus {
		status := done
		change(&status)
		return &status
	}
	cases := map[string]struct {
		replicas    int32
		set         *appsv1.StatefulSetStatus
		trouble     string
		outcome     error
		available   string
		progressing string
		reconciled  string
	}{
		"all ready":       {3, &done, "", nil, "True AllReady", "False Complete", "True Reconciled"},
		"one away":        {3, with(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 2 }), "", nil, "True EnoughReady", "True WaitingForPods", "True Reconciled"},
		"two away":        {3, with(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 1 }), "", nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"rolling out":     {3, with(func(s *appsv1.StatefulSetStatus) { s.UpdatedReplicas, s.UpdateRevision = 1, "b" }), "", nil, "True AllReady", "True RollingOut", "True Reconciled"},
		"not acted on":    {3, with(func(s *appsv1.StatefulSetStatus) { s.ObservedGeneration = 3 }), "", nil, "True AllReady", "True RollingOut", "True Reconciled"},
		"scaling up":      {5, &done, "", nil, "False TooFewReady", "True Scaling", "True Reconciled"},
		"scaling down":    {1, &done, "", nil, "True AllReady", "True Scaling", "True Reconciled"},
		"one pod alone":   {1, with(func(s *appsv1.StatefulSetStatus) { s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = 1, 0, 1 }), "", nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"no pods wanted":  {0, with(func(s *appsv1.StatefulSetStatus) { s.Replicas, s.ReadyReplicas, s.UpdatedReplicas = 0, 0, 0 }), "", nil, "False ScaledToZero", "False Complete", "True Reconciled"},
		"a pod fails":     {3, with(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas = 2 }), "pod x: y", nil, "True EnoughReady", "True PodFailing", "True Reconciled"},
		"just made":       {3, &appsv1.StatefulSetStatus{}, "", nil, "False TooFewReady", "True Scaling", "True Reconciled"},
		"nothing yet":     {3, nil, "", nil, "False TooFewReady", "True WaitingForPods", "True Reconciled"},
		"nothing to come": {3, nil, "", secretMissing("no Secret"), "False TooFewReady", "False SecretMissing", "False SecretMissing"},
		"the API refuses": {3, &done, "", errors.New("refused"), "True AllReady", "False Complete", "False APIError"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Generation: 9}}
			cluster.Spec.Replicas, cluster.Spec.Adapter = ptr.To(c.replicas), v1alpha1.AdapterETS
			seen := observation{trouble: c.trouble, outcome: c.outcome}
			if c.set != nil {
				seen.statefulSet = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Status: *c.set}
			}
			status := statusOf(cluster, seen)
			for kind, want := range map[string]string{
				v1alpha1.ConditionAvailable: c.available, v1alpha1.ConditionProgressing: c.progressing, v1alpha1.ConditionReconcileSucceeded: c.reconciled,
			} {
				got := meta.FindStatusCondition(status.Conditions, kind)
				if string(got.Status)+" "+got.Reason != want {
					t.Errorf("%s is %s %s, want %s", kind, got.Status, got.Reason, want)
				}
				if got.Message == "" || got.ObservedGeneration != 9 {
					t.Errorf("%s has message %q and generation %d", kind, got.Message, got.ObservedGeneration)
				}
			}
		})
	}
}

func TestPodTrouble(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "img", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}},
		}}}
	}
	cases := map[string]struct {
		status   corev1.PodStatus
		deleting bool
		want     string
	}{
		"starting":      {waiting("ContainerCreating"), false, ""},
		"no image":      {waiting("ImagePullBackOff"), false, "pod shop-0, container app: ImagePullBackOff; the image img cannot be had: check spec.image and spec.imagePullSecrets"},
		"crashing":      {waiting("CrashLoopBackOff"), false, "pod shop-0, container app: CrashLoopBackOff; see `kubectl logs -n web shop-0 -c app --previous`"},
		"no key":        {waiting("CreateContainerConfigError"), false, "pod shop-0, container app: CreateContainerConfigError; because"},
		"going anyway":  {waiting("CrashLoopBackOff"), true, ""},
		"unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonUnschedulable, Message: "no room"}}}, false, "pod shop-0 cannot be scheduled: no room"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop-0"}, Status: c.status}
			if c.deleting {
				pod.DeletionTimestamp = ptr.To(metav1.Now())
			}
			if got := podTrouble(pod); got != c.want {
				t.Errorf("podTrouble = %q, want %q", got, c.want)
			}
		})
	}
}
