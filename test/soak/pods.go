package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/eventlog"
)

// podLog is what became of a fleet's pods.
type podLog struct {
	mu sync.Mutex
	// ready are the pods that are there by name, and whether they are ready.
	ready map[string]bool
	// outages are the times in which none was ready, since is when the one began that goes on; zero: one is ready.
	outages []eventlog.Outage
	since   time.Time
	// grace is how long the pods may take to stop.
	grace time.Duration
	// stopping are the pods that were told to stop, by their places in moves.
	stopping map[types.UID]int
	restarts map[types.UID]int32
	moves    []eventlog.Move
	// ends are sentences on applications that ended while their pod went on.
	ends []string
}

// watchPods keeps a log until the context ends.
func (s *soak) watchPods(ctx context.Context) (*podLog, error) {
	l := &podLog{ready: map[string]bool{}, stopping: map[types.UID]int{}, restarts: map[types.UID]int32{}}
	factory := informers.NewSharedInformerFactoryWithOptions(s.Cluster, 0, informers.WithNamespace(s.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = fleet.Selector }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { l.see(object, false) },
		UpdateFunc: func(_, object any) { l.see(object, false) },
		DeleteFunc: func(object any) { l.see(object, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the pods: %w", err)
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("watch the pods: no %s seen", kind)
		}
	}
	return l, nil
}

func (l *podLog) see(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	leaving := gone || pod.DeletionTimestamp != nil
	l.ready[pod.Name] = fleet.IsReady(*pod) && !leaving
	if gone {
		delete(l.ready, pod.Name)
	}
	l.grace = time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0)) * time.Second
	l.noteOutage(time.Now())
	l.noteMove(pod, leaving, gone, time.Now())
	app, err := fleet.Container(pod, fleet.AppContainer)
	if err == nil && app.RestartCount > l.restarts[pod.UID] {
		l.restarts[pod.UID] = app.RestartCount
		l.ends = append(l.ends, fmt.Sprintf("%s the application of %s ended: %s", time.Now().Format("15:04:05"), pod.Name, why(app)))
	}
}

// noteMove notes when a pod was told to stop, and when it was gone.
func (l *podLog) noteMove(pod *corev1.Pod, leaving, gone bool, now time.Time) {
	place, known := l.stopping[pod.UID]
	if leaving && !known {
		place = len(l.moves)
		l.stopping[pod.UID] = place
		l.moves = append(l.moves, eventlog.Move{Pod: pod.Name, At: now})
	}
	if gone {
		l.moves[place].End = now
	}
}

// noteOutage notes whether one begins or ends.
func (l *podLog) noteOutage(now time.Time) {
	served := slices.Contains(slices.Collect(maps.Values(l.ready)), true)
	switch {
	case !served && l.since.IsZero():
		l.since = now
	case served && !l.since.IsZero():
		l.outages = append(l.outages, eventlog.Outage{Start: l.since, End: now})
		l.since = time.Time{}
	}
}

// why is how a container ended last.
func why(c corev1.ContainerStatus) string {
	if c.LastTerminationState.Terminated == nil {
		return "it is not known why"
	}
	t := c.LastTerminationState.Terminated
	return fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
}

// named are the pods at these places among all that are there, in the order of their names; their numbers begin at 0 and at 1 in
// turn. Of fewer pods it is the last; where there are none, a name that nobody has.
func (l *podLog) named(places []int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := slices.Sorted(maps.Keys(l.ready))
	var names []string
	for _, place := range places {
		if len(there) == 0 {
			names = append(names, fleet.Name+"-none")
			continue
		}
		i := min(place, len(there)-1)
		names = append(names, there[i])
		there = slices.Delete(there, i, i+1)
	}
	return names
}

// alone is whether no pod is ready but these.
func (l *podLog) alone(pods []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, ready := range l.ready {
		if ready && !slices.Contains(pods, name) {
			return false
		}
	}
	return true
}

// tell completes a log with what is known.
func (l *podLog) tell(log *eventlog.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log.Moves, log.Outages, log.Grace = slices.Clone(l.moves), slices.Clone(l.outages), l.grace
	if !l.since.IsZero() {
		log.Outages = append(log.Outages, eventlog.Outage{Start: l.since, End: time.Now()})
	}
}

// ended are sentences on applications that ended while their pod went on.
func (l *podLog) ended() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ends)
}
