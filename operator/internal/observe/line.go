package observe

import (
	"container/heap"
	"time"
)

// The lines that pods stand in. One goes before those behind it.
const (
	// looks is for those who answered when they were last asked, or never were asked.
	looks = iota
	// again is for those who missed once, and for those who missed and whose fleet waits for them.
	again
	// silent is for all others who missed.
	silent
)

// shares is which part of the room the pods of each line may take: all of it, half, a quarter.
var shares = [...]int{looks: 1, again: 2, silent: 4}

// nowhere is the place of a pod that stands in no line, because it is being asked or is gone.
const nowhere = -1

// lines are who is to be asked when.
type lines [len(shares)]queue

// put makes a pod that stands nowhere due at a time.
func (l *lines) put(p *pod, due time.Time) {
	p.due, p.line = due, p.belongs()
	heap.Push(&l[p.line], p)
}

// take takes a pod out of its line, if it stands in one.
func (l *lines) take(p *pod) {
	if p.place != nowhere {
		heap.Remove(&l[p.line], p.place)
	}
}

// queue is a heap of pods by their due times.
type queue []*pod

func (q queue) first() *pod {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push and Pop are heap's.
func (q *queue) Push(p any) {
	last := p.(*pod)
	last.place = len(*q)
	*q = append(*q, last)
}

func (q *queue) Pop() any {
	end := len(*q) - 1
	last := (*q)[end]
	(*q)[end] = nil
	*q = (*q)[:end]
	last.place = nowhere
	return last
}
