package apply

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// What is the owner's may be changed and deleted in its name, and nothing else may.
func TestOwns(t *testing.T) {
	owner := func(uid string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: types.UID(uid)}}
	}
	for name, test := range map[string]struct {
		uid, kept, controller string
		want                  bool
	}{
		"its own":                        {uid: "a", controller: "a", want: true},
		"of one of its name":             {uid: "a", controller: "b"},
		"nobody's":                       {uid: "a"},
		"kept for it":                    {uid: "a", kept: "a/object", want: true},
		"kept by an earlier operator":    {uid: "a", kept: "a", want: true},
		"a copy of what is kept":         {uid: "a", kept: "a/another"},
		"kept for another":               {uid: "a", kept: "b"},
		"kept for it, and another's":     {uid: "a", kept: "a/object", controller: "b"},
		"nobody's, of one without a UID": {},
	} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object"}}
		if test.kept != "" {
			object.Annotations = map[string]string{render.KeptAnnotation: test.kept}
		}
		if test.controller != "" {
			object.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner(test.controller), corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		}
		if got := Owns(owner(test.uid), object); got != test.want {
			t.Errorf("%s: owned: %t", name, got)
		}
	}
}
