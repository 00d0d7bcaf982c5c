// Package fleet is one LiveStashCluster under test, in a Kubernetes that is there for nothing else: what it asks for, what its pods
// are, and what can be done to it.
package fleet

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/livestash-dev/livestash/test/internal/program"
)

// pollEvery is how often a state of the cluster is looked at. It is the API server's work on the machine that is measured.
const pollEvery = 300 * time.Millisecond

// Cluster is the Kubernetes of the test. What a user does goes through kubectl and helm, what is only watched does not.
type Cluster struct {
	kubernetes.Interface
	// Dynamic is for LiveStashClusters.
	Dynamic dynamic.Interface
	// path of the kubeconfig.
	kubeconfig string
}

// Open opens the cluster that KUBECONFIG names.
func Open() (*Cluster, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, fmt.Errorf("KUBECONFIG is not set: run `make survival` or `make soak`, or set it to a cluster for tests that has the images")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	other, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return &Cluster{Interface: client, Dynamic: other, kubeconfig: path}, nil
}

// Kubectl runs kubectl with input on its standard input.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return program.Run(ctx, input, "kubectl", args...)
}

// Raw is the answer to a GET of a path of the API.
func (c *Cluster) Raw(ctx context.Context, path string) ([]byte, error) {
	return c.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
}

// Eventually waits until check has nothing to say.
func Eventually(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var reason error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// A question that the end of the time has cut says nothing.
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, reason)
		}
	}
}

// Pause waits, unless the context ends.
func Pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
