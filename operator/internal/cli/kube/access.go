// Package kube is how the plugin reaches a Kubernetes cluster: with the rights of whoever runs it, and no others.
package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Access is one cluster, and the namespace that is meant.
type Access struct {
	client.WithWatch
	Namespace string
	Config    *rest.Config
	Clientset kubernetes.Interface
}

// Scheme has the kinds that the plugin reads and writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// Connect is the cluster that kubectl's flags name. It asks nothing yet.
func Connect(flags *genericclioptions.ConfigFlags) (*Access, error) {
	log.SetLogger(logr.Discard()) // or controller-runtime asks for a logger after a while
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	return To(config, namespace)
}

// To is a cluster by its configuration.
func To(config *rest.Config, namespace string) (*Access, error) {
	// Doctor asks for a dozen kinds at once.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Access{WithWatch: api, Namespace: namespace, Config: config, Clientset: clientset}, nil
}

// Cluster is the LiveStashCluster of that name. Without a name it is the only one of the namespace.
func (a *Access) Cluster(ctx context.Context, name string) (*v1alpha1.LiveStashCluster, error) {
	if name != "" {
		c := &v1alpha1.LiveStashCluster{}
		err := a.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, c)
		return c, Explained(err)
	}
	all, err := a.Clusters(ctx, false)
	if err != nil {
		return nil, err
	}
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("there is no LiveStashCluster in the namespace %s: name another one with -n", a.Namespace)
	case 1:
		return &all[0], nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("there are several LiveStashClusters in the namespace %s: name one of %s", a.Namespace, strings.Join(names, ", "))
}

// Clusters are the LiveStashClusters of the namespace, or of all.
func (a *Access) Clusters(ctx context.Context, everywhere bool) ([]v1alpha1.LiveStashCluster, error) {
	var list v1alpha1.LiveStashClusterList
	namespace := a.Namespace
	if everywhere {
		namespace = ""
	}
	if err := a.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, Explained(err)
	}
	return list.Items, nil
}

// FleetPods are the pods of a fleet that serve users, in the order of their numbers.
func (a *Access) FleetPods(ctx context.Context, c *v1alpha1.LiveStashCluster) ([]corev1.Pod, error) {
	var list corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(render.SelectorLabels(c))}
	if err := a.List(ctx, &list, client.InNamespace(c.Namespace), selector); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(x, y corev1.Pod) int {
		if len(x.Name) != len(y.Name) {
			return len(x.Name) - len(y.Name)
		}
		return strings.Compare(x.Name, y.Name)
	})
	return list.Items, nil
}

// FleetPod is one pod of a fleet, by its name, or the first that is ready.
func (a *Access) FleetPod(ctx context.Context, c *v1alpha1.LiveStashCluster, name string) (*corev1.Pod, error) {
	pods, err := a.FleetPods(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].Name == name || name == "" && Ready(&pods[i]) {
			return &pods[i], nil
		}
	}
	if name == "" {
		return nil, fmt.Errorf("no pod of %s is ready: name one with --pod", c.Name)
	}
	return nil, fmt.Errorf("%s has no pod %s: `kubectl livestash status %s` lists them", c.Name, name, c.Name)
}

// Owner is the name of the fleet that a pod belongs to.
func (a *Access) Owner(ctx context.Context, pod string) (string, error) {
	found := &corev1.Pod{}
	if err := a.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: pod}, found); err != nil {
		return "", err
	}
	name := found.Labels[render.ClusterLabel]
	if name == "" || found.Labels[render.ComponentLabel] != render.FleetComponent {
		return "", fmt.Errorf("the pod %s is no pod of a LiveStashCluster", pod)
	}
	return name, nil
}

// Ready is whether a pod is ready by the kubelet's word, and not on its way out.
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// Explained is an error with what to do about it, where that is known.
func Explained(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("this cluster does not know LiveStashClusters: install the operator's chart first (%w)", err)
	}
	return err
}

// Absent is whether something is not there, or may not be seen, or whether the cluster does not have its kind.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err)
}
