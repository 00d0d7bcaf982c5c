package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// redisTrouble says why a pod of Redis does not get on, or that too few are ready; empty when all is well.
func (r *Reconciler) redisTrouble(ctx context.Context, c *v1alpha1.LiveStashCluster) (string, error) {
	if len(redis.StatefulSets(c)) == 0 {
		return "", nil
	}
	pods, err := r.podsOf(ctx, c, render.RedisComponent)
	if err != nil {
		return "", err
	}
	if trouble := firstTrouble(pods); trouble != "" {
		return trouble, nil
	}
	trouble, err := r.redisServers(ctx, c)
	if err != nil || trouble != "" {
		return trouble, err
	}
	return masterUnknown(c, pods), nil
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

// starting is whether what answers for the pod, which does not serve yet, began less than storeGrace ago: its application, or before that
// what waits for the store. It may answer before the kubelet has said that it runs.
func (m *member) starting(now time.Time) bool {
	at := containerStatus(m.Status.InitContainerStatuses, fleet.InitContainer)
	if at == nil || at.State.Terminated != nil {
		at = appStatus(m.Pod)
	}
	switch {
	case at == nil || podReady(m.Pod):
		return false
	case at.State.Running != nil:
		return now.Sub(at.State.Running.StartedAt.Time) < storeGrace
	}
	return at.State.Waiting != nil && at.LastTerminationState.Terminated == nil
}

// redisStatus is status.redis of a fleet that uses this one. Nil with other adapters.
func redisStatus(c *v1alpha1.LiveStashCluster, address string) *v1alpha1.RedisStatus {
	status := &v1alpha1.RedisStatus{Address: address}
	switch {
	case store.ManagedRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeManaged
		if was := c.Status.Redis; was != nil && was.Mode == status.Mode && store.ManagedRedis(c).Persistence == nil {
			status.Server = was.Server
		}
	case store.OperatedRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeOperator
	case store.ExternalRedis(c) != nil:
		status.Mode = v1alpha1.RedisModeExternal
	default:
		return nil
	}
	return status
}

// storeGrace is how long after its start a pod may be without the store: its agent tells before the application has connected.
const storeGrace = 30 * time.Second

// storeReady: the adapter's store answers on every pod. Of one that stops or has just started that is not asked while another's does.
func storeReady(c *v1alpha1.LiveStashCluster, seen *observation) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionStoreReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStoreNotReady}
	asked, answered, gaps := askedStores(seen)
	switch {
	case len(gaps) > 0:
		condition.Message = few(gaps)
		if seen.redisTrouble != "" {
			condition.Message = seen.redisTrouble + "; " + condition.Message
		}
	case answered == 0 && seen.redisTrouble != "":
		condition.Message = seen.redisTrouble
	case asked == 0:
		condition.Message = "no pod is up"
	case answered == 0:
		condition.Message = "no pod tells"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonStoreAnswers
		condition.Message = fmt.Sprintf("the store of adapter %s answers", c.Spec.Adapter)
		if seen.redisTrouble != "" {
			condition.Message += "; " + seen.redisTrouble
		}
	}
	return condition
}

// askedStores is how many pods are asked whether they have the store, of how many it answers, and what those say that lack it.
func askedStores(seen *observation) (asked, answered int, gaps []string) {
	var passing []string
	for i := range seen.members {
		m := &seen.members[i]
		if m.Status.PodIP != "" {
			asked++
		}
		switch {
		case m.answer.Err != nil || m.answer.At.IsZero():
		case m.answer.Status.Store.Ready:
			answered++
		case m.terminating(), m.starting(seen.now):
			passing = append(passing, m.Name+": "+m.answer.Status.Store.Reason)
		default:
			gaps = append(gaps, m.Name+": "+m.answer.Status.Store.Reason)
		}
	}
	if answered == 0 {
		gaps = append(gaps, passing...)
	}
	return asked, answered, gaps
}
