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
	// whole is how long copies of a state may stay apart when pods can reach each other again: the mesh has to form, and the
	// copies have to be compared.
	whole = 30 * time.Second
	// meshed is how long a pod that could not reach others may take to ask them for a state again.
	meshed = 10 * time.Second
	// drain is how long a pod may take to stop.
	drain = time.Minute
	// around is how far the times of the log and of the users may lie apart: those that are taken before something is done, and
	// those after.
	around = time.Second
	// copied is how long after one event copies of stashes may be fewer than they should be: a pod that is gone is noticed, what it had
	// is taken over, and sent to another holder.
	copied = 20 * time.Second
	// unwritten is for how long Redis may put off writing to its append-only file (appendfsync everysec), on a disk that is busy:
	// https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/
	unwritten = 2 * time.Second
	// reserve is what a pod keeps of its grace period for handing its stashes over and for its end, when it waits for another pod.
	reserve = 15 * time.Second
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
	// At is when it was told, End when it was gone; zero: it is still there. The last pod of a fleet serves until another one is back.
	At, End time.Time
}

// hit is whether what the pod had at a time has moved.
func (m Move) hit(pod string, since time.Time) bool {
	return m.Pod == pod && (m.End.IsZero() || m.End.After(since.Add(-around)))
}

// Outage is a time in which no pod was ready.
type Outage struct {
	Start, End time.Time
}

func (o Outage) String() string {
	return fmt.Sprintf("no pod was ready from %s to %s", o.Start.Format(time.TimeOnly), o.End.Format(time.TimeOnly))
}

// Log is what happened to one fleet.
type Log struct {
	// Adapter is that of the API.
	Adapter string
	// Persistent is whether its Redis keeps stashes over a restart.
	Persistent bool
	Events     []Event
	Moves      []Move
	Outages    []Outage
	// Young is how young a stash may be that a killed pod takes with it though other pods hold copies. 0: no pod holds copies.
	Young time.Duration
	// Grace is how long a pod that was told to stop may take for it, TTL is how long a stash lives.
	Grace, TTL time.Duration
}

// Explain is why a return is Stale or Lost; empty when nothing explains it. Only an ungraceful event does, and only when it took
// what had the state after the user was last known to have it there, or an outage that was longer than anybody promises to outlive. Of
// several, it is the best reason, and of those the last event.
func (l *Log) Explain(r ledger.Return) string {
	best, explanation := no, ""
	for _, e := range l.Events {
		if reason := l.reason(e, r); e.Kind.Ungraceful() && reason != no && reason >= best {
			best, explanation = reason, fmt.Sprintf("%s at %s", e, e.Start.Format(time.TimeOnly))
		}
	}
	if explanation == "" && r.Verdict == ledger.Lost {
		return l.outlasted(r)
	}
	return explanation
}

// outlasted says which outage was longer than the pods could wait with the user's state, or which ones kept the user away until its stash
// was over; nothing when none did.
func (l *Log) outlasted(r ledger.Return) string {
	gone := r.Gone
	if gone.IsZero() {
		gone = r.Last.At
	}
	var held time.Duration
	explanation := ""
	for _, o := range l.Outages {
		if !o.Start.Before(r.At) || !o.End.After(r.Last.At) {
			continue
		}
		inPods := l.Adapter == "ETS" || l.Adapter == "Mnesia"
		if inPods && o.End.Sub(o.Start) > l.Grace-reserve {
			return o.String()
		}
		held += max(0, earlier(o.End, r.At).Sub(later(o.Start, gone)))
		explanation = o.String()
	}
	if away := r.At.Sub(gone); away > l.TTL && away-held < l.TTL {
		return explanation
	}
	return ""
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// reason is how good a reason an event is, from worst to best.
type reason int

const (
	no reason = iota
	// unreachable is a state that could not be reached, or whose copies went apart.
	unreachable
	// maybeGone is a state that may have been where it went.
	maybeGone
	// gone is a state that was where it went.
	gone
)

func (l *Log) reason(e Event, r ledger.Return) reason {
	switch e.Kind {
	case schedule.Kill:
		return l.killed(e, r)
	case schedule.Freeze, schedule.Split, schedule.CutOff, schedule.Slow:
		if r.Verdict == ledger.Lost && l.stranded(e, r) {
			return maybeGone
		}
		if l.parted(e, r) {
			return unreachable
		}
	case schedule.RedisKill:
		if l.Adapter == "Redis" && between(e, r) && (l.unwritten(e, r) || !l.Persistent && r.Verdict == ledger.Lost) {
			return gone
		}
	default:
	}
	return no
}

// between is whether something happened between the moment of which it is known who had the state, and the return.
func between(e Event, r ledger.Return) bool {
	return e.Start.Add(-around).Before(r.At) && e.End.Add(around).After(r.Last.At)
}

// during is whether a moment lies within an event, or so long after it.
func during(e Event, at time.Time, after time.Duration) bool {
	return e.Start.Add(-around).Before(at) && e.End.Add(after+around).After(at)
}

// unwritten is whether a Redis that was killed had been given what is missing so shortly before that it need not have written it yet.
func (l *Log) unwritten(e Event, r ledger.Return) bool {
	return r.Missing.After(e.Start.Add(-unwritten - around))
}

// killed is whether a kill took a state with it, or its last versions where other pods have copies.
func (l *Log) killed(e Event, r ledger.Return) reason {
	if !between(e, r) || r.Verdict != ledger.Lost && l.Young == 0 || l.Young > 0 && !l.uncopied(e, r) {
		return no
	}
	return l.took(e, r)
}

// took is whether the only copy of a state went with a BEAM.
func (l *Log) took(e Event, r ledger.Return) reason {
	switch {
	case l.Adapter == "Mnesia" && e.Alone, l.Adapter == "ETS" && slices.Contains(e.Pods, Pod(r.Last.Node)):
		return gone
	case l.Adapter == "ETS" && l.moved(e, r):
		return maybeGone
	}
	return no
}

// uncopied is whether no other pod had a copy of what a killed pod took with it: it was too young, or those that had it were hit too.
func (l *Log) uncopied(e Event, r ledger.Return) bool {
	if r.Missing.Add(l.Young + around).After(e.Start) {
		return true
	}
	return e.Alone || slices.ContainsFunc(l.Events, func(other Event) bool {
		return other.Kind.Ungraceful() && other.Start != e.Start && other.Start.Before(e.Start.Add(copied)) && e.Start.Before(other.End.Add(copied))
	})
}

// parted is whether a state could not be reached from somewhere, or its copies were apart.
func (l *Log) parted(e Event, r ledger.Return) bool {
	home := slices.Contains(e.Pods, Pod(r.Last.Node)) ||
		slices.ContainsFunc(r.Tabs, func(node string) bool { return slices.Contains(e.Pods, Pod(node)) })
	// Of a pod that had an older copy, or none, and the user was there for a moment.
	visited := slices.Contains(e.Pods, Pod(r.Node)) || slices.Contains(e.Pods, r.First)
	switch l.Adapter {
	case "ETS":
		// Of a user who did not find its state and has begun anew, the former one is somewhere until both are compared.
		former := r.Origin != "" && (slices.Contains(e.Pods, Pod(r.Origin)) || l.movedFrom(Pod(r.Origin), e, e.Start))
		return during(e, r.At, whole) && (home || former || l.moved(e, r)) || during(e, r.At, meshed) && visited
	case "Mnesia":
		return apart(e, r)
	case "Redis":
		// A pod that reaches nobody does not reach Redis either, and for a while afterwards it does not know. What it acknowledges then
		// is missing until the user stashes again, whenever that is.
		return during(e, r.Last.At, whole) && e.Kind == schedule.CutOff && home
	}
	return false
}

// apart is whether Mnesia's copies were not one when the user came back, or LiveStash may have refused what the page stashed last. It does until
// they are one and pages own their stashes again, and whoever leaves by then has not stashed again.
func apart(e Event, r ledger.Return) bool {
	return during(e, r.At, whole) || during(e, r.Missing, meshed) && during(e, r.Last.At, meshed)
}

// stranded is whether a pod stopped while it, or those that it would have handed its states to, could not be reached.
func (l *Log) stranded(e Event, r ledger.Return) bool {
	return l.Adapter == "ETS" && slices.ContainsFunc(l.Moves, func(m Move) bool {
		return m.hit(Pod(r.Last.Node), r.Last.At) && e.Start.Before(r.At) &&
			e.Start.Before(m.At.Add(drain)) && e.End.Add(meshed).After(m.At)
	})
}

// moved is whether the pod behind the user's last page was told to stop before the event was over: its states may have been
// anywhere then.
func (l *Log) moved(e Event, r ledger.Return) bool {
	return l.movedFrom(Pod(r.Last.Node), e, r.Last.At)
}

// movedFrom is the same for a pod that had a state at a time.
func (l *Log) movedFrom(pod string, e Event, since time.Time) bool {
	return slices.ContainsFunc(l.Moves, func(m Move) bool {
		return m.hit(pod, since) && m.At.Before(e.End.Add(around))
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
