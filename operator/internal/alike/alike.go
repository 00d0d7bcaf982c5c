// Package alike lets the objects of a cache share what is the same in them.
//
// Objects that one operator made are alike: the probes, limits, ports and names of a thousand StatefulSets are the same, and each
// would have its own copy from the API server. Nobody writes into objects of a cache, so that they may be one.
package alike

import (
	"hash/maphash"
	"reflect"
	"sync"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// places is how many objects are remembered, to share with the next ones. One that is forgotten costs the next its sharing, nothing else.
const places = 256

// memory holds the last objects, each at the place of its key.
type memory struct {
	mutex sync.Mutex
	seed  maphash.Seed
	last  [places]reflect.Value
}

// Transform is the transform of a cache that does first, and then lets each object share with the last one of its type that has the
// same key. Without a key, that is the last one of its type.
func Transform(first cache.TransformFunc, key func(client.Object) string) cache.TransformFunc {
	remembered := &memory{seed: maphash.MakeSeed()}
	return func(in any) (any, error) {
		out, err := first(in)
		if err != nil {
			return out, err
		}
		if object, ok := out.(client.Object); ok {
			place := reflect.TypeOf(object).String()
			if key != nil {
				place += key(object)
			}
			remembered.share(place, reflect.ValueOf(object))
		}
		return out, nil
	}
}

func (m *memory) share(place string, object reflect.Value) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	last := &m.last[maphash.String(m.seed, place)%places]
	if last.IsValid() && last.Type() == object.Type() {
		share(object.Elem(), last.Elem())
	}
	*last = object
}

// share replaces what is equal in the two values, as far down as needed, by what the other has.
func share(value, other reflect.Value) {
	if !value.CanSet() {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			share(value.Field(i), other.Field(i))
		}
	case reflect.String:
		if value.Len() > 0 && value.String() == other.String() {
			value.Set(other)
		}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if !value.IsNil() && !other.IsNil() {
			shareHeld(value, other)
		}
	default: // too small to share
	}
}

// shareHeld is share for what holds something: all of it, else its parts.
func shareHeld(value, other reflect.Value) {
	if reflect.DeepEqual(value.Interface(), other.Interface()) {
		value.Set(other)
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		share(value.Elem(), other.Elem())
	case reflect.Slice:
		for i := range min(value.Len(), other.Len()) {
			share(value.Index(i), other.Index(i))
		}
	default: // a map's entries cannot be set
	}
}
