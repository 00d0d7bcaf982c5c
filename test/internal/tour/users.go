package tour

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveview"
)

// reloadAfter is how long a user waits who could not load the page.
const reloadAfter = time.Second

// users are those of one fleet beside the one who looks at the page. Each has one tab open, stashes now and then, and
// comes back as a browser does.
type users struct {
	client  *liveview.Client
	address string
	pace    browser.Pace
	// stashEvery is the mean time between two stashes of one user.
	stashEvery time.Duration

	mu  sync.Mutex
	all []*user
}

// newUsers are n users who are not there yet.
func newUsers(client *liveview.Client, address string, stashEvery time.Duration, n int) *users {
	u := &users{client: client, address: address, pace: browser.Usual(), stashEvery: stashEvery}
	for range n {
		u.all = append(u.all, &user{})
	}
	return u
}

// user is one of them. The fields are guarded by the users' lock.
type user struct {
	connected bool
	// back is whether the user has come back since the deploy, lost whether without the state once.
	back, lost bool
	// stashed is the counter as the user knows it.
	stashed int
}

// found notes what a user has found who came back. Who has not stashed yet has nothing to lose, and nothing to keep.
func (one *user) found(state bool) {
	if one.stashed > 0 {
		one.back, one.lost = true, one.lost || !state
	}
}

// tally is what the page shows of them.
type tally struct {
	Users     int `json:"users"`
	Connected int `json:"connected"`
	// Kept is how many have come back since the deploy, each time with their state; Lost how many without it.
	Kept int `json:"kept"`
	Lost int `json:"lost"`
}

// run lets all of them live until the context ends.
func (u *users) run(ctx context.Context) {
	var living sync.WaitGroup
	for _, one := range u.all {
		living.Go(func() { u.live(ctx, one) })
	}
	living.Wait()
}

// begin forgets what was before: a deploy begins.
func (u *users) begin() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range u.all {
		one.back, one.lost = false, false
	}
}

func (u *users) tally() tally {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := tally{Users: len(u.all)}
	for _, one := range u.all {
		if one.connected {
			t.Connected++
		}
		switch {
		case one.lost:
			t.Lost++
		case one.back:
			t.Kept++
		}
	}
	return t
}

// live is a user's time: one page after the other, should a page not be able to come back.
func (u *users) live(ctx context.Context, one *user) {
	for first := true; ctx.Err() == nil; first = false {
		tab, err := browser.Open(ctx, u.client, u.address, u.pace)
		if err != nil {
			pause(ctx, reloadAfter)
			continue
		}
		u.mu.Lock()
		one.connected = true
		if !first {
			one.found(false) // the page was loaded anew, and begins anew
		}
		one.stashed = tab.Count
		u.mu.Unlock()
		u.stay(ctx, one, tab)
	}
}

// stay returns when the page has to be loaded anew, or the context ends.
func (u *users) stay(ctx context.Context, one *user, tab *browser.Tab) {
	habits := browser.Habits{
		FirstStash: func() time.Duration { return rand.N(u.stashEvery) },
		NextStash:  func() time.Duration { return rand.N(2 * u.stashEvery) },
		Stashes:    func() bool { return true },
		Sent:       func() {},
		Acknowledged: func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			one.stashed = tab.Count
		},
	}
	for {
		end := tab.Live(ctx, habits)
		tab.Drop()
		u.mu.Lock()
		one.connected = false
		u.mu.Unlock()
		if end.Final || !u.rejoin(ctx, tab) {
			return
		}
		u.mu.Lock()
		one.connected = true
		// A stash that was not acknowledged may have arrived.
		one.found(tab.Status == "recovered" && tab.Count >= one.stashed)
		one.stashed = tab.Count
		u.mu.Unlock()
	}
}

// rejoin tries until it succeeds. It is false when the page has to be loaded anew, or the context has ended.
func (u *users) rejoin(ctx context.Context, tab *browser.Tab) bool {
	for attempt := 1; ; attempt++ {
		if !pause(ctx, u.pace.Wait(attempt)) {
			return false
		}
		err := tab.Rejoin(ctx, u.address)
		if err == nil {
			return true
		}
		if errors.Is(err, liveview.ErrStale) {
			return false
		}
	}
}

// pause is false when the context ends before.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}
