package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// storeObservation is what is seen of the adapter's store apart from what the agents say.
type storeObservation struct {
	// store is nil when the pass did not get that far.
	store *storeInUse
	// changing is whether no pod is made because pods with another store are still there.
	changing bool
	// trouble says why a pod of Redis does not get on, or that too few are ready; empty when all is well.
	trouble string
}

func (r *Reconciler) observeStore(ctx context.Context, p *pass) (storeObservation, error) {
	seen := storeObservation{store: p.store, changing: p.inputs.StoreLeft}
	pods, err := r.podsOf(ctx, p.cluster, render.RedisComponent)
	if err != nil {
		return seen, err
	}
	if len(redis.StatefulSets(p.cluster)) > 0 {
		seen.trouble = firstTrouble(pods)
	}
	if seen.trouble == "" {
		seen.trouble, err = r.redisServers(ctx, p.cluster)
	}
	if seen.trouble == "" {
		seen.trouble = masterUnknown(p.cluster, pods)
	}
	return seen, err
}

// masterUnknown says that the fleet's address leads to no Redis, though all of them are ready, because redis-operator has not
// told a master. Empty when it has, and when there is none to tell.
func masterUnknown(c *v1alpha1.LiveStashCluster, pods []corev1.Pod) string {
	operated := store.OperatedRedis(c)
	if operated == nil || operated.Mode == v1alpha1.RedisStandalone {
		return ""
	}
	for i := range pods {
		if pods[i].Labels[redis.RoleLabel] == redis.MasterRole && podReady(&pods[i]) {
			return ""
		}
	}
	return "redis-operator has not yet told which pod is the master: it looks every 30 seconds while all pods are ready, and its log tells what hinders it"
}

// redisStatus is status.redis. It tells of the old store until the last pod that uses it is gone.
func redisStatus(c *v1alpha1.LiveStashCluster, seen storeObservation) *v1alpha1.RedisStatus {
	if seen.store == nil || seen.store.left {
		return c.Status.Redis
	}
	status := &v1alpha1.RedisStatus{Address: seen.store.address}
	switch {
	case store.ManagedRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeManaged
	case store.OperatedRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeOperator
	case store.ExternalRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeExternal
	default:
		return nil
	}
	return status
}

// storeReady: the adapter's store answers on every pod.
func storeReady(c *v1alpha1.LiveStashCluster, seen observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionStoreReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStoreNotReady}
	var gaps []string
	answered := 0
	for _, a := range seen.answers {
		switch {
		case a.err != nil:
		case !a.status.Store.Ready:
			gaps = append(gaps, a.pod.Name+": "+a.status.Store.Reason)
		default:
			answered++
		}
	}
	switch {
	case len(gaps) > 0:
		condition.Message = few(gaps)
		if seen.store.trouble != "" {
			condition.Message = seen.store.trouble + "; " + condition.Message
		}
	case answered == 0 && seen.store.trouble != "":
		condition.Message = seen.store.trouble
	case len(seen.answers) == 0:
		condition.Message = "no pod is up"
	case answered == 0:
		condition.Message = "no pod tells"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonStoreAnswers
		condition.Message = fmt.Sprintf("the store of adapter %s answers", c.Spec.Adapter)
		if seen.store.trouble != "" {
			condition.Message += "; " + seen.store.trouble
		}
	}
	return condition
}
