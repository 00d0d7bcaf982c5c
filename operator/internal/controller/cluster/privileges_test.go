package cluster

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// What the API server cannot see, a condition tells, and nothing is made: neither pods, nor what runs before them.
func TestPrivilegedPodsAreNotMade(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = podTemplate(t, `{"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}`)
		spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"/bin/true"}}
	})
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	if !strings.Contains(message, "volumes[root]") || !strings.Contains(message, "allowPrivilegedPodTemplates") {
		t.Errorf("the condition says %q", message)
	}
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}
	}
	if err := get(t, &appsv1.StatefulSet{ObjectMeta: named("shop")}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a StatefulSet: %v", err)
	}
	if err := get(t, &batchv1.Job{ObjectMeta: named(fleet.BeforeName(cluster))}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Job: %v", err)
	}

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate, spec.Rollout.Before = nil, nil
		spec.ServiceAccount.Annotations = map[string]string{"iam.gke.io/gcp-service-account": "shop@acme"}
	})
	reconciled(t, cluster)
	account := await(t, cluster.Namespace, "shop", &corev1.ServiceAccount{})
	if account.Annotations["iam.gke.io/gcp-service-account"] != "shop@acme" {
		t.Errorf("the ServiceAccount has %v", account.Annotations)
	}
}

// A ServiceAccount of somebody else's that has the fleet's name lends its rights to no pod of the fleet, nor to what runs before them.
func TestForeignServiceAccountIsNotUsed(t *testing.T) {
	namespace := suite.Namespace(t, api)
	suite.Must(t, api.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}))
	cluster := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = podTemplate(t, `{"automountServiceAccountToken": true}`)
		spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"/bin/true"}}
	})
	condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, v1alpha1.ReasonNameConflict)
	if err := get(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a StatefulSet: %v", err)
	}
	jobs := &batchv1.JobList{}
	suite.Must(t, api.List(t.Context(), jobs))
	for i := range jobs.Items {
		if jobs.Items[i].Namespace == namespace {
			t.Errorf("there is a Job: %s", jobs.Items[i].Name)
		}
	}
}
