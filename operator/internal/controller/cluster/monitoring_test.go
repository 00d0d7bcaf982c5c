package cluster

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// prometheus-operator may be installed after the fleet: no restart is needed.
func TestPodMonitor(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Monitoring.PodMonitor.Enabled = true
		spec.Monitoring.PodMonitor.Labels = map[string]string{"release": "one"}
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonPodMonitorMissing,
		"monitoring.coreos.com/v1 PodMonitor", "install prometheus-operator", "set enabled to false")
	await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{})

	suite.Must(t, api.Create(t.Context(), foreignDefinition("podmonitors", fleet.PodMonitorKind)))
	hasLabel(t, cluster, "one")
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonReconciled)

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Monitoring.PodMonitor.Labels["release"] = "two" })
	hasLabel(t, cluster, "two")

	comeToRest(t, cluster, usualNode)
	suite.Eventually(t, func() error {
		if again := looksAgain(t, cluster).RequeueAfter; again != lookAtOthers {
			return fmt.Errorf("a PodMonitor, which is not watched, is looked up in %s, want %s", again, lookAtOthers)
		}
		return nil
	})
	suite.Must(t, api.Delete(t.Context(), podMonitor(cluster)))
	suite.Eventually(t, func() error {
		looksAgain(t, cluster)
		return get(t, podMonitor(cluster))
	})

	refusedPodMonitor(t)

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Monitoring.PodMonitor.Enabled = false })
	suite.Eventually(t, func() error {
		made := podMonitor(cluster)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
			return errors.New("the PodMonitor is still there")
		}
		return nil
	})
	suite.Eventually(t, func() error {
		if name := await(t, cluster.Namespace, "shop", &v1alpha1.LiveStashCluster{}).Status.PodMonitor; name != "" {
			return fmt.Errorf("status.podMonitor = %q", name)
		}
		return nil
	})
}

// refusedPodMonitor: one that the API server does not take holds up no rollout.
func refusedPodMonitor(t *testing.T) {
	t.Helper()
	cluster, _ := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Monitoring.PodMonitor.Enabled = true
		spec.Monitoring.PodMonitor.Labels = map[string]string{"release": "no label!"}
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonInvalidSpec, "spec.monitoring.podMonitor.labels: ", "a valid label")
	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	acted(t, cluster, "a", "b")
	stops(t, cluster, "shop-1")
}

func podMonitor(cluster *v1alpha1.LiveStashCluster) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(fleet.PodMonitorKind)
	object.SetNamespace(cluster.Namespace)
	object.SetName(cluster.Name)
	return object
}

func hasLabel(t *testing.T, cluster *v1alpha1.LiveStashCluster, release string) {
	t.Helper()
	suite.Eventually(t, func() error {
		made := podMonitor(cluster)
		err := api.Get(t.Context(), client.ObjectKeyFromObject(made), made)
		if err == nil && made.GetLabels()["release"] != release {
			err = fmt.Errorf("the label release is %q", made.GetLabels()["release"])
		}
		return err
	})
}
