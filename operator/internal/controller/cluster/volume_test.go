package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// storageClass makes one that cannot expand volumes, and says how a fleet wants one of that size from it.
func storageClass(t *testing.T, name string) (*storagev1.StorageClass, func(size string) func(*v1alpha1.LiveStashClusterSpec)) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/none"}
	suite.Must(t, api.Create(t.Context(), class))
	t.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	return class, func(size string) func(*v1alpha1.LiveStashClusterSpec) {
		return func(spec *v1alpha1.LiveStashClusterSpec) {
			spec.Adapter = v1alpha1.AdapterRedis
			spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{
				Persistence: &v1alpha1.RedisPersistence{StorageClassName: &name, Size: ptr.To(resource.MustParse(size))},
			}}
		}
	}
}

// claims waits until the volume is claimed for that size.
func claims(t *testing.T, cluster *v1alpha1.LiveStashCluster, size string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	suite.Eventually(t, func() error {
		claim = await(t, cluster.Namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{})
		if got := claim.Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(resource.MustParse(size)) != 0 {
			return fmt.Errorf("%s is claimed, want %s", got.String(), size)
		}
		return nil
	})
	return claim
}

// hasVolume plays the provisioner: the volume has that size.
func hasVolume(t *testing.T, cluster *v1alpha1.LiveStashCluster, size string) {
	t.Helper()
	claim := await(t, cluster.Namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{})
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	suite.Must(t, api.Status().Update(t.Context(), claim))
	suite.Eventually(t, func() error {
		suite.Must(t, get(t, cluster))
		if redis := cluster.Status.Redis; redis == nil || redis.VolumeSize == nil || redis.VolumeSize.Cmp(resource.MustParse(size)) != 0 {
			return fmt.Errorf("status.redis is %+v", redis)
		}
		return nil
	})
}

// A volume whose class cannot expand it stays as it is, and nothing else waits for it. What was never reached may be taken back.
func TestAVolumeThatCannotGrow(t *testing.T) {
	class, sized := storageClass(t, "volume-test")
	cluster := newCluster(t, suite.Namespace(t, api), sized("1Gi"))
	reconciled(t, cluster)
	hasVolume(t, cluster, "1Gi")

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		sized("2Gi")(spec)
		spec.Replicas = ptr.To[int32](7)
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonVolumeCannotGrow,
		"persistence.size is 2Gi, the volume has 1Gi, and its StorageClass volume-test cannot expand volumes", "set size back to 1Gi")
	conditionSays(t, cluster, v1alpha1.ConditionStalled, v1alpha1.ReasonVolumeCannotGrow, "set size back")
	claims(t, cluster, "1Gi")
	if got := *fleetSet(t, cluster).Spec.Replicas; got != 7 {
		t.Errorf("%d replicas", got)
	}
	// Nothing else waits for it.
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { migrates(spec); spec.Image = "another" })
	jobFor(t, cluster, "another")
	suite.Must(t, get(t, cluster))
	changeSpec(t, cluster, sized("1Gi"))
	reconciled(t, cluster)

	class.AllowVolumeExpansion = ptr.To(true)
	suite.Must(t, api.Update(t.Context(), class))
	for _, step := range []struct{ wanted, claimed string }{{"3Gi", "3Gi"}, {"2Gi", "2Gi"}, {"1Gi", "2Gi"}} {
		suite.Must(t, get(t, cluster))
		changeSpec(t, cluster, sized(step.wanted))
		reconciled(t, cluster)
		claims(t, cluster, step.claimed)
	}
	hasVolume(t, cluster, "2Gi")
	suite.Must(t, get(t, cluster))
	changeSpec(t, cluster, sized("3Gi"))
	before := cluster.DeepCopy()
	sized("1Gi")(&cluster.Spec)
	err := api.Patch(t.Context(), cluster, client.MergeFrom(before))
	if err == nil || !strings.Contains(err.Error(), "size cannot become smaller than the volume is") {
		t.Errorf("Patch = %v", err)
	}
}

// A claim that has no volume yet is made anew for another size.
func TestAVolumeThatNeverCame(t *testing.T) {
	_, sized := storageClass(t, "volume-test-pending")
	cluster := newCluster(t, suite.Namespace(t, api), sized("1Pi"))
	reconciled(t, cluster)
	before := claims(t, cluster, "1Pi")
	suite.Must(t, get(t, cluster))
	changeSpec(t, cluster, sized("1Gi"))
	suite.Eventually(t, func() error {
		suite.Must(t, get(t, before))
		if before.DeletionTimestamp.IsZero() {
			return errors.New("the claim is still there")
		}
		return nil
	})
	reconciled(t, cluster)
	// A pass that saw the first claim go, and applies what it wants when that is gone, makes one more of the old size. The next pass deletes it.
	suite.Eventually(t, func() error {
		claim := before.DeepCopy()
		if err := get(t, claim); err != nil {
			return err
		}
		if got := claim.Spec.Resources.Requests[corev1.ResourceStorage]; got.Cmp(resource.MustParse("1Gi")) == 0 {
			return nil
		}
		if !claim.DeletionTimestamp.IsZero() {
			claim.Finalizers = nil
			if err := api.Update(t.Context(), claim); err != nil {
				return err
			}
		}
		return errors.New("the claim is still of the old size")
	})
	reconciled(t, cluster)
}
