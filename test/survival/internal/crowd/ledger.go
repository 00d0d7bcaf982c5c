package crowd

import "time"

// verdict is what became of a session's state, from best to worst: a user who finds wrong state may not even notice.
type verdict int

const (
	unseen verdict = iota
	recovered
	young
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
	// sentAt is when the acknowledged stashes were sent, those since the first one or the last ones, the last one at the end.
	sentAt []time.Time
}

// sent notes that a stash is on its way.
func (l *ledger) sent() { l.unsure = true }

// acknowledged judges the count that the answer to a stash shows, which was sent then.
func (l *ledger) acknowledged(count int, sent time.Time) verdict {
	want := l.acked + 1
	*l = ledger{acked: count, sentAt: append(l.sentAt, sent)}
	if count != want {
		return stale
	}
	return recovered
}

// found judges what the page shows after a reconnect. The user goes on from there. What is missing is young when it was sent no
// earlier than since.
func (l *ledger) found(status string, count int, since time.Time) verdict {
	before := *l
	*l = ledger{acked: count, sentAt: before.kept(count)}
	switch {
	case status != "recovered":
		l.former, l.sentAt = &before, nil
		if before.isYoung(0, since) {
			return young
		}
		return lost
	case before.allows(count):
		return recovered
	case before.isYoung(count, since):
		return young
	}
	return stale
}

// kept are the times of the stashes up to that count.
func (l *ledger) kept(count int) []time.Time {
	return l.sentAt[:max(0, len(l.sentAt)-max(0, l.acked-count))]
}

// isYoung is whether the first stash after that count was sent no earlier than since.
func (l *ledger) isYoung(count int, since time.Time) bool {
	first := len(l.sentAt) - (l.acked - count)
	return first >= 0 && first < len(l.sentAt) && !l.sentAt[first].Before(since)
}

func (l *ledger) allows(count int) bool {
	return count == l.acked || l.unsure && count == l.acked+1 || l.former != nil && l.former.allows(count)
}
