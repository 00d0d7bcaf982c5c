package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Annotation is on every object that is applied: a digest of it.
const Annotation = render.AppliedAnnotation

// configuration is an object as server-side apply takes it: the wanted fields, no status, and their digest.
func configuration(desired client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", kindAndName(desired), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "resourceVersion") // whose that is, is no part of what is wanted
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", kindAndName(desired), err)
	}

	want := &unstructured.Unstructured{Object: content}
	annotations := want.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	digest := sha256.Sum256(text)
	annotations[Annotation] = hex.EncodeToString(digest[:8])
	want.SetAnnotations(annotations)
	return want, nil
}

// isAsWanted is whether applying would change nothing: the digest is of what is wanted now, and nobody has changed a
// wanted field since. It saves the request that would find that out.
func isAsWanted(live client.Object, want *unstructured.Unstructured) (bool, error) {
	if live.GetAnnotations()[Annotation] != want.GetAnnotations()[Annotation] {
		return false, nil
	}
	if _, metadata := live.(*metav1.PartialObjectMetadata); metadata {
		return true, nil // as far as one can tell
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, fmt.Errorf("converting %s: %w", kindAndName(want), err)
	}
	return covers(content, want.Object), nil
}

// Covers is whether have, an object or a part of one, holds everything in want, which is of the same type. It may hold more.
func Covers(have, want any) (bool, error) {
	var content [2]map[string]any
	for i, part := range []any{have, want} {
		var err error
		content[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(part)
		if err != nil {
			return false, fmt.Errorf("converting a %T: %w", part, err)
		}
	}
	return covers(content[0], content[1]), nil
}

// covers is whether have holds everything in want. It may hold more: defaults, and fields and list entries of others, but not in a
// selector, which would select something else. A wanted null is covered by a field that is not there.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		// What is no object has no fields: it covers an empty one, which is dropped on the way through a typed object.
		fields, _ := have.(map[string]any)
		for key, value := range want {
			if !covers(fields[key], value) || isSelector(key) && fields[key] != nil && !covers(value, fields[key]) {
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

// isSelector is whether a field of that name is one: selector, podSelector, labelSelector, nodeSelector.
func isSelector(field string) bool { return strings.HasSuffix(field, "elector") }

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
