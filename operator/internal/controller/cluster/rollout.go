package cluster

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// drained is the last word of a pod that is gone.
type drained struct {
	pod    string
	report agentclient.Report
}

// drains keeps what gone pods said until a pass has told it.
type drains struct {
	mutex sync.Mutex
	of    map[types.NamespacedName][]drained
}

func (d *drains) add(cluster types.NamespacedName, more ...drained) {
	if len(more) == 0 {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.of == nil {
		d.of = map[types.NamespacedName][]drained{}
	}
	d.of[cluster] = append(d.of[cluster], more...)
}

func (d *drains) take(cluster types.NamespacedName) []drained {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	taken := d.of[cluster]
	delete(d.of, cluster)
	return taken
}

// lastRollout is status.lastRollout: the rollout that the StatefulSet is in, or the last one, with what its pods said.
// Pods that stop at other times are not its own.
func lastRollout(last *v1alpha1.RolloutStatus, set *appsv1.StatefulSet, reports []drained, now time.Time) *v1alpha1.RolloutStatus {
	rolling := last != nil && last.Finished == nil
	settled := set != nil && set.Status.ObservedGeneration == set.Generation
	if settled {
		rolling = set.Status.UpdateRevision != set.Status.CurrentRevision
		if rolling && (last == nil || last.Finished != nil || last.To != set.Status.UpdateRevision) {
			last = &v1alpha1.RolloutStatus{From: set.Status.CurrentRevision, To: set.Status.UpdateRevision, Started: seconds(now)}
		}
	}
	if last == nil || last.Finished != nil {
		return last
	}
	for _, d := range reports {
		last.PodsReported++
		last.SessionsBefore += d.report.SessionsBefore
		last.HandedOff += d.report.HandedOff
		last.NotHandedOff += d.report.NotHandedOff
	}
	if !rolling {
		last.Finished = ptr.To(seconds(now))
	}
	return last
}

// seconds is a time as the API keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// tellDrained makes an event of each pod that said how its drain ended.
func (r *Reconciler) tellDrained(c *v1alpha1.LiveStashCluster, reports []drained) {
	for _, d := range reports {
		kind, rest := corev1.EventTypeNormal, ""
		if d.report.NotHandedOff > 0 {
			kind, rest = corev1.EventTypeWarning, fmt.Sprintf(", %d could not be: %s", d.report.NotHandedOff, d.report.Reason)
		}
		r.Recorder.Eventf(c, nil, kind, v1alpha1.ReasonPodDrained, "Drain", "%s had %d stashes: %d sockets closed, %d stashes handed over%s",
			d.pod, d.report.SessionsBefore, d.report.SocketsClosed, d.report.HandedOff, rest)
	}
}

// tellLoss says what ends with the last pod, when the stashes are in the pods.
func (r *Reconciler) tellLoss(c *v1alpha1.LiveStashCluster, because string) {
	if c.Status.Stashes == 0 || store.For(c).Home() == store.Elsewhere {
		return
	}
	r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, v1alpha1.ReasonStashesLost, "Stop",
		"%s: the %d stashes that its pods hold in memory (adapter %s) end with the last pod", because, c.Status.Stashes, c.Spec.Adapter)
}
