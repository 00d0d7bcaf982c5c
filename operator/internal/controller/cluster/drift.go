package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// applyConfiguration is an object as server-side apply takes it: the wanted fields, no status, and their digest.
func applyConfiguration(desired client.Object) (*unstructured.Unstructured, error) {
	want, err := reconcile.Unstructured(desired)
	if err != nil {
		return nil, err
	}
	delete(want.Object, "status")
	text, err := json.Marshal(want.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", kindAndName(desired), err)
	}

	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	digest := sha256.Sum256(text)
	annotations[render.AppliedAnnotation] = hex.EncodeToString(digest[:8])
	want.SetAnnotations(annotations)
	return want, nil
}

// isAsWanted is whether applying would change nothing: the digest is of what is wanted now, and nobody has changed a
// wanted field since. It saves the request that would find that out.
func isAsWanted(live client.Object, want *unstructured.Unstructured) (bool, error) {
	if live.GetAnnotations()[render.AppliedAnnotation] != want.GetAnnotations()[render.AppliedAnnotation] {
		return false, nil
	}
	content, err := reconcile.Unstructured(live)
	if err != nil {
		return false, err
	}
	return covers(content.Object, want.Object), nil
}

// covers is whether have holds everything in want. It may hold more: defaults, and fields and list entries of others.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		// What is no object has no fields: it covers an empty one, which is dropped on the way through a typed object.
		fields, _ := have.(map[string]any)
		for key, value := range want {
			if !covers(fields[key], value) {
				return false
			}
		}
		return true
	case []any:
		entries, _ := have.([]any)
		return coversList(entries, want)
	default:
		return reflect.DeepEqual(have, want)
	}
}

// coversList matches each wanted entry with some entry that covers it: the entries of others may stand between.
func coversList(have, want []any) bool {
	for _, value := range want {
		found := false
		for _, candidate := range have {
			if covers(candidate, value) {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
