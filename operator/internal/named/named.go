// Package named watches objects by their names: the ConfigMaps and Secrets that users have their pods read, which carry no label of ours.
// Each has a watch of its own, so that the operator neither asks for nor holds what no fleet names. Of each it knows the metadata alone.
package named

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// resources are the kinds that can be watched.
var resources = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets"}

// Key is an object: of kind ConfigMap or Secret.
type Key struct{ Kind, Namespace, Name string }

// Watcher watches what LiveStashClusters name. It is a Runnable of the manager.
type Watcher struct {
	// Changed tells of LiveStashClusters that name an object which has changed, come or gone.
	Changed chan event.GenericEvent

	client  metadata.Interface
	mutex   sync.Mutex
	watched map[Key]*object
	named   map[types.NamespacedName][]Key
	stopped bool
}

// New is a Watcher that watches nothing yet. There is room for a thousand changes: the controller's queue takes them out at once.
func New(client metadata.Interface) *Watcher {
	return &Watcher{
		Changed: make(chan event.GenericEvent, 1000),
		client:  client,
		watched: map[Key]*object{},
		named:   map[types.NamespacedName][]Key{},
	}
}

// Start waits for the end, and ends all watches then.
func (w *Watcher) Start(ctx context.Context) error {
	<-ctx.Done()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.stopped = true
	for _, watched := range w.watched {
		watched.stop()
	}
	return nil
}

// Watch is all that a LiveStashCluster names from now on. What nobody names any more is no longer watched.
func (w *Watcher) Watch(cluster types.NamespacedName, keys []Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	before := w.named[cluster]
	if slices.Equal(before, keys) || w.stopped {
		return
	}
	w.named[cluster] = keys
	if len(keys) == 0 {
		delete(w.named, cluster)
	}
	for _, key := range keys {
		if w.watched[key] == nil {
			w.watched[key] = w.begin(key)
		}
	}
	for _, key := range before {
		if watched := w.watched[key]; watched != nil && len(w.namers(key)) == 0 {
			watched.stop()
			delete(w.watched, key)
		}
	}
}

// namers are the LiveStashClusters that name an object.
func (w *Watcher) namers(key Key) []types.NamespacedName {
	var all []types.NamespacedName
	for cluster, keys := range w.named {
		if cluster.Namespace == key.Namespace && slices.Contains(keys, key) {
			all = append(all, cluster)
		}
	}
	return all
}

// Get is the metadata of an object that some LiveStashCluster names. Nil when there is no such object. It waits until the API server
// has said once what there is.
func (w *Watcher) Get(ctx context.Context, key Key) (*metav1.PartialObjectMetadata, error) {
	w.mutex.Lock()
	watched := w.watched[key]
	w.mutex.Unlock()
	if watched == nil {
		return nil, fmt.Errorf("%s %s/%s is not watched", key.Kind, key.Namespace, key.Name)
	}
	select {
	case <-watched.told:
		return watched.now()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s %s/%s: %w", key.Kind, key.Namespace, key.Name, ctx.Err())
	}
}

// begin watches an object.
func (w *Watcher) begin(key Key) *object {
	ctx, stop := context.WithCancel(context.Background())
	watched := &object{stop: stop, told: make(chan struct{}), changed: func() { w.tell(ctx, key) }}
	client := w.client.Resource(corev1.SchemeGroupVersion.WithResource(resources[key.Kind])).Namespace(key.Namespace)
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = byName
			list, err := client.List(ctx, options)
			watched.failed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = byName
			events, err := client.Watch(ctx, options)
			if !apierrors.IsInvalid(err) { // that is an API server which cannot tell the first state in a watch: it is asked for a list next
				watched.failed(err)
			}
			return events, err
		},
	}
	reflector := cache.NewReflectorWithOptions(lists, &metav1.PartialObjectMetadata{}, watched, cache.ReflectorOptions{Name: "named"})
	go reflector.RunWithContext(ctx)
	return watched
}

// tell says that an object has changed to those who name it.
func (w *Watcher) tell(ctx context.Context, key Key) {
	w.mutex.Lock()
	clusters := w.namers(key)
	w.mutex.Unlock()
	for _, name := range clusters {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.Namespace, cluster.Name = name.Namespace, name.Name
		select {
		case w.Changed <- event.GenericEvent{Object: cluster}:
		case <-ctx.Done():
			return
		}
	}
}
