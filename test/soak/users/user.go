package users

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveview"
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

const (
	// maxTrail is how many sentences on what happened to a user are remembered.
	maxTrail = 12
	// storeLimit is how long a user tries again when the page says that it could not ask its store, and the store is there. A page
	// that still cannot is one without state.
	storeLimit = 2 * time.Minute
	// storeRetry is how long it waits before it tries again.
	storeRetry = time.Second
	// failed is the page's status when its store could not be asked.
	failed = "error"
)

// user is one user. One goroutine owns it; what others look at is guarded by mu.
type user struct {
	all    *Users
	index  int
	kind   Kind
	random *rand.Rand
	tab    *browser.Tab
	ledger ledger.Ledger
	trail  []string

	mu    sync.Mutex
	ready bool
	away  bool
	// leave asks the user to drop the socket that it has now.
	leave chan struct{}
	// returned is when the last return that was judged began.
	returned time.Time
}

// open makes the first visit, at one pod after the other. A busy pod is asked again.
func (u *user) open(ctx context.Context) error {
	address := u.all.plan.Pods[u.index%len(u.all.plan.Pods)]
	for attempt := 1; ; attempt++ {
		tab, err := browser.Open(ctx, u.all.client, address, u.all.pace)
		if err == nil {
			u.tab = tab
			return nil
		}
		u.all.failedAttempt(err)
		if ctx.Err() != nil || attempt == len(u.all.pace.Reconnect) {
			return fmt.Errorf("open at %s: %w", address, err)
		}
		pause(ctx, u.all.pace.Wait(attempt))
	}
}

// run keeps an opened user going until the context ends.
func (u *user) run(ctx context.Context) {
	for ctx.Err() == nil {
		end := u.tab.Live(ctx, u.habits())
		u.tab.Drop()
		u.setAway(true)
		switch {
		case ctx.Err() != nil:
		case end.Why != "":
			u.comeBack(ctx, end)
		case !u.all.lastCheck().IsZero():
			u.comeBack(ctx, end)
		case u.kind == Doubling:
			u.comeBackTwice(ctx)
		default:
			u.note("left")
			u.stayAway(ctx)
			u.comeBack(ctx, end)
		}
	}
}

// habits are what the user does on the next socket. It leaves only when a stash was just acknowledged, so that what it knows
// of its state's age is right.
func (u *user) habits() browser.Habits {
	leave := make(chan struct{}, 1)
	u.mu.Lock()
	u.leave = leave
	u.mu.Unlock()
	// Who was asked while there was no socket leaves the next one. Not under the lock: Report takes both, the other one first.
	if u.returned.Before(u.all.lastCheck()) {
		ask(leave)
	}
	return u.tabHabits(u.tab, &u.ledger, u.all.plan.stashEvery(u.kind), time.Now().Add(stay(u.kind, u.random)), leave)
}

// tabHabits are those in a tab that the user wants to leave at a time.
func (u *user) tabHabits(
	tab *browser.Tab, book *ledger.Ledger, every time.Duration, until time.Time, leave chan struct{},
) browser.Habits {
	var sent time.Time
	return browser.Habits{
		FirstStash: func() time.Duration {
			if book.Last().Version == 0 {
				return 0
			}
			return u.around(every)
		},
		NextStash: func() time.Duration { return u.around(every) },
		Stashes:   func() bool { return true },
		Sent: func() {
			sent = time.Now()
			book.Sent(sent)
		},
		Acknowledged: func() {
			u.acknowledged(tab, book, sent)
			if time.Now().After(until) && u.all.lastCheck().IsZero() {
				ask(leave)
			}
		},
		Leave: leave,
	}
}

// around is a half to one and a half of a mean, so that the users do not act as one.
func (u *user) around(mean time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return between(u.random, mean/2, mean*3/2)
}

func (u *user) acknowledged(tab *browser.Tab, book *ledger.Ledger, sent time.Time) {
	stored := u.all.storedSince(sent)
	r := book.Acknowledged(ledger.Stash{Version: tab.Count, Node: tab.Node, At: tab.Heard}, stored)
	u.all.count(func(report *Report) {
		report.Stashes++
		// An answer is no return.
		if r.Verdict.Bad() {
			report.Verdicts[r.Verdict]++
			report.keep(u.signed(r))
		}
	})
	u.note("stashed %d on %s", tab.Count, tab.Node)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready = true
}

// goAway asks the user to drop its socket.
func (u *user) goAway() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.leave != nil {
		ask(u.leave)
	}
}

// ask asks once.
func ask(leave chan<- struct{}) {
	select {
	case leave <- struct{}{}:
	default:
	}
}

// stayAway waits until the user wants to be back, or everybody has to.
func (u *user) stayAway(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.all.over, cancel)()
	pause(ctx, u.all.plan.away(u.kind, u.random))
}

// comeBack reconnects until it works, and judges what the page shows.
func (u *user) comeBack(ctx context.Context, end browser.End) {
	began, from := time.Now(), u.tab.Node
	if end.Why != "" {
		u.note("cut: %s", end.Why)
		u.all.count(func(r *Report) { r.Cut++; r.Endings[end.Why]++ })
	}
	address := u.all.plan.Service
	if end.Why == "" {
		address = u.destination()
	}
	back, ok := u.reconnect(ctx, u.tab, &u.ledger, address)
	if !ok {
		return
	}
	back.Gone, back.First = end.Since, u.podAt(address)
	if end.Final {
		back.Verdict, back.Status = ledger.Lost, end.Why+": a browser does not come back"
	}
	if back.Verdict == ledger.Lost && u.expired(back, end) {
		back.Verdict = ledger.Expired
	}
	u.all.judged(back)
	if end.Why != "" {
		u.all.back(Slow{User: u.index, Why: end.Why, At: clock(u.tab.Heard), From: from, To: u.tab.Node}, u.tab.Heard.Sub(end.Since))
	}
	u.isBack(began)
}

// expired is whether the stash had come of age. It lives for its TTL from when its user has left, and the one in a browser's memory
// from when it was made, whatever the user did since. Those of users who are cut off by a pod that stops live for longer.
func (u *user) expired(back ledger.Return, end browser.End) bool {
	if u.all.plan.Adapter == browserMemory {
		return back.At.Sub(back.Made) > u.all.plan.ttl()
	}
	return end.Why == "" && back.Age() > u.all.plan.ttl()
}

// isBack notes that a return that began at some time was judged.
func (u *user) isBack(began time.Time) {
	u.setAway(false)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.returned = began
}

// destination is where a user who left by itself comes back: at the pod that it was at, at another, or wherever the Service leads.
func (u *user) destination() string {
	pods := u.all.plan.Pods
	switch u.random.IntN(3) {
	case 0:
		host := podOf(u.tab.Node) + "."
		if i := slices.IndexFunc(pods, func(address string) bool { return strings.HasPrefix(address, host) }); i >= 0 {
			return pods[i]
		}
	case 1:
		return pods[u.random.IntN(len(pods))]
	}
	return u.all.plan.Service
}

// podAt is the name of the pod with an address; empty when it is none of a pod.
func (u *user) podAt(address string) string {
	if !slices.Contains(u.all.plan.Pods, address) {
		return ""
	}
	name, _, _ := strings.Cut(address, ".")
	return name
}

// podOf is the pod of a node's name: shop@shop-1.shop-nodes.shop.svc.cluster.local.
func podOf(node string) string {
	_, host, _ := strings.Cut(node, "@")
	pod, _, _ := strings.Cut(host, ".")
	return pod
}

// reconnect opens a new socket for a tab, at an address and when that fails through the Service, until it works. A page that could
// not ask its store is tried again. It is not ok when the context has ended.
func (u *user) reconnect(ctx context.Context, tab *browser.Tab, book *ledger.Ledger, address string) (back ledger.Return, ok bool) {
	deadline := time.Now().Add(storeLimit)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		pause(ctx, u.all.pace.Wait(attempt))
		err := tab.Rejoin(ctx, address)
		if errors.Is(err, liveview.ErrStale) {
			return u.startAnew(ctx, tab, book)
		}
		address = u.all.plan.Service
		if err != nil {
			u.all.failedAttempt(err)
			continue
		}
		if tab.Status != failed || time.Now().After(deadline) && u.all.storedSince(time.Now().Add(-storeLimit)) {
			return u.found(tab, book), true
		}
		u.note("found a page that could not ask its store, on %s", tab.Node)
		u.all.count(func(r *Report) { r.Errors++ })
		tab.Drop()
		pause(ctx, storeRetry)
		attempt = 0
	}
	return back, false
}

// found judges what a tab that has just come back shows.
func (u *user) found(tab *browser.Tab, book *ledger.Ledger) ledger.Return {
	back := book.Found(tab.Status, ledger.Stash{Version: tab.Count, Node: tab.Node, At: tab.Heard})
	u.note("found %s with %d on %s: %s", tab.Status, tab.Count, tab.Node, back.Verdict)
	return u.signed(back)
}

// startAnew is what is left to a browser whose page is refused: it loads it again, as a new user.
func (u *user) startAnew(ctx context.Context, tab *browser.Tab, book *ledger.Ledger) (back ledger.Return, ok bool) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		fresh, err := browser.Open(ctx, u.all.client, u.all.plan.Service, u.all.pace)
		if err == nil {
			*tab = *fresh
			back := book.Found("refused", ledger.Stash{Node: tab.Node, At: tab.Heard})
			u.note("was refused, and loaded the page anew on %s", tab.Node)
			return u.signed(back), true
		}
		u.all.failedAttempt(err)
		pause(ctx, u.all.pace.Wait(attempt))
	}
	return back, false
}

// signed is a return with the user's name, and what happened to the user before when it has to be explained.
func (u *user) signed(r ledger.Return) ledger.Return {
	r.User = u.index
	if r.Verdict.Bad() {
		u.mu.Lock()
		defer u.mu.Unlock()
		r.Trail = slices.Clone(u.trail)
	}
	return r
}

// note remembers what happened to the user, for the time when a return has to be explained.
func (u *user) note(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trail = append(u.trail, clock(time.Now())+" "+fmt.Sprintf(format, args...))
	u.trail = u.trail[max(0, len(u.trail)-maxTrail):]
}

func (u *user) setAway(away bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.away = away
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
