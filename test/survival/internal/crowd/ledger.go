package crowd

// verdict is what became of a session's state, from best to worst.
type verdict int

const (
	unseen verdict = iota
	recovered
	stale
	lost
)

// ledger is what a user knows of its own counter.
type ledger struct {
	// acked is the count that the last acknowledged stash showed.
	acked int
	// unsure is whether a later stash was sent that nobody acknowledged: it may count or not.
	unsure bool
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
	if status != "recovered" {
		return lost
	}
	if count == before.acked || before.unsure && count == before.acked+1 {
		return recovered
	}
	return stale
}
