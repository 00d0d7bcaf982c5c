package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// arrivals watches StatefulSets come.
type arrivals struct {
	wanted int
	// running is whether pods must be ready to count.
	running bool
	// made and full are how many exist, and how many of them have all their pods.
	made, full atomic.Int64
	// came gets something when another one has all its pods.
	came chan struct{}
	// allMade gets the moment when the last one was made.
	allMade chan time.Time
	// ended gets nil when each has all its pods, or the error that ended the watch before.
	ended chan error
}

func (a *arrivals) String() string {
	return fmt.Sprintf("%d of %d StatefulSets, %d with their pods", a.made.Load(), a.wanted, a.full.Load())
}

// watchStatefulSets watches until wanted StatefulSets of the namespace have their pods, or ctx ends.
func watchStatefulSets(ctx context.Context, client kubernetes.Interface, namespace string, wanted int, running bool) (*arrivals, error) {
	// An empty resource version begins with what exists, which is nothing yet.
	events, err := client.AppsV1().StatefulSets(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch StatefulSets: %w", err)
	}
	a := &arrivals{wanted: wanted, running: running, came: make(chan struct{}, 1), allMade: make(chan time.Time, 1), ended: make(chan error, 1)}
	go func() {
		defer events.Stop()
		a.ended <- a.follow(events.ResultChan())
	}()
	return a, nil
}

// follow returns nil when every StatefulSet has its pods.
func (a *arrivals) follow(events <-chan watch.Event) error {
	full := map[string]bool{}
	for event := range events {
		if event.Type == watch.Error {
			return fmt.Errorf("watch StatefulSets: %w", apierrors.FromObject(event.Object))
		}
		set, ok := event.Object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		isFull, known := full[set.Name]
		if event.Type == watch.Deleted {
			return fmt.Errorf("StatefulSet %s was deleted", set.Name)
		}
		if !known {
			full[set.Name] = false
			if a.made.Add(1) == int64(a.wanted) {
				a.allMade <- time.Now()
			}
		}
		if !isFull && a.hasPods(set) {
			full[set.Name] = true
			all := a.full.Add(1) == int64(a.wanted)
			select {
			case a.came <- struct{}{}:
			default: // who waits has not seen the last one yet, and will see both
			}
			if all {
				return nil
			}
		}
	}
	return errors.New("the watch of StatefulSets ended before all were there")
}

func (a *arrivals) hasPods(set *appsv1.StatefulSet) bool {
	pods := set.Status.Replicas
	if a.running {
		pods = set.Status.ReadyReplicas
	}
	return set.Status.ObservedGeneration == set.Generation && pods == *set.Spec.Replicas
}
