package named

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// mostByName is how many objects of a kind have a watch each. One takes 45 kB, mostly the stacks of its goroutines; the metadata of all
// objects of a kind takes half a kilobyte each. So when more are named than this, one watch of all is what fits into the operator's memory.
const mostByName = 100

// all is what is known of all objects of a kind in a namespace, or in all of them: the store of its reflector.
type all struct {
	// told passes on what has become of an object.
	told func(key Key, live *metav1.PartialObjectMetadata)
	// named are the objects that somebody names.
	named func() []Key
	stop  func()
	kind  string

	mutex sync.Mutex
	known bool
	live  map[Key]*metav1.PartialObjectMetadata
}

// tellFirst tells an object that nobody knows yet what it is, when the API server has said what there is.
func (a *all) tellFirst(key Key, watched *object) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.known {
		watched.becomes(a.live[key])
	}
}

func (a *all) keyOf(live *metav1.PartialObjectMetadata) Key {
	return Key{Kind: a.kind, Namespace: live.Namespace, Name: live.Name}
}

// Add is a reflector's word for what has come.
func (a *all) Add(told any) error { return a.Update(told) }

// Update is its word for what has changed.
func (a *all) Update(told any) error {
	live, err := slim(told)
	if err != nil {
		return err
	}
	a.mutex.Lock()
	a.live[a.keyOf(live)] = live
	a.mutex.Unlock()
	a.told(a.keyOf(live), live)
	return nil
}

// Delete is its word for what has gone.
func (a *all) Delete(told any) error {
	if unseen, is := told.(cache.DeletedFinalStateUnknown); is {
		told = unseen.Obj
	}
	gone, err := slim(told)
	if err != nil {
		return err
	}
	a.mutex.Lock()
	delete(a.live, a.keyOf(gone))
	a.mutex.Unlock()
	a.told(a.keyOf(gone), nil)
	return nil
}

// Replace is its word for all that there is.
func (a *all) Replace(list []any, _ string) error {
	live := make(map[Key]*metav1.PartialObjectMetadata, len(list))
	for _, told := range list {
		one, err := slim(told)
		if err != nil {
			return err
		}
		live[a.keyOf(one)] = one
	}
	a.mutex.Lock()
	a.known, a.live = true, live
	a.mutex.Unlock()
	for _, key := range a.named() {
		a.told(key, live[key])
	}
	return nil
}

// Resync is not needed.
func (*all) Resync() error { return nil }
