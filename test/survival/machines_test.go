package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

func TestOneMachineLosesItsOwnWithETSOnly(t *testing.T) {
	t.Parallel()
	one := crowd.Report{Lost: 2, Pods: map[string]crowd.Pod{"a": {Lost: 2}, "b": {}}}
	two := crowd.Report{Lost: 2, Pods: map[string]crowd.Pod{"a": {Lost: 1}, "b": {Lost: 1}}}
	for _, c := range []struct {
		adapter string
		report  crowd.Report
		says    string
	}{
		{"ETS", one, ""}, {"ETS", two, "of a and b"}, {"Mnesia", one, "2 sessions lost"}, {"Mnesia", crowd.Report{}, ""},
	} {
		if got := oneMachine(options{})(c.adapter, c.report); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
			t.Errorf("%s: %q, want %q", c.adapter, got, c.says)
		}
	}
}

// The node that is lost has a pod of the fleet, and neither its users nor its store. Others' pods count when there is a choice.
func TestTheNodeThatIsLost(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name, node, component string) runtime.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/component": component}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	shop := []runtime.Object{
		pod("shop", "shop-0", "n1", fleet.Component), pod("shop", "shop-1", "n2", fleet.Component), pod("shop", "shop-2", "n3", fleet.Component),
		pod("shop", "crowd", "n1", ""),
	}
	for name, c := range map[string]struct {
		pods []runtime.Object
		want string
	}{
		"not that of the users":      {shop, "n2"},
		"not that of the store":      {append(shop[:4:4], pod("shop", "shop-redis-0", "n2", "redis")), "n3"},
		"rather not that of the DNS": {append(shop[:4:4], pod("kube-system", "coredns", "n2", "")), "n3"},
		"none":                       {[]runtime.Object{shop[0], shop[3]}, ""},
	} {
		d := &driver{Cluster: &fleet.Cluster{Interface: fake.NewClientset(c.pods...)}}
		got, err := d.victim(t.Context(), []*subject{{Fleet: &fleet.Fleet{Namespace: "shop"}}})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}
