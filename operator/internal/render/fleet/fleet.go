// Package fleet renders a LiveStashCluster into the objects it wants, those of its Redis and its TLS included: one file per
// object.
package fleet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
)

// Render returns the objects that the LiveStashCluster wants, in the order in which they should be made: what pods
// need comes before the pods. The Secret is not among them, because its content is not a function of the spec: see
// GeneratedSecret. An error is a *render.SpecError: it speaks to the user.
func Render(c *v1alpha1.LiveStashCluster, in render.Inputs) ([]client.Object, error) {
	if err := checkNodeNames(c, in); err != nil {
		return nil, err
	}
	if err := checkFlags(c); err != nil {
		return nil, err
	}
	statefulSet, err := StatefulSet(c, in)
	if err != nil {
		return nil, err
	}

	objects := []client.Object{ServiceAccount(c, in)}
	if headless := HeadlessService(c, in); headless != nil {
		objects = append(objects, headless)
	}
	if options := tls.Options(c, in); options != nil {
		objects = append(objects, options)
	}
	if policy := NetworkPolicy(c, in); policy != nil {
		objects = append(objects, policy)
	}
	objects = append(objects, redis.Managed(c, in)...)
	if config := redis.OperatedConfig(c); config != nil {
		objects = append(objects, config)
	}
	if policy := redis.OperatedNetworkPolicy(c); policy != nil {
		objects = append(objects, policy)
	}
	// The Service leads users away before the StatefulSet has one pod less.
	objects = append(objects, ClientService(c, in), statefulSet)
	// After the pods: a budget without pods makes the disruption controller complain in an event.
	if budget := PodDisruptionBudget(c, in, &statefulSet.Spec.Template.Spec); budget != nil {
		objects = append(objects, budget)
	}
	for _, object := range objects {
		if _, isVolume := object.(*corev1.PersistentVolumeClaim); isVolume {
			render.OwnOrKeep(c, object)
			continue
		}
		object.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
	}
	return objects, nil
}
