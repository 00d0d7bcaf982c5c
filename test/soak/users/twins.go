package users

import (
	"context"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

// A user in two tabs stays for this long before it closes one.
const (
	shortestDouble = time.Second
	longestDouble  = 4 * time.Second
)

// half is one tab of a user in two.
type half struct {
	tab  *browser.Tab
	book ledger.Ledger
	back ledger.Return
	ok   bool
}

// comeBackTwice comes back from two tabs with the same stash at once. LiveStash gives a stash to one page: the other one may find
// it too, or nothing, and what a tab that found nothing stashes would be the user's own doing. So that one is closed at once.
// When both have found it both stash for a while, and then the user goes on in the first. What it finds from then on may be
// either tab's.
func (u *user) comeBackTwice(ctx context.Context) {
	began := time.Now()
	u.note("left, to come back in two tabs")
	u.stayAway(ctx)
	halves := []*half{{tab: u.tab, book: u.ledger}, {tab: u.tab.Twin(), book: u.ledger}}
	u.each(halves, func(h *half, address string) {
		h.back, h.ok = u.reconnect(ctx, h.tab, &h.book, address)
		h.back.First = u.podAt(address)
	})
	first, second := halves[0], halves[1]
	if !first.ok || !second.ok {
		u.close(halves)
		return
	}
	if empty(first) {
		first, second = second, first
	}
	u.all.count(func(r *Report) { r.Doubled++ })
	u.all.judged(first.back)
	u.tab, u.ledger = first.tab, first.book
	if empty(second) {
		second.tab.Drop()
		u.all.count(func(r *Report) { r.DoubledEmpty++ })
		u.note("closed the tab that found nothing")
		u.isBack(began)
		return
	}
	u.all.judged(second.back)
	until := time.Now().Add(between(u.random, shortestDouble, longestDouble))
	u.each(halves, func(h *half, _ string) {
		leave := make(chan struct{}, 1)
		// Also when nothing is acknowledged any more.
		timer := time.AfterFunc(longestDouble, func() { ask(leave) })
		defer timer.Stop()
		h.tab.Live(ctx, u.tabHabits(h.tab, &h.book, doubleEvery, until, leave))
		h.tab.Drop()
	})
	u.ledger = first.book
	u.ledger.Left(second.book)
	u.note("closed both tabs, at %d and %d", first.book.Last().Version, second.book.Last().Version)
	if back, ok := u.reconnect(ctx, u.tab, &u.ledger, u.all.plan.Service); ok {
		u.all.judged(back)
		u.isBack(began)
	}
}

// each does something with both tabs at once.
func (u *user) each(halves []*half, do func(h *half, address string)) {
	// Before anything runs: the user's chances are not for two at a time.
	addresses := []string{u.destination(), u.destination()}
	var both sync.WaitGroup
	for i, h := range halves {
		both.Go(func() { do(h, addresses[i]) })
	}
	both.Wait()
}

// close ends the tabs that have come back, when the context has ended.
func (u *user) close(halves []*half) {
	for _, h := range halves {
		if h.ok {
			h.tab.Drop()
		}
	}
}

func empty(h *half) bool { return h.back.Status != "recovered" }
