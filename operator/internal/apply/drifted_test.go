package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// drifts applies an object, has somebody edit it as `kubectl edit` would, and applies it again, which must cost that many requests.
func drifts[T client.Object](t *testing.T, object func() T, edit func(T), requests int64) T {
	t.Helper()
	owner, ctx := newOwner(t), t.Context()
	wanted := func() T {
		made := object()
		return of(owner, made.GetObjectKind().GroupVersionKind(), "web", made)
	}
	one := func() error {
		_, err := underTest.One(ctx, owner, wanted())
		return err
	}
	suite.Must(t, one())
	live := read(t, wanted())
	before := live.DeepCopyObject().(client.Object)
	edit(live)
	suite.Must(t, api.Patch(ctx, live, client.StrategicMergeFrom(before)))
	costs(t, requests, one)
	costs(t, 0, one)
	return read(t, wanted())
}

// A Service whose entry somebody has changed must be as wanted again, and have no second entry of the same name.
func TestServiceThatSomebodyEdited(t *testing.T) {
	wanted := func() *corev1.Service {
		service := &corev1.Service{Spec: corev1.ServiceSpec{
			Selector: map[string]string{"a": "b"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")},
				{Name: "epmd", Port: 4369, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("epmd")},
			},
		}}
		service.SetGroupVersionKind(serviceKind)
		return service
	}
	port := func(service *corev1.Service) *corev1.ServicePort { return &service.Spec.Ports[0] }
	cases := map[string]struct {
		edit     func(*corev1.Service)
		requests int64
	}{
		"port":                {func(s *corev1.Service) { port(s).Port = 8080 }, 3},
		"protocol":            {func(s *corev1.Service) { port(s).Protocol = corev1.ProtocolUDP }, 3},
		"target port":         {func(s *corev1.Service) { port(s).TargetPort = intstr.FromInt32(1) }, 1},
		"name":                {func(s *corev1.Service) { port(s).Name = "web" }, 1},
		"ports change places": {func(s *corev1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[1].Port = 4369, 80 }, 1},
		"selector":            {func(s *corev1.Service) { s.Spec.Selector["c"] = "d" }, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live := drifts(t, wanted, c.edit, c.requests)
			if diff := cmp.Diff(wanted().Spec.Ports, live.Spec.Ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wanted().Spec.Selector, live.Spec.Selector); diff != "" {
				t.Errorf("selector (-want +got):\n%s", diff)
			}
		})
	}
}

// A port of somebody else's stays, as long as it is not in the way.
func TestPortOfSomebodyElse(t *testing.T) {
	theirs := corev1.ServicePort{Name: "theirs", Port: 1, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(1)}
	live := drifts(t, func() *corev1.Service {
		service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(80)}}}}
		service.SetGroupVersionKind(serviceKind)
		return service
	}, func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, theirs) }, 0)
	if len(live.Spec.Ports) != 2 {
		t.Errorf("ports %v", live.Spec.Ports)
	}
}

func TestContainerPortThatSomebodyEdited(t *testing.T) {
	owner := newOwner(t)
	wanted := func() *appsv1.StatefulSet {
		set := statefulSet(owner)
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 4000, Protocol: corev1.ProtocolTCP}}
		return set
	}
	ports := func(set *appsv1.StatefulSet) []corev1.ContainerPort {
		return set.Spec.Template.Spec.Containers[0].Ports
	}
	live := drifts(t, wanted, func(set *appsv1.StatefulSet) { ports(set)[0].ContainerPort = 4001 }, 3)
	if diff := cmp.Diff(ports(wanted()), ports(live)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// What can never be as wanted is not changed by halves.
func TestWhatIsRefusedIsNotChanged(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	_, err := underTest.One(ctx, owner, statefulSet(owner))
	suite.Must(t, err)
	before := read(t, statefulSet(owner))
	wanted := statefulSet(owner)
	wanted.Spec.ServiceName, wanted.Spec.Template.Spec.Containers[0].Image = "other", "b"
	if _, err := underTest.One(ctx, owner, wanted); !apierrors.IsInvalid(err) {
		t.Errorf("One = %v", err)
	}
	if diff := cmp.Diff(before.Spec, read(t, statefulSet(owner)).Spec); diff != "" {
		t.Errorf("the StatefulSet (-before +after):\n%s", diff)
	}
}
