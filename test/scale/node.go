package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const (
	nodeName      = "simulated"
	nodeAddress   = "127.0.0.1"
	nodeWorkers   = 16
	nodeHeartbeat = 10 * time.Second
	// stopTakes is how long a pod needs to end.
	stopTakes = 200 * time.Millisecond
)

// node stands in for the scheduler and a kubelet with room for every pod. Its pods run, are ready and have an address, as far as
// the API server knows; of their containers only the agents are there.
type node struct {
	client kubernetes.Interface
	agents *agents
	pods   corelisters.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// failed is the last request that failed.
	failed  atomic.Pointer[error]
	running sync.WaitGroup
}

// startNode takes pods in until ctx ends; wait waits for its end.
func startNode(ctx context.Context, client kubernetes.Interface, agents *agents) (*node, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slimPod))
	informer := factory.Core().V1().Pods().Informer()
	n := &node{
		client: client, agents: agents, pods: factory.Core().V1().Pods().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	if err := n.register(ctx); err != nil {
		return nil, fmt.Errorf("register the simulated node: %w", err)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    n.enqueue,
		UpdateFunc: func(_, pod any) { n.enqueue(pod) },
		DeleteFunc: n.gone,
	})
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	n.running.Go(func() {
		<-ctx.Done()
		n.queue.ShutDown()
		factory.Shutdown()
	})
	n.running.Go(func() { n.beat(ctx) })
	for range nodeWorkers {
		n.running.Go(func() { n.work(ctx) })
	}
	return n, nil
}

// wait returns when nothing of the node runs any more, after its context has ended.
func (n *node) wait() { n.running.Wait() }

// String says what went wrong last.
func (n *node) String() string {
	if n == nil {
		return "pods do not run"
	}
	if err := n.failed.Load(); err != nil {
		return fmt.Sprintf("the simulated node's last failure: %v", *err)
	}
	return "the simulated node had no failure"
}

// slimPod keeps of a pod what a node needs.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		DeletionTimestamp: pod.DeletionTimestamp, Labels: map[string]string{clusterLabel: pod.Labels[clusterLabel]},
	}}
	slim.Spec.NodeName, slim.Status.Phase = pod.Spec.NodeName, pod.Status.Phase
	if isReady(pod) {
		slim.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	slim.Spec.InitContainers, slim.Spec.Containers = slimContainers(pod.Spec.InitContainers), slimContainers(pod.Spec.Containers)
	return slim, nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func slimContainers(containers []corev1.Container) []corev1.Container {
	var slim []corev1.Container
	for _, c := range containers {
		slim = append(slim, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy})
	}
	return slim
}

func (n *node) enqueue(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	key := cache.ObjectName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.DeletionTimestamp != nil {
		n.queue.AddAfter(key, stopTakes)
		return
	}
	n.queue.Add(key)
}

func (n *node) gone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		n.agents.forget(pod.UID)
	}
}

func (n *node) work(ctx context.Context) {
	for {
		key, ended := n.queue.Get()
		if ended {
			return
		}
		err := n.sync(ctx, key)
		// What another one did first comes as an event.
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
			n.queue.Forget(key)
		} else {
			n.failed.Store(&err)
			n.queue.AddRateLimited(key)
		}
		n.queue.Done(key)
	}
}

// setOutage takes the nodes of the first zone away, or brings them back: their pods are not ready, and their agents do not answer.
func (n *node) setOutage(away bool) error {
	n.agents.outage.Store(away)
	pods, err := n.pods.List(labels.Everything())
	for _, pod := range pods {
		n.enqueue(pod)
	}
	return err
}

// sync takes the pod one step further; the event of that brings it here again.
func (n *node) sync(ctx context.Context, key cache.ObjectName) error {
	pod, err := n.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return err
	}
	pods := n.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
	case n.agents.outage.Load() && inFirstZone(pod):
		if !isReady(pod) {
			return nil
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeNotReady"}]}}`, pod.UID)
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		return err
	// Pods of a node that was not heard of for long are made unready, until the node says otherwise.
	case pod.Status.Phase != corev1.PodRunning || !isReady(pod):
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID},
			"status":   runningStatus(pod, n.agents.admit(pod).String(), metav1.Now()),
		})
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}
	return nil
}

// runningStatus is that of a pod that serves.
func runningStatus(pod *corev1.Pod, ip string, now metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase:  corev1.PodRunning,
		HostIP: nodeAddress, HostIPs: []corev1.HostIP{{IP: nodeAddress}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &now,
	}
	for _, condition := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
	for _, c := range pod.Spec.InitContainers {
		state := ended
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			state = running
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(c, state))
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c, running))
	}
	return status
}

func containerStatus(c corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "simulated://" + c.Name,
		Ready: true, Started: ptr.To(state.Running != nil), State: state,
	}
}

// register makes the node. Without one, its pods would be deleted as orphans.
func (n *node) register(ctx context.Context) error {
	created, err := n.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status.Conditions = readyNow()
	created.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}
	// Whatever a controller has written meanwhile.
	created.ResourceVersion = ""
	if _, err := n.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Namespace: corev1.NamespaceNodeLease},
		Spec:       leaseNow(),
	}, metav1.CreateOptions{})
	return err
}

func readyNow() []corev1.NodeCondition {
	now := metav1.Now()
	return []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
}

func leaseNow() coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(nodeName), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro()),
	}
}

// beat keeps the node from being taken for dead, with its pods.
func (n *node) beat(ctx context.Context) {
	for sleepUntil(ctx, time.Now().Add(nodeHeartbeat)) == nil {
		patch, err := json.Marshal(map[string]any{"spec": leaseNow()})
		if err == nil {
			_, err = n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, nodeName, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err == nil {
			err = n.sayReady(ctx)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			n.failed.Store(&err)
		}
	}
}

// sayReady says that the node is ready, should it be said that it is not: it was not heard of for long.
func (n *node) sayReady(ctx context.Context) error {
	now, err := n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil || slices.ContainsFunc(now.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": readyNow()}})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(ctx, nodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
