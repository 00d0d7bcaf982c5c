package benchmark

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// setOf is the fleet's own StatefulSet. Nil when there is none.
func (r *Reconciler) setOf(ctx context.Context, c *v1alpha1.LiveStashCluster) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := r.Get(ctx, client.ObjectKeyFromObject(c), set)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("looking up the fleet's StatefulSet: %w", err)
	}
	if err != nil || !metav1.IsControlledBy(set, c) {
		return nil, nil
	}
	return set, nil
}

// podsOf are the pods that the fleet's own StatefulSet made, in the order of their names: anybody may give a pod a fleet's labels.
func (r *Reconciler) podsOf(ctx context.Context, c *v1alpha1.LiveStashCluster) ([]corev1.Pod, error) {
	set, err := r.setOf(ctx, c)
	if err != nil || set == nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	err = r.List(ctx, pods, client.InNamespace(c.Namespace), client.MatchingLabels{render.ClusterLabel: c.Name, render.ComponentLabel: render.FleetComponent})
	if err != nil {
		return nil, fmt.Errorf("listing the fleet's pods: %w", err)
	}
	own := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, set) })
	slices.SortFunc(own, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return own, nil
}
