package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// A mistake of a user's is one line of the operator's log, at level info, and is looked at again within half a minute.
func TestAMistakeIsOneLine(t *testing.T) {
	cases := map[string]struct {
		before func(t *testing.T, namespace string)
		spec   func(*v1alpha1.LiveStashClusterSpec)
		reason string
		says   string
	}{
		"a missing Secret": {
			spec: func(spec *v1alpha1.LiveStashClusterSpec) {
				spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "base"}}
			},
			reason: v1alpha1.ReasonSecretMissing, says: "Secret own does not exist",
		},
		"a name that is taken": {
			before: func(t *testing.T, namespace string) {
				suite.Must(t, api.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}))
			},
			reason: v1alpha1.ReasonNameConflict, says: "ServiceAccount shop exists",
		},
		"a Secret's name that is taken": {
			before: func(t *testing.T, namespace string) {
				suite.Must(t, api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop-secrets"}}))
			},
			reason: v1alpha1.ReasonNameConflict, says: "Secret shop-secrets exists",
		},
		"a quota": {
			before: noServices,
			reason: v1alpha1.ReasonAPIError, says: "exceeded quota: none",
		},
		"a quota, and a name that is taken": {
			before: func(t *testing.T, namespace string) {
				noServices(t, namespace)
				suite.Must(t, api.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}))
			},
			reason: v1alpha1.ReasonNameConflict, says: "ServiceAccount shop exists",
		},
		"a pod that the API server refuses": {
			spec: func(spec *v1alpha1.LiveStashClusterSpec) {
				spec.PodTemplate = podTemplate(t, `{"containers": [{"name": "side", "image": "a", "volumeMounts": [{"name": "none", "mountPath": "/none"}]}]}`)
			},
			reason: v1alpha1.ReasonAPIError, says: `Not found: "none"`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := suite.Namespace(t, api)
			if c.before != nil {
				c.before(t, namespace)
			}
			cluster := newCluster(t, namespace, c.spec)
			message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, c.reason)
			if !strings.Contains(message, c.says) {
				t.Errorf("the condition says %q, want %q", message, c.says)
			}
			for range 3 {
				result, err := underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
				isWatched := strings.Contains(c.says, "Secret")
				if err != nil || !isWatched && (result.RequeueAfter <= 0 || result.RequeueAfter > apply.ConflictRetry) {
					t.Errorf("Reconcile = %+v, %v", result, err)
				}
			}
			var lines []string
			for line := range strings.SplitSeq(logs.String(), "\n") {
				if strings.Contains(line, namespace) && !strings.Contains(line, "\tDEBUG\t") {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 || !strings.Contains(lines[0], "\tINFO\t") || !strings.Contains(lines[0], c.reason) {
				t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
			}
		})
	}
}

// noServices is a quota that has room for no Service.
func noServices(t *testing.T, namespace string) {
	t.Helper()
	none := corev1.ResourceList{corev1.ResourceServices: quantity("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	suite.Must(t, api.Create(t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	suite.Must(t, api.Status().Update(t.Context(), quota))
	// The API server learns of it a moment later.
	suite.Eventually(t, func() error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "any"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		if err := api.Create(t.Context(), service, client.DryRunAll); err == nil {
			return fmt.Errorf("there is room for a Service in %s", namespace)
		}
		return nil
	})
}

// What a child's failure does not stop: all others.
func TestAChildThatIsRefusedStopsNoOther(t *testing.T) {
	namespace := suite.Namespace(t, api)
	cluster := newCluster(t, namespace, nil)
	reconciled(t, cluster)
	noServices(t, namespace)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	suite.Must(t, api.Delete(t.Context(), service))
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		seven := int32(7)
		spec.Replicas = &seven
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonAPIError, "applying Service shop", "exceeded quota: none")
	suite.Eventually(t, func() error {
		if got := *fleetSet(t, cluster).Spec.Replicas; got != 7 {
			return fmt.Errorf("%d replicas", got)
		}
		return get(t, cluster)
	})
	if found := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady); found == nil || found.Status != metav1.ConditionFalse {
		t.Errorf("Ready is %+v", found)
	}
}
