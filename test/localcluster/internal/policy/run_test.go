package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestKeep changes what the rules are made of, one thing after the other, and waits for what that does to them.
func TestKeep(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{PodIP: "10.244.0.2"}},
	)
	written, refused, ended := make(chan string, 100), false, make(chan error, 1)
	go func() {
		ended <- keep(ctx, client, everyNode, func(rules string) error {
			if !refused {
				refused = true
				return errors.New("not this time")
			}
			written <- rules
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	const closed = "ip daddr vmap { 10.244.0.2 : jump ingress_10.244.0.2 }"
	policies, pods, namespaces := client.NetworkingV1().NetworkPolicies("shop"), client.CoreV1().Pods("shop"), client.CoreV1().Namespaces()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"}}
	policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}},
	}}}
	for _, step := range []struct {
		name      string
		do        func() error
		has, lack string
	}{
		{"a second try when the first fails", func() error { return nil }, "ip daddr != { 10.244.0.2 } drop", closed},
		{"a new policy", func() error {
			_, err := policies.Create(ctx, policy, metav1.CreateOptions{})
			return err
		}, closed, "10.244.0.3"},
		{"a new pod", func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "two"}, Status: corev1.PodStatus{PodIP: "10.244.0.3"}}
			_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			return err
		}, "jump ingress_10.244.0.3", "ip saddr { 10.244.0.2, 10.244.0.3 } return"},
		{"a label of a namespace", func() error {
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}}
			_, err := namespaces.Update(ctx, shop, metav1.UpdateOptions{})
			return err
		}, "ip saddr { 10.244.0.2, 10.244.0.3 } return", "\n\n"},
		{"a pod that is gone", func() error { return pods.Delete(ctx, "two", metav1.DeleteOptions{}) }, "ip saddr { 10.244.0.2 } return", "10.244.0.3"},
		{"a policy that is gone", func() error { return policies.Delete(ctx, "one", metav1.DeleteOptions{}) }, "{ 10.244.0.2 } drop", closed},
	} {
		must(t, step.do())
		deadline, last := time.After(20*time.Second), ""
		for !strings.Contains(last, step.has) || strings.Contains(last, step.lack) {
			select {
			case last = <-written:
			case <-deadline:
				t.Fatalf("%s: the rules are\n%s", step.name, last)
			}
		}
	}
}
