// Package apply makes objects as they are wanted, with server-side apply, and leaves alone what is somebody else's.
package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the one field manager of everything that the operator writes.
const FieldOwner = client.FieldOwner("livestash-operator")

// Applier makes objects as they are wanted.
type Applier struct {
	// Writer writes to the API server.
	Writer client.Client

	// Known reads what is known of the objects: a cache, which need not hold those of others.
	Known client.Reader

	// Live reads from the API server.
	Live client.Reader

	// TakesBack is whether an owner may have what was applied for one of its name that is gone: see IsLeft.
	TakesBack bool
}

// Absent is the resource version that an object is to have which is only to be made, and not changed when there is one of its name. No
// object has it: the first write to a new etcd makes the second revision. A POST would do that too, but it leaves fields to a second
// field manager, which would keep those that are no longer wanted.
const Absent = "1"

// All applies the objects, in their order. One that cannot be applied does not stop the others, except those that are not there
// yet and need it: see needs. It returns what the API server answered, which is nothing for an object that was as wanted.
//
// An object with a resource version is applied to that version alone, or to none when it is Absent. When there is another one, what is
// wanted was made of something old: the error is the API server's conflict, and the objects after it are left alone.
func (a Applier) All(ctx context.Context, owner client.Object, objects []client.Object) ([]*unstructured.Unstructured, error) {
	var applied []*unstructured.Unstructured
	var taken *ConflictError
	var failures []error
	failed := map[string]bool{}
	for _, object := range objects {
		answer, err := a.one(ctx, owner, object, failed)
		var conflict *ConflictError
		switch {
		case apierrors.IsConflict(err):
			return applied, err
		case errors.As(err, &conflict):
			taken = taken.and(conflict)
		case err != nil:
			failures = append(failures, &FailedError{Object: kindAndName(object), Err: err})
		}
		failed[kindAndName(object)] = err != nil
		if answer != nil && err == nil {
			applied = append(applied, answer)
		}
	}
	if len(failures) == 0 && taken != nil {
		return applied, taken
	}
	if taken != nil {
		failures = append(failures, taken)
	}
	return applied, errors.Join(failures...)
}

// FailedError is that one of several objects could not be applied, for another reason than that its name is taken.
type FailedError struct {
	// Object is its kind and name.
	Object string
	Err    error
}

func (e *FailedError) Error() string { return e.Err.Error() }

func (e *FailedError) Unwrap() error { return e.Err }

// Failed is whether an error of All is, among others, that this object could not be applied.
func Failed(err error, object client.Object) bool {
	if several, are := err.(interface{ Unwrap() []error }); are {
		return slices.ContainsFunc(several.Unwrap(), func(one error) bool { return Failed(one, object) })
	}
	var failed *FailedError
	return errors.As(err, &failed) && failed.Object == kindAndName(object)
}

// One applies an object, as All does, unless it is known to be as wanted; then it returns nil.
func (a Applier) One(ctx context.Context, owner, desired client.Object) (*unstructured.Unstructured, error) {
	return a.one(ctx, owner, desired, nil)
}

func (a Applier) one(ctx context.Context, owner, desired client.Object, failed map[string]bool) (*unstructured.Unstructured, error) {
	want, err := configuration(desired)
	if err != nil {
		return nil, err
	}
	known, err := a.lookUp(ctx, desired)
	if err != nil {
		return nil, err
	}
	if known == nil {
		for _, need := range needs(desired) {
			if failed[need] {
				return nil, nil // what is wrong with that one is told already
			}
		}
		return want, a.create(ctx, owner, want, desired.GetResourceVersion())
	}
	if err := a.checkOwner(owner, known, want); err != nil {
		return nil, err
	}
	if asWanted, err := isAsWanted(known, want); err != nil || asWanted {
		return nil, err
	}
	return want, a.change(ctx, known, want, desired.GetResourceVersion())
}

// create makes an object that is not known. When there is one of that name all the same, it is changed if it is the owner's: somebody
// took the labels away that the cache knows it by, or the cache lags behind. In that case any version must do.
func (a Applier) create(ctx context.Context, owner client.Object, want *unstructured.Unstructured, version string) error {
	want.SetResourceVersion(cmp.Or(version, Absent))
	conflict := a.apply(ctx, want)
	if !apierrors.IsConflict(conflict) {
		return conflict
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	if err := a.Live.Get(ctx, client.ObjectKeyFromObject(want), live); err != nil {
		return fmt.Errorf("looking up %s: %w", kindAndName(want), err)
	}
	if err := a.checkOwner(owner, live, want); err != nil {
		return err
	}
	if version != "" && hasLabels(live, want.GetLabels()) {
		return conflict
	}
	return a.change(ctx, live, want, "")
}

// change applies to an object that is the owner's, and to no other that has got its name meanwhile: its UID makes that an
// error, and the next pass knows more. So does the version, unless it is empty. The force takes back what somebody else wrote into a
// wanted field.
func (a Applier) change(ctx context.Context, live client.Object, want *unstructured.Unstructured, version string) error {
	want.SetResourceVersion(version)
	want.SetUID(live.GetUID())
	err := a.apply(ctx, want, client.ForceOwnership)
	if apierrors.IsInvalid(err) && isOnDelete(want) {
		if err := a.dropRollingUpdate(ctx, want); err != nil {
			return err
		}
		err = a.apply(ctx, want, client.ForceOwnership)
	}
	if !apierrors.IsInvalid(err) || want.Object["spec"] == nil || a.replaceLists(ctx, want) != nil {
		return err // the first one tells best what is wrong
	}
	return a.apply(ctx, want, client.ForceOwnership)
}

func (a Applier) apply(ctx context.Context, want *unstructured.Unstructured, options ...client.ApplyOption) error {
	name := kindAndName(want)
	err := a.Writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), append(options, FieldOwner)...)
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	return nil
}

// makeWay takes what is in the way of applying out of the spec, of the object that want is to be applied to, and of no other version if
// want has one. Applying goes on from there.
func (a Applier) makeWay(ctx context.Context, want *unstructured.Unstructured, spec any) error {
	metadata := map[string]any{"uid": want.GetUID()}
	if version := want.GetResourceVersion(); version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return fmt.Errorf("encoding the spec of %s: %w", kindAndName(want), err)
	}
	changed := &unstructured.Unstructured{}
	changed.SetGroupVersionKind(want.GroupVersionKind())
	changed.SetNamespace(want.GetNamespace())
	changed.SetName(want.GetName())
	if err := a.Writer.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return fmt.Errorf("removing what is in the way in %s: %w", kindAndName(want), err)
	}
	if want.GetResourceVersion() != "" {
		want.SetResourceVersion(changed.GetResourceVersion())
	}
	return nil
}

// lookUp is the object with the kind and name of like. Nil when none is known. Of a kind of another operator the metadata is
// looked up: a lost object is made again, but what somebody else writes into its spec is not noticed. When such a kind is not
// served, the error is a meta.NoKindMatchError.
func (a Applier) lookUp(ctx context.Context, like client.Object) (client.Object, error) {
	kind := like.GetObjectKind().GroupVersionKind()
	found, err := a.empty(kind)
	if err != nil {
		return nil, err
	}
	err = a.Known.Get(ctx, client.ObjectKeyFromObject(like), found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", kindAndName(like), err)
	}
	found.GetObjectKind().SetGroupVersionKind(kind) // caches drop it
	return found, nil
}

func (a Applier) empty(kind schema.GroupVersionKind) (client.Object, error) {
	if !a.Writer.Scheme().Recognizes(kind) {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(kind)
		return metadata, nil
	}
	empty, err := a.Writer.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	return empty.(client.Object), nil
}

// CheckOwner returns a ConflictError unless the object is the owner's.
func (a Applier) CheckOwner(owner, object client.Object) error {
	if Owns(owner, object) {
		return nil
	}
	ownerKind, err := apiutil.GVKForObject(owner, a.Writer.Scheme())
	if err != nil {
		return err
	}
	kind, err := apiutil.GVKForObject(object, a.Writer.Scheme())
	if err != nil {
		return err
	}
	return &ConflictError{Owner: ownerKind.Kind, Objects: []string{kind.Kind + " " + object.GetName()}}
}

func kindAndName(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}
