package crowd

// verdict is what became of a session's state, from best to worst: a user who finds wrong state may not even notice.
type verdict int

const (
	unseen verdict = iota
	recovered
	lost
	stale
)

// ledger is what a user knows of its own counter.
type ledger struct {
	// acked is the count that the last acknowledged stash showed.
	acked int
	// unsure is whether a later stash was sent that nobody acknowledged: it may count or not.
	unsure bool
	// former is what the user knew before it found nothing, until it has stashed anew: such a state may yet turn up.
	former *ledger
}

// sent notes that a stash is on its way.
func (l *ledger) sent() { l.unsure = true }

// acknowledged judges the count that the answer to a stash shows.
func (l *ledger) acknowledged(count int) verdict {
	want := l.acked + 1
	*l = ledger{acked: count}
	if count != want {
		return stale
	}
	return recovered
}

// found judges what the page shows after a reconnect. The user goes on from there.
func (l *ledger) found(status string, count int) verdict {
	before := *l
	*l = ledger{acked: count}
	switch {
	case status != "recovered":
		l.former = &before
		return lost
	case before.allows(count):
		return recovered
	}
	return stale
}

func (l *ledger) allows(count int) bool {
	return count == l.acked || l.unsure && count == l.acked+1 || l.former != nil && l.former.allows(count)
}
