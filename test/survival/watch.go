package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

var clusterResource = schema.GroupVersionResource{Group: "livestash.dev", Version: "v1alpha1", Resource: "livestashclusters"}

// watch sees every change of a fleet's pods during an event, in order, and finds out whether they went one at a time. What
// the event did not take itself, the operator took: nobody else deletes pods here but the StatefulSet controller, and to rein
// that one in is the operator's business.
type watch struct {
	stop context.CancelFunc

	mu sync.Mutex
	// expected are the pods that the event takes itself.
	expected map[types.UID]bool
	places   map[string]*place
	// asked is the number of pods that the spec asks for, mostAsked the greatest so far, mostTold the greatest status.replicas.
	asked, mostAsked, mostTold int64
	// mostAway is the greatest number of pods that were away at a time because the operator took them.
	mostAway int
	// faults are sentences on pods that the operator must not have taken.
	faults []string
}

// place is where a pod belongs: one after the other has the same name.
type place struct {
	pod     types.UID
	ready   bool
	leaving bool
	gone    bool
	// byOperator is whether the operator took the last pod that was ready here.
	byOperator bool
}

// watched starts to watch the fleet. What is there already comes first.
func (s *subject) watched(ctx context.Context) (*watch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{stop: stop, expected: map[types.UID]bool{}, places: map[string]*place{}}
	pods, err := s.CoreV1().Pods(s.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: fleet.Selector})
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch the pods: %w", err)
	}
	clusters, err := s.Dynamic.Resource(clusterResource).Namespace(s.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch the LiveStashCluster: %w", err)
	}
	go follow(ctx, w, pods, w.seePod)
	go follow(ctx, w, clusters, w.seeCluster)
	return w, nil
}

// follow tells of one change after the other until the watch ends. The API server keeps one for longer than an event takes.
func follow[T runtime.Object](ctx context.Context, w *watch, changes apiwatch.Interface, see func(object T, gone bool)) {
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if object, ok := change.Object.(T); ok {
			see(object, change.Type == apiwatch.Deleted)
		}
	}
	if ctx.Err() == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults = append(w.faults, "what became of the pods is not known: the watch broke off")
	}
}

// expect says that the event itself is about to take a pod.
func (w *watch) expect(pod types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[pod] = true
}

func (w *watch) seeCluster(cluster *unstructured.Unstructured, _ bool) {
	asked, _, _ := unstructured.NestedInt64(cluster.Object, "spec", "replicas")
	told, _, _ := unstructured.NestedInt64(cluster.Object, "status", "replicas")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.mostAsked, w.mostTold = asked, max(w.mostAsked, asked), max(w.mostTold, told)
}

func (w *watch) seePod(pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[pod.Name]
	if p == nil {
		p = &place{}
		w.places[pod.Name] = p
	}
	if p.pod != pod.UID {
		*p = place{pod: pod.UID, byOperator: p.byOperator}
	}
	leaving := pod.DeletionTimestamp != nil
	if (leaving || gone) && !p.leaving {
		w.taken(pod.Name, p)
	}
	p.ready, p.leaving, p.gone = fleet.IsReady(*pod), leaving, gone
	if !w.away(p) {
		p.byOperator = false
	}
	if p.gone && !w.away(p) {
		delete(w.places, pod.Name)
	}
	w.count()
}

// taken is called when somebody has just taken the pod of a place. Pods that serve nobody may go at any time.
func (w *watch) taken(name string, p *place) {
	if w.expected[p.pod] || !p.ready {
		return
	}
	p.byOperator = true
	for _, other := range slices.Sorted(maps.Keys(w.places)) {
		if o := w.places[other]; o != p && w.away(o) {
			w.faults = append(w.faults, fmt.Sprintf("the operator took %s while %s was %s", name, other, o))
		}
	}
}

func (w *watch) count() {
	away := 0
	for _, p := range w.places {
		if p.byOperator && w.away(p) {
			away++
		}
	}
	w.mostAway = max(w.mostAway, away)
}

// away is whether a pod that is there, or that the spec asks for, can keep nobody's state. One that leaves still has what it
// hands over, also when nobody asks for it any longer. One that is gone is missed while there are fewer than the spec asks for,
// whatever their numbers are: these begin at 0 and at 1 in turn.
func (w *watch) away(p *place) bool {
	if p.gone {
		return w.there() < w.asked
	}
	return p.leaving || !p.ready
}

// there is how many pods there are.
func (w *watch) there() (n int64) {
	for _, p := range w.places {
		if !p.gone {
			n++
		}
	}
	return n
}

func (p *place) String() string {
	switch {
	case p.gone:
		return "gone"
	case p.leaving:
		return "terminating"
	case p.ready:
		return "ready"
	}
	return "not ready"
}

// end stops watching. It returns what is worth knowing, and what was wrong.
func (w *watch) end() (remark string, faults []string) {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mostAway > 0 {
		remark = fmt.Sprintf("the operator had %d away at most", w.mostAway)
	}
	faults = slices.Clone(w.faults)
	if w.mostTold > w.mostAsked {
		faults = append(faults, fmt.Sprintf("status.replicas said %d, but no more than %d were asked for", w.mostTold, w.mostAsked))
	}
	return remark, faults
}

// watchEnds keeps what the watch has seen.
func (s *subject) watchEnds() {
	if s.watch == nil {
		return
	}
	remark, faults := s.watch.end()
	if remark != "" {
		s.remark("%s", remark)
	}
	s.faults = faults
}
