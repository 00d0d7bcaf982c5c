// Package schedule says from a seed what happens to a fleet, and when.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of event.
type Kind string

// The kinds. The graceful ones are those up to Certificate: nothing explains a session that one of them costs its state.
const (
	Image        Kind = "image"        // a new image
	ConfigChange Kind = "config"       // a new environment variable
	BadImage     Kind = "bad-image"    // an image that nobody can pull, and after a while the good one again
	Delete       Kind = "delete"       // kubectl delete pod, of one
	DeleteTwo    Kind = "delete-two"   // of two at once
	DeleteAll    Kind = "delete-all"   // of all at once
	Evict        Kind = "evict"        // the eviction API
	Scale        Kind = "scale"        // another number of pods
	Restart      Kind = "restart"      // kubectl rollout restart
	Operator     Kind = "operator"     // the operator's pod is deleted
	Redis        Kind = "redis"        // the pod of Redis is deleted
	Password     Kind = "password"     // Redis gets a new password
	Certificate  Kind = "certificate"  // the nodes get a new certificate
	Kill         Kind = "kill"         // SIGKILL of a BEAM
	Freeze       Kind = "freeze"       // SIGSTOP of a BEAM, and after a while SIGCONT
	Split        Kind = "split"        // two pods cannot reach each other for a while
	CutOff       Kind = "cut-off"      // a pod can reach nobody for a while
	Slow         Kind = "slow"         // little gets through between two pods for a while
	RedisKill    Kind = "redis-kill"   // SIGKILL of Redis
	RedisFreeze  Kind = "redis-freeze" // SIGSTOP of Redis, and after a while SIGCONT
)

// The times between two events begin.
const (
	shortestGap = time.Second
	longestGap  = 12 * time.Second
)

// Config says what a fleet can be put through.
type Config struct {
	Seed uint64
	// Length is the time in which events begin.
	Length time.Duration
	// Pods is how many the fleet begins with.
	Pods int
	// Redis is whether it has a Redis, Persistent whether that one keeps stashes over a restart.
	Redis, Persistent bool
	// TLS is whether the nodes have certificates.
	TLS bool
	// Faults is whether ungraceful events happen too.
	Faults bool
	// Stretch is how many times as far the events lie apart, for fleets that share their machine with others; 0 is 1.
	Stretch int
}

// Step is one event.
type Step struct {
	// At is when it begins, from the beginning of all.
	At   time.Duration
	Kind Kind
	// Pods are those that it is done to, if it is done to pods: how many come before each, by name.
	Pods []int
	// Replicas is the number of pods after Scale.
	Replicas int
	// Hold is how long it lasts, for those that are undone.
	Hold time.Duration
}

func (s Step) String() string {
	text := string(s.Kind)
	for _, pod := range s.Pods {
		text += fmt.Sprintf(" %d", pod)
	}
	if s.Kind == Scale {
		text += fmt.Sprintf(" to %d", s.Replicas)
	}
	if s.Hold > 0 {
		text += fmt.Sprintf(" for %s", s.Hold)
	}
	return text
}

// kind is what there is to know of a kind.
type kind struct {
	Kind
	// weight is how often it comes, beside others.
	weight int
	// pods is how many pods it is done to.
	pods int
	// shortest and longest are how long it lasts, in milliseconds; 0 when nothing is undone.
	shortest, longest int
	possible          func(Config) bool
}

func always(Config) bool       { return true }
func several(c Config) bool    { return c.Pods > 1 }
func withRedis(c Config) bool  { return c.Redis && c.Persistent }
func faulty(c Config) bool     { return c.Faults }
func faultyMesh(c Config) bool { return c.Faults && several(c) }

// kinds are all there are. No eviction may take the only pod. Their order and their weights are part of what a seed means.
var kinds = []kind{
	{Kind: Image, weight: 2, possible: always},
	{Kind: ConfigChange, weight: 3, possible: always},
	{Kind: BadImage, weight: 2, shortest: 5000, longest: 15000, possible: always},
	{Kind: Delete, weight: 4, pods: 1, possible: always},
	{Kind: DeleteTwo, weight: 2, pods: 2, possible: func(c Config) bool { return c.Pods > 2 }},
	{Kind: DeleteAll, weight: 1, possible: always},
	{Kind: Evict, weight: 4, pods: 1, possible: several},
	{Kind: Scale, weight: 3, possible: always},
	{Kind: Restart, weight: 2, possible: always},
	{Kind: Operator, weight: 2, possible: always},
	{Kind: Redis, weight: 2, possible: withRedis},
	{Kind: Password, weight: 1, possible: func(c Config) bool { return c.Redis }},
	{Kind: Certificate, weight: 2, possible: func(c Config) bool { return c.TLS }},
	{Kind: Kill, weight: 2, pods: 1, possible: faulty},
	{Kind: Freeze, weight: 2, pods: 1, shortest: 2000, longest: 20000, possible: faulty},
	{Kind: Split, weight: 2, pods: 2, shortest: 5000, longest: 30000, possible: faultyMesh},
	{Kind: CutOff, weight: 1, pods: 1, shortest: 5000, longest: 30000, possible: faultyMesh},
	{Kind: Slow, weight: 2, pods: 2, shortest: 5000, longest: 30000, possible: faultyMesh},
	{Kind: RedisKill, weight: 1, possible: func(c Config) bool { return c.Faults && c.Redis }},
	{Kind: RedisFreeze, weight: 1, shortest: 2000, longest: 10000, possible: func(c Config) bool { return c.Faults && c.Redis }},
}

// Ungraceful is whether an event of this kind may cost state.
func (k Kind) Ungraceful() bool {
	i := slices.IndexFunc(kinds, func(other kind) bool { return other.Kind == k })
	return i >= 0 && !kinds[i].possible(Config{Pods: 9, Redis: true, Persistent: true, TLS: true})
}

// New is the schedule of a seed.
func New(c Config) []Step {
	random := rand.New(rand.NewPCG(c.Seed, 0))
	var bag []kind
	for _, k := range kinds {
		if k.possible(c) {
			bag = append(bag, slices.Repeat([]kind{k}, k.weight)...)
		}
	}
	var steps []Step
	replicas := c.Pods
	stretch := time.Duration(max(1, c.Stretch))
	for at := stretch * gap(random); at < c.Length; at += stretch * gap(random) {
		k := bag[random.IntN(len(bag))]
		step := Step{At: at, Kind: k.Kind, Pods: random.Perm(c.Pods)[:k.pods]}
		if k.longest > 0 {
			step.Hold = time.Duration(k.shortest+random.IntN(k.longest-k.shortest+1)) * time.Millisecond
		}
		if k.Kind == Scale {
			replicas = otherSize(random, replicas, c.Pods)
			step.Replicas = replicas
		}
		steps = append(steps, step)
	}
	return steps
}

func gap(random *rand.Rand) time.Duration {
	return shortestGap + time.Duration(random.Int64N(int64((longestGap-shortestGap)/time.Millisecond)+1))*time.Millisecond
}

// otherSize is a number of pods that the fleet does not have: two at least, one in fleets that begin with one, and at most one
// more than it begins with.
func otherSize(random *rand.Rand, now, first int) int {
	least := min(2, first)
	sizes := []int{}
	for n := least; n <= max(first+1, least+1); n++ {
		if n != now {
			sizes = append(sizes, n)
		}
	}
	return sizes[random.IntN(len(sizes))]
}

// Print is a schedule for people, a line for each step.
func Print(steps []Step) string {
	var text strings.Builder
	for _, step := range steps {
		_, _ = fmt.Fprintf(&text, "%7.1f s  %s\n", step.At.Seconds(), step)
	}
	return text.String()
}
