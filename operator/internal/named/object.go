package named

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// object is what is known of one that is watched: the store of its reflector.
type object struct {
	stop    func()
	changed func()
	// told is closed when the API server has said something for the first time: what there is, or why it does not tell.
	told chan struct{}

	mutex sync.Mutex
	once  sync.Once
	known bool
	live  *metav1.PartialObjectMetadata
	err   error
}

// newObject is one of which nothing is known yet.
func newObject(changed func()) *object {
	return &object{stop: func() {}, told: make(chan struct{}), changed: changed}
}

// now is the object as it was last told, nil when there is none.
func (o *object) now() (*metav1.PartialObjectMetadata, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if !o.known {
		return nil, o.err
	}
	return o.live, nil
}

// failed notes why the API server does not tell.
func (o *object) failed(err error) {
	if err == nil {
		return
	}
	o.mutex.Lock()
	o.err = err
	o.mutex.Unlock()
	o.once.Do(func() { close(o.told) })
}

// becomes notes what there is, and tells it when it is news.
func (o *object) becomes(live *metav1.PartialObjectMetadata) {
	o.mutex.Lock()
	isNews := o.known && version(o.live) != version(live)
	// Nobody waits any more for what follows an error.
	isNews = isNews || !o.known && o.err != nil
	o.known, o.live, o.err = true, live, nil
	o.mutex.Unlock()
	o.once.Do(func() { close(o.told) })
	if isNews {
		o.changed()
	}
}

func version(live *metav1.PartialObjectMetadata) string {
	if live == nil {
		return ""
	}
	return string(live.UID) + "/" + live.ResourceVersion
}

// slim is what the operator reads of metadata. Of the annotations, of which the one that `kubectl apply` makes holds a Secret's values, that is
// whose an object without an owner is.
func slim(told any) (*metav1.PartialObjectMetadata, error) {
	live, ok := told.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("the API server told a %T, not metadata", told)
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: live.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: live.Namespace, Name: live.Name, UID: live.UID, ResourceVersion: live.ResourceVersion,
		OwnerReferences: live.OwnerReferences,
	}}
	if kept := live.Annotations[render.KeptAnnotation]; kept != "" {
		slim.Annotations = map[string]string{render.KeptAnnotation: kept}
	}
	return slim, nil
}

// Add is a reflector's word for what has come.
func (o *object) Add(told any) error { return o.Update(told) }

// Update is its word for what has changed.
func (o *object) Update(told any) error {
	live, err := slim(told)
	if err == nil {
		o.becomes(live)
	}
	return err
}

// Delete is its word for what has gone.
func (o *object) Delete(any) error {
	o.becomes(nil)
	return nil
}

// Replace is its word for all that there is: one object, or none.
func (o *object) Replace(all []any, _ string) error {
	if len(all) == 0 {
		return o.Delete(nil)
	}
	return o.Update(all[0])
}

// Resync is not needed.
func (*object) Resync() error { return nil }
