package cluster

import (
	"hash/maphash"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostTemplates is how many templates are remembered. One that is forgotten costs its pods the sharing, nothing else.
const mostTemplates = 256

// templates let the pods in the cache that were made from one template share what they have from it, which is a third of what a slim
// pod holds. Nobody writes into objects of the cache.
type templates struct {
	mutex sync.Mutex
	// known are what the last pods had, each at the place that is its owner's by chance.
	known [mostTemplates]template
}

// template is what pods have from it.
type template struct {
	labels     map[string]string
	owners     []metav1.OwnerReference
	containers []corev1.Container
}

var templatePlaces = maphash.MakeSeed()

// slimPod is slimPod, and what the pod has in common with another one of its owner is that one's.
func (t *templates) slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := slimPod(pod)
	if len(slim.OwnerReferences) > 0 {
		t.share(slim)
	}
	return slim, nil
}

func (t *templates) share(pod *corev1.Pod) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	known := &t.known[maphash.String(templatePlaces, string(pod.OwnerReferences[0].UID))%mostTemplates]
	if maps.Equal(known.labels, pod.Labels) {
		pod.Labels = known.labels
	}
	if reflect.DeepEqual(known.owners, pod.OwnerReferences) {
		pod.OwnerReferences = known.owners
	}
	if reflect.DeepEqual(known.containers, pod.Spec.Containers) {
		pod.Spec.Containers = known.containers
	}
	*known = template{pod.Labels, pod.OwnerReferences, pod.Spec.Containers}
}
