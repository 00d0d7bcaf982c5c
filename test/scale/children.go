package main

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// countChildren counts the objects of the namespace that a LiveStashCluster controls, of whatever kind. kinds says how
// many there are of each.
func countChildren(ctx context.Context, config *rest.Config, namespace string) (total int, kinds string, err error) {
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, "", err
	}
	lists, err := discoverer.ServerPreferredNamespacedResources()
	if err != nil {
		return 0, "", fmt.Errorf("list the kinds of objects: %w", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return 0, "", err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return 0, "", err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			objects, err := client.Resource(version.WithResource(resource.Name)).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, "", fmt.Errorf("list %s: %w", resource.Name, err)
			}
			count := 0
			for i := range objects.Items {
				if owner := metav1.GetControllerOf(&objects.Items[i]); owner != nil && owner.Kind == "LiveStashCluster" {
					count++
				}
			}
			if count > 0 {
				kinds += fmt.Sprintf(", %d %s", count, resource.Name)
			}
			total += count
		}
	}
	if total == 0 {
		return 0, "", fmt.Errorf("no object of namespace %s belongs to a LiveStashCluster", namespace)
	}
	return total, kinds[len(", "):], nil
}
