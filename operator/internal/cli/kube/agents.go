package kube

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

const (
	// askWithin is how long a pod's agent is waited for, the way to it included.
	askWithin = 5 * time.Second
	// askAtOnce is how many pods are asked at the same time.
	askAtOnce = 16
)

// Answer is what the agent of a pod said, or why it said nothing.
type Answer struct {
	Status agentclient.Status
	Err    error
}

// Agents asks the agents of pods, by the pods' names. The way goes through the API server and the kubelet (port-forward), which no
// NetworkPolicy shuts.
func (a *Access) Agents(ctx context.Context, pods []corev1.Pod, port int32) map[string]Answer {
	answers := map[string]Answer{}
	var mutex sync.Mutex
	var asked sync.WaitGroup
	places := make(chan struct{}, askAtOnce)
	for i := range pods {
		places <- struct{}{}
		asked.Go(func() {
			defer func() { <-places }()
			status, err := a.agent(ctx, &pods[i], port)
			mutex.Lock()
			defer mutex.Unlock()
			answers[pods[i].Name] = Answer{status, err}
		})
	}
	asked.Wait()
	return answers
}

func (a *Access) agent(ctx context.Context, pod *corev1.Pod, port int32) (agentclient.Status, error) {
	if pod.Status.Phase != corev1.PodRunning {
		return agentclient.Status{}, fmt.Errorf("the pod is %s", pod.Status.Phase)
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	dialer, err := a.forwarder(pod.Namespace, pod.Name)
	if err != nil {
		return agentclient.Status{}, err
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	forward, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", port)}, ready, io.Discard, io.Discard)
	if err != nil {
		return agentclient.Status{}, err
	}
	defer forward.Close()
	go func() { ended <- forward.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return agentclient.Status{}, fmt.Errorf("port-forward: %w", err)
	case <-ctx.Done():
		return agentclient.Status{}, fmt.Errorf("port-forward: %w", ctx.Err())
	}
	local, err := forward.GetPorts()
	if err != nil {
		return agentclient.Status{}, err
	}
	return agentclient.New().Status(ctx, "127.0.0.1", int32(local[0].Local))
}
