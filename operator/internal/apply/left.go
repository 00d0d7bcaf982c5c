package apply

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// `kubectl delete --cascade=orphan` deletes an owner and leaves what it owned, without an owner. When the owner is made again, it is a new
// one, and has to take that back: with a Secret of another content, for example, it would lose what the old one kept.

// IsLeft is whether an object has no owner, and all labels that objects of an owner have.
func IsLeft(object client.Object, labels map[string]string) bool {
	return len(object.GetOwnerReferences()) == 0 && object.GetDeletionTimestamp().IsZero() && len(labels) > 0 && hasLabels(object, labels)
}

func hasLabels(object client.Object, labels map[string]string) bool {
	has := object.GetLabels()
	for name, value := range labels {
		if has[name] != value {
			return false
		}
	}
	return true
}

// Owns is whether an object is the owner's, which controls it, or has it kept.
func Owns(owner, object client.Object) bool {
	return metav1.IsControlledBy(object, owner) || isKept(owner, object, render.KeptFor(owner, object)) || isKept(owner, object, string(owner.GetUID()))
}

// isKept is whether the object has no owner, and that note. An earlier operator noted no name, so it may be a user's copy of what was kept.
func isKept(owner, object client.Object, note string) bool {
	return owner.GetUID() != "" && len(object.GetOwnerReferences()) == 0 && object.GetAnnotations()[render.KeptAnnotation] == note
}

// checkOwner returns a ConflictError unless the owner controls the object, or may take it back.
func (a Applier) checkOwner(owner, live, want client.Object) error {
	if a.TakesBack && live.GetAnnotations()[Annotation] != "" && IsLeft(live, want.GetLabels()) {
		return nil
	}
	return a.CheckOwner(owner, live)
}
