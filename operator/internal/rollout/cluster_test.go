package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// kind is what becomes of a pod of a template.
type kind int

const (
	good    kind = iota
	noImage      // never starts
	loops        // crashes again and again: between two crashes it looks like a pod that starts
	deaf         // runs and is never able
	kinds
	poison // is able, and only a canary finds out that it is bad
)

const (
	proven   = 20 // steps for which the pods of a canary have to be able
	poisoned = 8  // steps after which one of poison is found out
	patience = 40 // steps after which a pod is given up
	notices  = 3  // steps until a pod counts as broken
	noNode   = -1
)

// simPod is a pod, its kubelet and its agent.
type simPod struct {
	uid, template    int
	ordinal          int32
	age, boot, since int // since: when it was last able, was made or was deleted
	up               int // steps for which it has been able
	leave            int // steps until a terminating pod is gone
	away, silent     int // steps for which the container, the agent, is not there
	node             int // which it is on, noNode while it is on none
	homeless, dead   bool
	terminating      bool
}

// statefulSet is spec and status of one.
type statefulSet struct {
	generation, observed int
	template             int // what the spec has; equal templates have equal numbers, as revisions have equal names
	current, update      int // the status' revisions
	replicas, start      int32
	mode                 Mode
	rejected             int // the template that a canary has rejected, -1 for none: an annotation
}

// has says whether an ordinal is one of its.
func (s *statefulSet) has(ordinal int32) bool {
	return ordinal >= s.start && ordinal < s.start+s.replicas
}

// aim is the template that all pods are to have.
func (s *statefulSet) aim() int {
	if s.rejected == s.update && s.current != s.update {
		return s.current
	}
	return s.update
}

// cluster simulates the StatefulSet controller (stateful_set_control.go of Kubernetes 1.36, Parallel), kubelets and agents.
type cluster struct {
	rng   *rand.Rand
	step  int
	uids  int
	kinds []kind // of templates
	// withheld are the templates of which there must be no pod yet.
	withheld map[int]bool
	set      *statefulSet
	pods     []simPod
	// cordoned is which nodes take no pods and are to be emptied.
	cordoned [3]bool
	// room is how many pods the nodes take, quota how many may be made. 0: any number.
	room, quota int
	// lastAble is when a pod of an ordinal was able for the last time.
	lastAble map[int32]int
	// touched is when a pod of an ordinal was last able, made, deleted or gone.
	touched map[int32]int
	// tooEarly: a pod was made of a template that was withheld.
	tooEarly bool
	log      []string
}

func (c *cluster) logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%4d ", c.step)+fmt.Sprintf(format, args...))
}

func (c *cluster) ready(p simPod) bool {
	return !p.terminating && !p.dead && !p.homeless && p.node != noNode && p.boot == 0 && p.away == 0 && c.works(p.template)
}

func (c *cluster) works(template int) bool {
	return c.kinds[template] == good || c.kinds[template] == poison
}

func (c *cluster) able(p simPod) bool { return c.ready(p) && p.silent == 0 }

func (c *cluster) broken(p simPod) bool {
	if p.age < notices || p.dead {
		return false
	}
	return p.homeless || p.node == noNode || c.kinds[p.template] == noImage || c.kinds[p.template] == loops && (p.terminating || p.age%7 < 5)
}

func (c *cluster) givenUp(p simPod) bool { return !c.able(p) && c.step-p.since > patience }

// write is what the API server does with a changed spec.
func (c *cluster) write(plan Plan, template, rejected int) bool {
	s := c.set
	noted := s.rejected != rejected
	s.rejected = rejected
	if s.replicas == plan.Replicas && s.start == plan.Start && s.mode == plan.Mode && s.template == template {
		return noted // metadata alone makes no generation
	}
	s.replicas, s.start, s.mode, s.template = plan.Replicas, plan.Start, plan.Mode, template
	s.generation++
	c.logf("write %d replicas from %d on, %v, template %d, rejected %d", plan.Replicas, plan.Start, plan.Mode, template, rejected)
	return true
}

// remove deletes the pod that has this UID, and no other.
func (c *cluster) remove(uid int, why string) bool {
	for i := range c.pods {
		p := &c.pods[i]
		if p.uid != uid || p.terminating {
			continue
		}
		c.logf("pod %d of template %d: %s", p.ordinal, p.template, why)
		p.leave = 1 + c.rng.IntN(7)
		if p.homeless || p.node == noNode || c.kinds[p.template] == noImage {
			p.leave = 1
		}
		p.terminating, p.since, c.touched[p.ordinal] = true, c.step, c.step
		return true
	}
	return false
}

// control is one sync of the StatefulSet controller: completeRollingUpdate, newVersionedStatefulSetPod, processCondemned.
func (c *cluster) control() {
	s := c.set
	if s == nil {
		return
	}
	s.update = s.template
	if s.current < 0 {
		s.current = s.update
	}
	var updated, ready int32
	there := map[int32]bool{}
	for _, p := range c.pods {
		there[p.ordinal] = true
		if c.ready(p) {
			ready++
		}
		if p.template == s.update && !p.terminating {
			updated++
		}
	}
	complete := s.mode == Hold && updated == s.replicas && ready == s.replicas && len(c.pods) == int(s.replicas)
	for ordinal := s.start; ordinal < s.start+s.replicas; ordinal++ {
		if there[ordinal] || c.refuses() {
			continue
		}
		template := s.update
		if s.mode == Hold {
			template = s.current
		}
		c.uids++
		c.touched[ordinal] = c.step
		c.pods = append(c.pods, simPod{uid: c.uids, template: template, ordinal: ordinal, boot: 2 + c.rng.IntN(6), since: c.step, node: noNode})
		c.logf("pod %d made from template %d", ordinal, template)
		c.tooEarly = c.tooEarly || c.withheld[template]
	}
	for _, p := range c.pods {
		if !s.has(p.ordinal) && !p.terminating {
			c.remove(p.uid, "scaled away")
		}
	}
	if complete {
		s.current = s.update
	}
	s.observed = s.generation
}

// tick lets kubelets and agents get on.
func (c *cluster) tick() {
	c.step++
	for i := range c.pods {
		p := &c.pods[i]
		if p.node == noNode {
			p.node = c.schedule()
		}
		p.age++
		p.silent = max(0, p.silent-1)
		p.away = max(0, p.away-1)
		if !p.homeless && !p.dead && (p.node != noNode || p.terminating) {
			p.boot = max(0, p.boot-1)
			p.leave = max(0, p.leave-1)
		}
		p.up++
		if !c.able(*p) {
			p.up = 0
		} else {
			p.since = c.step
			c.lastAble[p.ordinal], c.touched[p.ordinal] = c.step, c.step
		}
	}
	c.pods = slices.DeleteFunc(c.pods, func(p simPod) bool {
		gone := p.terminating && !p.dead && p.leave == 0
		if gone {
			c.touched[p.ordinal] = c.step
		}
		return gone
	})
}

// refuses says whether the quota is used up.
func (c *cluster) refuses() bool { return c.quota > 0 && len(c.pods) >= c.quota }

// schedule is a node that takes pods, noNode when there is none.
func (c *cluster) schedule() int {
	placed := 0
	for _, p := range c.pods {
		if p.node != noNode {
			placed++
		}
	}
	if c.room > 0 && placed >= c.room {
		return noNode
	}
	first := c.rng.IntN(len(c.cordoned))
	for i := range c.cordoned {
		if node := (first + i) % len(c.cordoned); !c.cordoned[node] {
			return node
		}
	}
	return noNode
}

// moves is whether a pod is to leave its node, and could go to another.
func (c *cluster) moves(p simPod) bool {
	return p.node != noNode && c.cordoned[p.node] && slices.Contains(c.cordoned[:], false)
}

// evict deletes a pod unless the PodDisruptionBudget, of one pod that may be away, refuses.
func (c *cluster) evict(p simPod) {
	ready := 0
	for _, other := range c.pods {
		if c.ready(other) {
			ready++
		}
	}
	if ready == int(c.set.replicas) {
		c.remove(p.uid, "evicted")
	}
}

// heal ends all troubles that are no template's fault. Nodes may go on being emptied, but not all.
func (c *cluster) heal() {
	c.cordoned[c.rng.IntN(len(c.cordoned))] = false
	c.room, c.quota = 0, 0
	for i := range c.pods {
		p := &c.pods[i]
		p.dead, p.homeless, p.silent, p.since = false, false, 0, c.step
		c.touched[p.ordinal] = c.step
	}
}
