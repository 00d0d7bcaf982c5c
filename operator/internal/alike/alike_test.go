package alike

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "shop-0", UID: "1", Labels: map[string]string{"app": "shop"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "shop", UID: "2", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 4000}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}},
		}}},
	}
}

func as(object any) (any, error) { return object, nil }

func owner(object client.Object) string { return string(object.GetOwnerReferences()[0].UID) }

func transformed(t *testing.T, transform cache.TransformFunc, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	in := pod()
	change(in)
	want := in.DeepCopy()
	got, err := transform(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("sharing changes the object (-want +got):\n%s", diff)
	}
	return got.(*corev1.Pod)
}

func TestShares(t *testing.T) {
	type shared struct{ Labels, Owners, Containers, Limits bool }
	for _, c := range []struct {
		what   string
		change func(*corev1.Pod)
		key    func(client.Object) string
		want   shared
	}{
		{"the same but its name", func(p *corev1.Pod) { p.Name, p.UID = "shop-1", "11" }, nil, shared{true, true, true, true}},
		{"another label", func(p *corev1.Pod) { p.Labels["app"] = "blog" }, nil, shared{false, true, true, true}},
		{"another port, the same limits", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort++ }, nil, shared{true, true, false, true}},
		{"one container more", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar"})
		}, nil, shared{true, true, false, true}},
		{"of the same owner", func(*corev1.Pod) {}, owner, shared{true, true, true, true}},
		{"of another owner", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "3" }, owner, shared{}},
	} {
		transform := Transform(as, c.key)
		first := transformed(t, transform, func(*corev1.Pod) {})
		whole := first.DeepCopy()
		second := transformed(t, transform, c.change)
		got := shared{
			reflect.ValueOf(first.Labels).Pointer() == reflect.ValueOf(second.Labels).Pointer(),
			&first.OwnerReferences[0] == &second.OwnerReferences[0],
			&first.Spec.Containers[0] == &second.Spec.Containers[0],
			reflect.ValueOf(first.Spec.Containers[0].Resources.Limits).Pointer() == reflect.ValueOf(second.Spec.Containers[0].Resources.Limits).Pointer(),
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
		if diff := cmp.Diff(whole, first); diff != "" {
			t.Errorf("%s: the first one was changed (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestLeavesOthersAlone(t *testing.T) {
	transform := Transform(as, nil)
	for _, object := range []any{"deleted", nil, cache.DeletedFinalStateUnknown{Key: "web/shop-0"}} {
		if got, err := transform(object); err != nil || got != object {
			t.Errorf("transform(%v) = %v, %v", object, got, err)
		}
	}
	if _, err := transform(pod()); err != nil {
		t.Error(err)
	}
	if _, err := transform(&corev1.Secret{}); err != nil {
		t.Errorf("a Secret after a pod: %v", err)
	}
	wrong := errors.New("wrong")
	failing := Transform(func(any) (any, error) { return nil, wrong }, nil)
	if _, err := failing(pod()); !errors.Is(err, wrong) {
		t.Errorf("the error is %v, want that of the first transform", err)
	}
}
