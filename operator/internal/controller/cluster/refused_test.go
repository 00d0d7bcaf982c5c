package cluster

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// refuses plays a controller whose pod the API server has refused a moment ago.
func refuses(t *testing.T, kind string, object client.Object, message string) {
	t.Helper()
	suite.Must(t, api.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), GenerateName: object.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		Reason:         "FailedCreate", Message: message, LastTimestamp: metav1.NewTime(time.Now().Add(5 * time.Second)),
	}))
}

// What the API server says of a pod that is refused is told within seconds, whoever makes the pod.
func TestARefusedPodIsTold(t *testing.T) {
	cases := map[string]struct {
		spec   func(*v1alpha1.LiveStashClusterSpec)
		refuse func(t *testing.T, cluster *v1alpha1.LiveStashCluster, words string)
		words  string
	}{
		"of a new fleet": {
			refuse: func(t *testing.T, cluster *v1alpha1.LiveStashCluster, words string) {
				set := fleetSet(t, cluster)
				suite.Eventually(t, func() error {
					return setStatus(t, cluster, appsv1.StatefulSetStatus{ObservedGeneration: set.Generation})
				})
				refuses(t, "StatefulSet", set, words)
			},
			words: `create Pod shop-0 in StatefulSet shop failed error: pods "shop-0" is forbidden: error looking up service account web/own: serviceaccount "own" not found`,
		},
		"of Redis": {
			spec: managedRedisFleet,
			refuse: func(t *testing.T, cluster *v1alpha1.LiveStashCluster, words string) {
				set := &appsv1.StatefulSet{}
				suite.Eventually(t, func() error {
					set = await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
					set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation}
					return api.Status().Update(t.Context(), set)
				})
				refuses(t, "StatefulSet", set, words)
				serves(t, fleetPod(t, cluster, 0, "a"), wellAmong(2, "shop-0"))
				serves(t, fleetPod(t, cluster, 1, "a"), wellAmong(2, "shop-1"))
			},
			words: `create Pod shop-redis-0 in StatefulSet shop-redis failed error: pods "shop-redis-0" is forbidden: exceeded quota: small`,
		},
		"of the Job before a rollout": {
			spec: migrates,
			refuse: func(t *testing.T, cluster *v1alpha1.LiveStashCluster, words string) {
				refuses(t, "Job", await(t, cluster.Namespace, "shop-before", &batchv1.Job{}), words)
			},
			words: `Error creating: pods "shop-before-abcde" is forbidden: maximum memory usage per Container is 64Mi`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
				spec.Replicas = ptr.To[int32](2)
				if c.spec != nil {
					c.spec(spec)
				}
			})
			c.refuse(t, cluster, c.words)
			later(t, cluster, missingFor)
			conditionSays(t, cluster, v1alpha1.ConditionStalled, v1alpha1.ReasonPodNotMade, c.words)
			conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonPodNotMade, c.words)
			eventSays(t, cluster.Namespace, v1alpha1.ReasonPodNotMade, c.words)
		})
	}
}
