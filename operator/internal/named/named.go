// Package named watches objects by their names: the ConfigMaps and Secrets that users have their pods read, which carry no label of ours.
// Each has a watch of its own, so that the operator neither asks for nor holds what no fleet names, unless very many are named. Of each it
// knows the metadata alone.
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

	client     metadata.Interface
	namespaces []string
	most       int
	// ended is closed when nothing is to be told any more.
	ended chan struct{}

	mutex   sync.Mutex
	watched map[Key]*object
	named   map[types.NamespacedName][]Key
	// byKind are the kinds of which too many objects are named, and what is known of all of them, by namespace.
	byKind map[string]map[string]*all
}

// New is a Watcher that watches nothing yet, of these namespaces, or of all when none is named. There is room for a thousand changes: the
// controller's queue takes them out at once.
func New(client metadata.Interface, namespaces ...string) *Watcher {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	return &Watcher{
		Changed:    make(chan event.GenericEvent, 1000),
		client:     client,
		namespaces: namespaces,
		most:       mostByName,
		ended:      make(chan struct{}),
		watched:    map[Key]*object{},
		named:      map[types.NamespacedName][]Key{},
		byKind:     map[string]map[string]*all{},
	}
}

// Start waits for the end, and ends all watches then.
func (w *Watcher) Start(ctx context.Context) error {
	<-ctx.Done()
	close(w.ended)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, watched := range w.watched {
		watched.stop()
	}
	for _, every := range w.byKind {
		for _, all := range every {
			all.stop()
		}
	}
	return nil
}

// Watch is all that a LiveStashCluster names from now on. What nobody names any more is no longer watched.
func (w *Watcher) Watch(cluster types.NamespacedName, keys []Key) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	before := w.named[cluster]
	if slices.Equal(before, keys) {
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
	var namers []types.NamespacedName
	for cluster, keys := range w.named {
		if cluster.Namespace == key.Namespace && slices.Contains(keys, key) {
			namers = append(namers, cluster)
		}
	}
	return namers
}

// Get is the metadata of an object that some LiveStashCluster names. Nil when there is no such object. It waits until the API server
// has said once what there is.
func (w *Watcher) Get(ctx context.Context, key Key) (*metav1.PartialObjectMetadata, error) {
	watched := w.get(key)
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

// begin watches an object: by its name, or with all others when too many are named.
func (w *Watcher) begin(key Key) *object {
	watched := newObject(func() { w.tell(key) })
	if w.byKind[key.Kind] == nil && w.count(key.Kind) >= w.most {
		w.beginAll(key.Kind)
	}
	if every := w.byKind[key.Kind]; every != nil {
		if all := every[w.scope(key.Namespace)]; all != nil {
			all.tellFirst(key, watched)
		}
		return watched
	}
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
	watched.stop = w.follow(key.Kind, key.Namespace, byName, watched, watched.failed)
	return watched
}

// beginAll watches all objects of a kind, instead of those that are named.
func (w *Watcher) beginAll(kind string) {
	w.byKind[kind] = map[string]*all{}
	for _, namespace := range w.namespaces {
		every := &all{kind: kind, live: map[Key]*metav1.PartialObjectMetadata{}}
		every.told = func(key Key, live *metav1.PartialObjectMetadata) {
			if watched := w.get(key); watched != nil {
				watched.becomes(live)
			}
		}
		every.named = func() []Key { return w.keys(kind, namespace) }
		failed := func(err error) {
			if err == nil {
				return
			}
			for _, key := range w.keys(kind, namespace) {
				if watched := w.get(key); watched != nil {
					watched.failed(err)
				}
			}
		}
		every.stop = w.follow(kind, namespace, "", every, failed)
		w.byKind[kind][namespace] = every
	}
	for key, watched := range w.watched {
		if key.Kind == kind {
			watched.stop()
		}
	}
}

// scope is the namespace under which all objects of a namespace are watched.
func (w *Watcher) scope(namespace string) string {
	if slices.Contains(w.namespaces, namespace) {
		return namespace
	}
	return metav1.NamespaceAll
}

// count is how many objects of a kind are watched.
func (w *Watcher) count(kind string) int {
	count := 0
	for key := range w.watched {
		if key.Kind == kind {
			count++
		}
	}
	return count
}

// get is an object that is watched, or nil.
func (w *Watcher) get(key Key) *object {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.watched[key]
}

// keys are the objects of a kind and a namespace, or of all, that are watched.
func (w *Watcher) keys(kind, namespace string) []Key {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var keys []Key
	for key := range w.watched {
		if key.Kind == kind && (namespace == metav1.NamespaceAll || namespace == key.Namespace) {
			keys = append(keys, key)
		}
	}
	return keys
}

// follow tells a store of the objects that a selector selects, until it is stopped, and failed of what keeps the API server from telling.
func (w *Watcher) follow(kind, namespace, selector string, store cache.ReflectorStore, failed func(error)) (stop func()) {
	client := w.client.Resource(corev1.SchemeGroupVersion.WithResource(resources[kind])).Namespace(namespace)
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := client.List(ctx, options)
			failed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			events, err := client.Watch(ctx, options)
			if !apierrors.IsInvalid(err) { // that is an API server which cannot tell the first state in a watch: it is asked for a list next
				failed(err)
			}
			return events, err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	semantics := cache.ToListWatcherWithWatchListSemantics(lists, w.client)
	reflector := cache.NewReflectorWithOptions(semantics, &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{Name: "named"})
	go reflector.RunWithContext(ctx)
	return stop
}

// tell says that an object has changed to those who name it.
func (w *Watcher) tell(key Key) {
	w.mutex.Lock()
	clusters := w.namers(key)
	w.mutex.Unlock()
	for _, name := range clusters {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.Namespace, cluster.Name = name.Namespace, name.Name
		select {
		case w.Changed <- event.GenericEvent{Object: cluster}:
		case <-w.ended:
			return
		}
	}
}
