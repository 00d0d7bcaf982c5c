// Package eventlog says which of the things that happened to a fleet explains that a user did not find its state.
package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/livestash-dev/livestash/test/soak/ledger"
	"github.com/livestash-dev/livestash/test/soak/schedule"
)

const (
	// whole is how long the mesh and the store may take to be whole again when pods can reach each other again.
	whole = time.Minute
	// around is how far the times of the log and of the users may lie apart: those that are taken before something is done, and
	// those after.
	around = time.Second
)

// Event is something that was done to a fleet.
type Event struct {
	Kind schedule.Kind
	// Pods are the names of those that it was done to.
	Pods []string
	// Start and End are when it was done, or undone again.
	Start, End time.Time
	// Alone is whether no other pod was ready when it began.
	Alone bool
}

func (e Event) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", e.Kind, strings.Join(e.Pods, " ")))
}

// Move is a pod that was told to stop. What it had is somewhere else afterwards.
type Move struct {
	Pod string
	At  time.Time
}

// Log is what happened to one fleet.
type Log struct {
	// Adapter is that of the API.
	Adapter string
	// Persistent is whether its Redis keeps stashes over a restart.
	Persistent bool
	Events     []Event
	Moves      []Move
}

// Explain is why a return is Stale or Lost; empty when nothing explains it. Only an ungraceful event does, and only when it took
// what had the state after the user was last known to have it there.
func (l *Log) Explain(r ledger.Return) string {
	for _, e := range l.Events {
		if e.Kind.Ungraceful() && l.explains(e, r) {
			return fmt.Sprintf("%s at %s", e, e.Start.Format("15:04:05"))
		}
	}
	return ""
}

func (l *Log) explains(e Event, r ledger.Return) bool {
	switch e.Kind {
	case schedule.Kill:
		return r.Verdict == ledger.Lost && overlap(e, r, 0) && l.took(e, r)
	case schedule.Freeze, schedule.Split, schedule.CutOff, schedule.Slow:
		return overlap(e, r, whole) && l.parted(e, r)
	case schedule.RedisKill:
		return l.Adapter == "Redis" && !l.Persistent && r.Verdict == ledger.Lost && overlap(e, r, 0)
	default:
		return false
	}
}

// overlap is whether something happened between the moment of which it is known who had the state, and the return.
func overlap(e Event, r ledger.Return, after time.Duration) bool {
	return e.Start.Add(-around).Before(r.At) && e.End.Add(after+around).After(r.Last.At)
}

// took is whether the only copy of a state went with a BEAM.
func (l *Log) took(e Event, r ledger.Return) bool {
	switch l.Adapter {
	case "ETS":
		return l.had(e, r)
	case "Mnesia":
		return e.Alone
	}
	return false
}

// parted is whether a state could not be reached from somewhere, or its copies went apart.
func (l *Log) parted(e Event, r ledger.Return) bool {
	switch l.Adapter {
	case "ETS":
		return l.had(e, r) || slices.Contains(e.Pods, Pod(r.Node))
	case "Mnesia":
		return true
	case "Redis":
		// A pod that reaches nobody does not reach Redis either, and for a while afterwards it does not know.
		return e.Kind == schedule.CutOff && slices.Contains(e.Pods, Pod(r.Last.Node))
	}
	return false
}

// had is whether one of the event's pods had the state when it began, as far as is known: the pod behind the user's last page, or,
// once that one was told to stop, any.
func (l *Log) had(e Event, r ledger.Return) bool {
	home := Pod(r.Last.Node)
	if slices.Contains(e.Pods, home) {
		return true
	}
	return slices.ContainsFunc(l.Moves, func(m Move) bool {
		return m.Pod == home && m.At.After(r.Last.At.Add(-around)) && m.At.Before(e.End.Add(around))
	})
}

// Pod is the name of the pod behind a BEAM node: shop@shop-1.shop-nodes.shop.svc.cluster.local is in shop-1.
func Pod(node string) string {
	_, host, found := strings.Cut(node, "@")
	if !found {
		host = node
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}
