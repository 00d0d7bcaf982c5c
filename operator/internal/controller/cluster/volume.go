package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// sizeVolume decides which size the volume of the managed Redis is to have, of which there is a claim. One that cannot be reached
// hinders nothing else, and can be taken back. While the volume has the size that is wanted, it costs no request.
func (r *Reconciler) sizeVolume(ctx context.Context, p *pass, claim *corev1.PersistentVolumeClaim) error {
	if !metav1.IsControlledBy(claim, p.cluster) {
		return nil
	}
	wanted, claimed, reached := store.ManagedRedis(p.cluster).Persistence.VolumeSize(), claim.Spec.Resources.Requests[corev1.ResourceStorage], reachedSize(claim)
	p.volumeSize = reached
	switch {
	case wanted.Cmp(claimed) == 0:
	case reached == nil:
		return r.replaceClaim(ctx, p, claim)
	case wanted.Cmp(*reached) <= 0:
		p.inputs.RedisVolumeSize = &claimed // Kubernetes takes no claim for less than there is, nor for the same
	case wanted.Cmp(claimed) > 0:
		trouble, err := r.growthTrouble(ctx, claim)
		if err != nil || trouble == "" {
			return err
		}
		p.inputs.RedisVolumeSize = &claimed
		p.DueIn(lookAgain)
		p.postpone(&reconcile.Problem{
			Reason: v1alpha1.ReasonVolumeCannotGrow,
			Message: fmt.Sprintf("spec.redis.managed.persistence.size is %s, the volume has %s, and %s: set size back to %s, or let that class expand volumes",
				wanted.String(), reached, trouble, reached),
			Watched: true,
		})
	}
	return nil
}

// reachedSize is the size that the volume has. Nil: there is none yet.
func reachedSize(claim *corev1.PersistentVolumeClaim) *resource.Quantity {
	if size, known := claim.Status.Capacity[corev1.ResourceStorage]; known && claim.Status.Phase == corev1.ClaimBound {
		return &size
	}
	return nil
}

// growthTrouble says why the volume cannot grow. Empty: it can, as far as one may know.
func (r *Reconciler) growthTrouble(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return "it is of no StorageClass, which could expand it", nil
	}
	class := &storagev1.StorageClass{}
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, class)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("its StorageClass %s does not exist any more", name), nil
	case err != nil:
		return "", ignoreForbidden(err)
	case !ptr.Deref(class.AllowVolumeExpansion, false):
		return fmt.Sprintf("its StorageClass %s cannot expand volumes (allowVolumeExpansion)", name), nil
	}
	return "", nil
}

// replaceClaim makes way for a claim for another size. There is no volume yet, so nothing is on it, and Kubernetes changes only claims
// that have one. One that has got its volume meanwhile has another version, and stays.
func (r *Reconciler) replaceClaim(ctx context.Context, p *pass, claim *corev1.PersistentVolumeClaim) error {
	p.inputs.RedisVolumeSize = ptr.To(claim.Spec.Resources.Requests[corev1.ResourceStorage])
	if claim.Spec.VolumeName != "" || !claim.DeletionTimestamp.IsZero() {
		return nil // it is about to get its volume, or to go
	}
	err := r.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting PersistentVolumeClaim %s, which has no volume, for one of another size: %w", redis.DataName(p.cluster), err)
	}
	return nil
}
