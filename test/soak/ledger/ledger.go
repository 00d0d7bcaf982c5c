// Package ledger says what one user may find of its own state, and what it means that the user finds something else.
package ledger

import (
	"slices"
	"time"
)

// Verdict is what a return came to.
type Verdict string

// The verdicts. Stale and Lost are the ones that have to be explained.
const (
	// Recovered is the version that was acknowledged last.
	Recovered Verdict = "recovered"
	// Newer is the version after it: that stash was sent and done, but its answer was lost.
	Newer Verdict = "newer"
	// Twin is the version of the user's other tab, which is as good as this one's.
	Twin Verdict = "twin"
	// Unstored is an older version, or none, when all later ones were acknowledged while the store was away. LiveStash
	// acknowledges those too: what it says then is that the process behind the page has them.
	Unstored Verdict = "unstored"
	// Nothing is nothing found where there was nothing to find.
	Nothing Verdict = "nothing"
	// Expired is nothing found by a user who was away for longer than the state was to live.
	Expired Verdict = "expired"
	// Stale is a version that is older than the last acknowledged one, or that this user has never had.
	Stale Verdict = "stale"
	// Lost is nothing found, though something was acknowledged.
	Lost Verdict = "lost"
)

// Bad is whether a verdict has to be explained.
func (v Verdict) Bad() bool { return v == Stale || v == Lost }

// found is the page's status after a return to its state.
const found = "recovered"

const (
	// maxOthers bounds how many versions of other tabs are remembered, and how many states that were not found.
	maxOthers = 8
	// maxRecent bounds of how many versions it is remembered when they were acknowledged.
	maxRecent = 64
)

// Stash is one acknowledged version, or one that was found.
type Stash struct {
	// Version is the counter that the page shows.
	Version int `json:"version"`
	// Node is the BEAM node behind the page.
	Node string    `json:"node"`
	At   time.Time `json:"at"`
}

// Ledger is what a user knows of its own state. The zero value is a user who has never stashed.
type Ledger struct {
	last Stash
	// sent is when the last stash was sent, made is that time of the last acknowledged one: it is not younger than that.
	sent, made time.Time
	// stored is the newest version that was acknowledged or found while the store was there; version 0 is none.
	stored Stash
	// storing is when that one was sent, or found. What another tab was told after that may have come to the store after it: two stashes that are on
	// their way at the same time have no order.
	storing time.Time
	// unsure is whether a later stash was sent that nobody acknowledged: it may count or not.
	unsure bool
	// recent are the versions that were acknowledged last, the newest at the end.
	recent []Stash
	// others are what other tabs of this user have left behind.
	others []tab
	// former is what the user knew before it found nothing, until it has stashed anew: such a state may yet turn up.
	former *Ledger
	// lives are what the user had each time when it found nothing, the last at the end.
	lives []Stash
}

// tab is what another tab has left behind: its last version, those before it, and which of them was the newest in the store.
type tab struct {
	last   Stash
	recent []Stash
	stored Stash
}

// Return is one return of a user, and what it came to.
type Return struct {
	User    int       `json:"user"`
	Verdict Verdict   `json:"verdict"`
	At      time.Time `json:"at"`
	// Status and Version are what the page showed, Node is where.
	Status  string `json:"status"`
	Version int    `json:"version"`
	Node    string `json:"node"`
	// Last is what was known: since Last.At at the latest, Last.Node had the state. Of a version that only another tab had before its
	// last one, that tab's.
	Last Stash `json:"last"`
	// Origin is the node that had the version that was found, or a later one of before the user found nothing; empty when that is not
	// known, or nothing was found.
	Origin string `json:"origin"`
	// Tabs are the nodes that had the last versions of the user's other tabs, when there were any: others than that of Last.
	Tabs []string `json:"tabs,omitempty"`
	// First is the pod that the user asked first, if it was one by its name: it may have had the state, and taken too long to say so.
	First string `json:"first"`
	// Gone is when the user lost its page, or left it; zero when that is not known.
	Gone time.Time `json:"gone"`
	// Made is since when the last acknowledged stash may be there: when it was sent.
	Made time.Time `json:"made"`
	// Missing is when the first of the versions that were not found was acknowledged; zero when that is not known.
	Missing time.Time `json:"missing"`
	// Trail is what happened to the user before, in sentences.
	Trail []string `json:"trail,omitempty"`
}

// Last is the version that was acknowledged or found last.
func (l *Ledger) Last() Stash { return l.last }

// Sent notes that a stash is on its way.
func (l *Ledger) Sent(at time.Time) { l.unsure, l.sent = true, at }

// Acknowledged notes the answer to a stash, and judges the version that the page shows with it. Stored is whether the store was
// there all the while.
func (l *Ledger) Acknowledged(s Stash, stored bool) Return {
	r := Return{Verdict: Recovered, At: s.At, Status: "acknowledged", Version: s.Version, Node: s.Node, Last: l.last}
	if s.Version != l.last.Version+1 {
		r.Verdict = Stale
	}
	l.last, l.made, l.unsure, l.former = s, l.sent, false, nil
	// A new slice, because copies of a ledger share the old one.
	l.recent = append(slices.Clone(l.recent[max(0, len(l.recent)-maxRecent+1):]), s)
	if stored {
		l.stored, l.storing = s, l.sent
	}
	return r
}

// Found judges what the page shows after a return. The user goes on from there.
func (l *Ledger) Found(status string, s Stash) Return {
	r := Return{At: s.At, Status: status, Version: s.Version, Node: s.Node, Last: l.Known().last, Made: l.Known().made}
	before := *l
	if status != found {
		s.Version = 0
	}
	r.Missing = l.Known().after(s.Version)
	for _, other := range l.others {
		r.Tabs = append(r.Tabs, other.last.Node)
	}
	if status != found {
		r.Verdict = l.missing()
		*l = Ledger{last: Stash{Node: s.Node, At: s.At}, former: &before, lives: before.lives}
		if before.last.Version > 0 {
			// A new slice, because copies of a ledger share the old one.
			lives := append(slices.Clone(before.lives), before.last)
			l.lives = lives[max(0, len(lives)-maxOthers):]
		}
		if r.Verdict == Nothing {
			l.former, l.unsure = before.former, before.unsure
		}
		return r
	}
	r.Verdict, r.Origin = l.judge(s.Version), l.origin(s.Version)
	if r.Verdict == Stale {
		l.ofTab(&r)
	}
	l.last, l.stored, l.storing, l.former = s, s, s.At, nil
	l.recent = slices.DeleteFunc(slices.Clone(l.recent), func(r Stash) bool { return r.Version > s.Version })
	l.unsure = before.unsure && s.Version == before.last.Version
	if len(l.others) > 0 && s.Version != before.last.Version {
		l.leave(before.asTab())
	}
	return r
}

// ofTab says of a return what another tab knew, if only that one can have had the version that was found.
func (l *Ledger) ofTab(r *Return) {
	has := func(recent []Stash, version int) bool {
		return slices.ContainsFunc(recent, func(s Stash) bool { return s.Version == version })
	}
	for _, other := range slices.Backward(l.others) {
		if has(other.recent, r.Version) {
			r.Tabs = append(r.Tabs, r.Last.Node)
			r.Last, r.Origin, r.Missing = other.last, other.last.Node, after(other.recent, r.Version)
			return
		}
	}
}

// after is when the version after one was acknowledged; zero when that is not known.
func (l *Ledger) after(version int) time.Time { return after(l.recent, version) }

func after(recent []Stash, version int) time.Time { return timeOf(recent, version+1) }

// timeOf is when a version was acknowledged; zero when that is not known.
func timeOf(recent []Stash, version int) time.Time {
	i := slices.IndexFunc(recent, func(s Stash) bool { return s.Version == version })
	if i < 0 {
		return time.Time{}
	}
	return recent[i].At
}

// origin is the node that had a version, if it is known.
func (l *Ledger) origin(version int) string {
	for _, s := range slices.Backward(l.recent) {
		if s.Version == version {
			return s.Node
		}
	}
	for _, life := range slices.Backward(l.lives) {
		if life.Version >= version {
			return life.Node
		}
	}
	return ""
}

// Age is how old the state was, when it was last known to be there, at a return.
func (r Return) Age() time.Duration { return r.At.Sub(r.Last.At) }

// Left notes the version with which another tab of the user, that began with the same state, has ended.
func (l *Ledger) Left(other Ledger) {
	l.leave(other.asTab())
	if other.unsure {
		next := other.last
		next.Version++
		l.leave(tab{last: next})
	}
}

// asTab is what the tab with this ledger leaves behind.
func (l *Ledger) asTab() tab { return tab{last: l.last, recent: l.recent, stored: l.stored} }

func (l *Ledger) leave(other tab) {
	// A new slice, because copies of a ledger share the old one.
	others := append(slices.Clone(l.others), other)
	l.others = others[max(0, len(others)-maxOthers):]
}

// Known is the ledger by which the next return is judged: that of before, for somebody who found nothing and has not stashed.
func (l *Ledger) Known() *Ledger {
	if l.last.Version == 0 && l.former != nil {
		return l.former.Known()
	}
	return l
}

// missing is the verdict on nothing. A loss counts once.
func (l *Ledger) missing() Verdict {
	switch {
	case l.last.Version == 0:
		return Nothing
	case l.stored.Version == 0:
		return Unstored
	}
	return Lost
}

// unstored is whether all that either tab stashed after a version of the other one was acknowledged while the store was away.
func (l *Ledger) unstored(other tab, version int) bool {
	if version < other.stored.Version || other.last.Version <= version {
		return false
	}
	at := timeOf(other.recent, version)
	return !at.IsZero() && l.storing.Before(at)
}

func (l *Ledger) judge(version int) Verdict {
	switch {
	case version == l.last.Version:
		return Recovered
	case l.unsure && version == l.last.Version+1:
		return Newer
	case slices.ContainsFunc(l.others, func(other tab) bool { return other.last.Version == version }):
		return Twin
	case l.stored.Version <= version && version < l.last.Version:
		return Unstored
	case slices.ContainsFunc(l.others, func(other tab) bool { return l.unstored(other, version) }):
		return Unstored
	case l.former != nil:
		return l.former.judge(version)
	}
	return Stale
}
