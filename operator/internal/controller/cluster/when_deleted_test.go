package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// retaining is a fleet of whose objects all are kept that can be.
func retaining(sized func(string) func(*v1alpha1.LiveStashClusterSpec)) func(*v1alpha1.LiveStashClusterSpec) {
	return func(spec *v1alpha1.LiveStashClusterSpec) {
		sized("1Gi")(spec)
		withTLS(spec)
		spec.Redis.Managed.TLS = &v1alpha1.RedisTLS{Enabled: true}
		spec.Clustering.CookieGeneration = ptr.To[int32](2)
		spec.WhenDeleted = v1alpha1.DeletionRetain
	}
}

// fleetObjects are all objects of the fleet of kinds that it has children of.
func fleetObjects(t *testing.T, namespace string) []client.Object {
	t.Helper()
	var found []client.Object
	for _, kind := range append([]schema.GroupVersionKind{secretMetadataObject().GroupVersionKind(), corev1.SchemeGroupVersion.WithKind("ConfigMap")}, prunedKinds...) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		suite.Must(t, api.List(t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{render.ClusterLabel: "shop"}))
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			found = append(found, &list.Items[i])
		}
	}
	return found
}

// deleted plays the deletion of a LiveStashCluster, and the garbage collector. It returns what is left of the fleet.
func deleted(t *testing.T, cluster *v1alpha1.LiveStashCluster) (left []string) {
	t.Helper()
	suite.Must(t, api.Delete(t.Context(), cluster))
	suite.Eventually(t, func() error {
		left = nil
		var collected []string // a pass that was under way may make some of them again
		for _, object := range fleetObjects(t, cluster.Namespace) {
			name := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
			if len(object.GetOwnerReferences()) == 0 {
				left = append(left, name)
				continue
			}
			if owner := object.GetOwnerReferences()[0]; owner.UID != cluster.UID {
				t.Errorf("%s is owned by %+v", name, owner)
			}
			collected = append(collected, name)
			suite.Must(t, client.IgnoreNotFound(api.Delete(t.Context(), object, client.GracePeriodSeconds(0))))
			without := object.DeepCopyObject().(client.Object)
			without.SetFinalizers(nil)
			suite.Must(t, client.IgnoreNotFound(api.Patch(t.Context(), without, client.MergeFrom(object))))
		}
		if len(collected) > 0 {
			return fmt.Errorf("there were %v", collected)
		}
		return nil
	})
	return left
}

var retained = []string{"Secret shop-cookie-2", "Secret shop-distribution-ca", "Secret shop-secrets", "PersistentVolumeClaim shop-redis-data"}

// What no session goes on without outlives its LiveStashCluster, nothing else does, and the next one of that name has it.
func TestWhatIsRetained(t *testing.T) {
	_, sized := storageClass(t, "retain-test")
	namespace := suite.Namespace(t, api)
	first := newCluster(t, namespace, retaining(sized))
	reconciled(t, first)
	hasVolume(t, first, "1Gi")
	rests(t, first)
	before := values(t, namespace)
	rolledOut(t, namespace, "shop")
	// Backups under other names, with all that is noted on the original, are their makers' own.
	secret := await(t, namespace, "shop-secrets", &corev1.Secret{})
	for name, note := range map[string]string{"backup": secret.Annotations[render.KeptAnnotation], "backup-of-before": string(first.UID)} {
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: secret.Labels}, Data: secret.Data}
		copied.Annotations = render.Merged(secret.Annotations, map[string]string{render.KeptAnnotation: note})
		suite.Must(t, api.Create(t.Context(), copied))
		rests(t, first)
		suite.Must(t, get(t, copied))
		suite.Must(t, api.Delete(t.Context(), copied))
	}
	// What an earlier operator has noted is noted anew, also on a volume that the spec does not want any more and that somebody has to give up first.
	changeSpec(t, first, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Redis.Managed.Persistence = nil })
	conditionSays(t, first, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonStoreChangeHeld)
	for _, object := range []client.Object{secret, await(t, namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{})} {
		before := object.DeepCopyObject().(client.Object)
		object.SetAnnotations(render.Merged(object.GetAnnotations(), map[string]string{render.KeptAnnotation: string(first.UID)}))
		suite.Must(t, api.Patch(t.Context(), object, client.MergeFrom(before)))
		suite.Eventually(t, func() error {
			if err := get(t, object); err != nil || object.GetAnnotations()[render.KeptAnnotation] != render.KeptFor(first, object) {
				return fmt.Errorf("on %s is noted %q, %w", object.GetName(), object.GetAnnotations()[render.KeptAnnotation], err)
			}
			return nil
		})
	}
	suite.Must(t, get(t, first))
	changeSpec(t, first, retaining(sized))
	reconciled(t, first)
	if diff := cmp.Diff(retained, deleted(t, first)); diff != "" {
		t.Fatalf("left (-want +got):\n%s", diff)
	}

	second := newCluster(t, namespace, retaining(sized))
	reconciled(t, second)
	if diff := cmp.Diff(before, values(t, namespace)); diff != "" {
		t.Errorf("what users' sessions are signed with (-before +after):\n%s", diff)
	}
	eventSays(t, namespace, v1alpha1.ReasonTakenBack, strings.Join([]string{"PersistentVolumeClaim shop-redis-data", "Secret shop-secrets", "Secret shop-cookie-2", "Secret shop-distribution-ca"}, ", "))
	hasVolume(t, second, "1Gi")
	rests(t, second)
	if diff := cmp.Diff(retained, deleted(t, second)); diff != "" {
		t.Fatalf("left by the second one (-want +got):\n%s", diff)
	}

	third := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		retaining(sized)(spec)
		spec.WhenDeleted = ""
	})
	reconciled(t, third)
	if diff := cmp.Diff(before, values(t, namespace)); diff != "" {
		t.Errorf("what users' sessions are signed with (-before +after):\n%s", diff)
	}
	if left := deleted(t, third); left != nil {
		t.Errorf("left by one that keeps nothing: %v", left)
	}
}

// rests checks that the operator has nothing more to write.
func rests(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	suite.Eventually(t, func() error {
		before := len(written.of(cluster.Namespace))
		looks(t, cluster, "with whenDeleted "+string(cluster.Spec.WhenDeleted))
		if now := written.of(cluster.Namespace); len(now) != before {
			return fmt.Errorf("with whenDeleted %s the operator writes again and again: %v", cluster.Spec.WhenDeleted, now[before:])
		}
		return nil
	})
}

// values are what no session goes on without, by the UIDs of what they are in.
func values(t *testing.T, namespace string) map[string]string {
	t.Helper()
	secret := await(t, namespace, "shop-secrets", &corev1.Secret{})
	authority := await(t, namespace, "shop-distribution-ca", &corev1.Secret{})
	return map[string]string{
		"secret-key-base": string(secret.Data["secret-key-base"]), "Secret": string(secret.UID),
		"cookie":    string(await(t, namespace, "shop-cookie-2", &corev1.Secret{}).Data["cookie"]),
		"authority": string(authority.Data[corev1.TLSCertKey]),
		"volume":    string(await(t, namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{}).UID),
	}
}

// The word may be given and taken back while the fleet runs. No pod notices.
func TestWhenDeletedChanges(t *testing.T) {
	_, sized := storageClass(t, "retain-change-test")
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		retaining(sized)(spec)
		spec.WhenDeleted = v1alpha1.DeletionDelete
	})
	reconciled(t, cluster)
	hasVolume(t, cluster, "1Gi")
	generations := func() string {
		return fmt.Sprint(fleetSet(t, cluster).Generation, await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Generation)
	}
	before := generations()
	for _, step := range []struct {
		policy v1alpha1.DeletionPolicy
		kept   []string
	}{{v1alpha1.DeletionRetain, retained}, {v1alpha1.DeletionDelete, nil}, {v1alpha1.DeletionRetain, retained}} {
		changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.WhenDeleted = step.policy })
		suite.Eventually(t, func() error {
			var without []string
			for _, object := range fleetObjects(t, cluster.Namespace) {
				if len(object.GetOwnerReferences()) == 0 {
					without = append(without, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
				}
			}
			if diff := cmp.Diff(step.kept, without); diff != "" {
				return fmt.Errorf("with %s, kept are (-want +got):\n%s", step.policy, diff)
			}
			return nil
		})
		reconciled(t, cluster)
		rests(t, cluster)
	}
	if now := generations(); now != before {
		t.Errorf("the generations of the StatefulSets were %s and are %s", before, now)
	}

	// A volume that is given up goes, though it would outlive the LiveStashCluster.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter, spec.Redis, spec.AcceptLossOf = v1alpha1.AdapterETS, nil, v1alpha1.AdapterRedis
	})
	suite.Eventually(t, func() error {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-redis-data"}}
		if err := get(t, claim); err == nil && claim.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the volume is still there")
		}
		return nil
	})
}
