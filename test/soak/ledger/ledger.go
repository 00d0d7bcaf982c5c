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
	// maxOthers bounds how many versions of other tabs are remembered.
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
	// made is when the last acknowledged version was.
	made time.Time
	// stored is the newest version that was acknowledged or found while the store was there; 0 is none.
	stored int
	// unsure is whether a later stash was sent that nobody acknowledged: it may count or not.
	unsure bool
	// recent are the versions that were acknowledged last, the newest at the end.
	recent []Stash
	// others are the versions that other tabs of this user have left behind.
	others []int
	// former is what the user knew before it found nothing, until it has stashed anew: such a state may yet turn up.
	former *Ledger
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
	// Last is what was known: since Last.At at the latest, Last.Node had the state.
	Last Stash `json:"last"`
	// Made is when the user stashed last, by what was acknowledged.
	Made time.Time `json:"made"`
	// Missing is when the first of the versions that were not found was acknowledged; zero when that is not known.
	Missing time.Time `json:"missing"`
	// Trail is what happened to the user before, in sentences.
	Trail []string `json:"trail,omitempty"`
}

// Last is the version that was acknowledged or found last.
func (l *Ledger) Last() Stash { return l.last }

// Sent notes that a stash is on its way.
func (l *Ledger) Sent() { l.unsure = true }

// Acknowledged notes the answer to a stash, and judges the version that the page shows with it. Stored is whether the store was
// there all the while.
func (l *Ledger) Acknowledged(s Stash, stored bool) Return {
	r := Return{Verdict: Recovered, At: s.At, Status: "acknowledged", Version: s.Version, Node: s.Node, Last: l.last}
	if s.Version != l.last.Version+1 {
		r.Verdict = Stale
	}
	l.last, l.made, l.unsure, l.former = s, s.At, false, nil
	// A new slice, because copies of a ledger share the old one.
	l.recent = append(slices.Clone(l.recent[max(0, len(l.recent)-maxRecent+1):]), s)
	if stored {
		l.stored = s.Version
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
	if status != found {
		r.Verdict = l.missing()
		*l = Ledger{last: Stash{Node: s.Node, At: s.At}, former: &before}
		if r.Verdict == Nothing {
			l.former, l.unsure = before.former, before.unsure
		}
		return r
	}
	r.Verdict = l.judge(s.Version)
	l.last, l.stored, l.former = s, s.Version, nil
	l.recent = slices.DeleteFunc(slices.Clone(l.recent), func(r Stash) bool { return r.Version > s.Version })
	l.unsure = before.unsure && s.Version == before.last.Version
	if len(l.others) > 0 && s.Version != before.last.Version {
		l.leave(before.last.Version)
	}
	return r
}

// after is when the version after one was acknowledged; zero when that is not known.
func (l *Ledger) after(version int) time.Time {
	i := slices.IndexFunc(l.recent, func(s Stash) bool { return s.Version == version+1 })
	if i < 0 {
		return time.Time{}
	}
	return l.recent[i].At
}

// Age is how old the state was, when it was last known to be there, at a return.
func (r Return) Age() time.Duration { return r.At.Sub(r.Last.At) }

// Left notes the version with which another tab of the user, that began with the same state, has ended.
func (l *Ledger) Left(other Ledger) {
	l.leave(other.last.Version)
	if other.unsure {
		l.leave(other.last.Version + 1)
	}
}

func (l *Ledger) leave(version int) {
	// A new slice, because copies of a ledger share the old one.
	others := append(slices.Clone(l.others), version)
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
	case l.stored == 0:
		return Unstored
	}
	return Lost
}

func (l *Ledger) judge(version int) Verdict {
	switch {
	case version == l.last.Version:
		return Recovered
	case l.unsure && version == l.last.Version+1:
		return Newer
	case slices.Contains(l.others, version):
		return Twin
	case l.stored <= version && version < l.last.Version:
		return Unstored
	case l.former != nil:
		return l.former.judge(version)
	}
	return Stale
}
