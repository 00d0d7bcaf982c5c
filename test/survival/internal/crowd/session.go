package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveview"
)

// session is one user. One goroutine owns it; what others look at is guarded by mu.
type session struct {
	crowd *Crowd
	index int
	// pod is the address where the session was opened.
	pod string
	// idle sessions stash once.
	idle   bool
	tab    *browser.Tab
	ledger ledger
	// check asks for a reconnect; checked is closed when it is done.
	check, checked chan struct{}
	// sent is when the last stash was sent.
	sent time.Time

	mu    sync.Mutex
	ready bool
	away  bool
	// stashed is when the last acknowledged stash was sent.
	stashed time.Time
	record  record
}

// record is what happened to a session during an event.
type record struct {
	worst verdict
	// closed is whether its socket ended without its own doing.
	closed bool
	// moves is how often it came back after its socket had ended without its own doing.
	moves int
	// times are how long it took to be back, one for each time the socket was closed.
	times []time.Duration
}

// run keeps an opened session alive until the context ends.
func (s *session) run(ctx context.Context) {
	for ctx.Err() == nil {
		end := s.live(ctx)
		s.tab.Drop()
		if ctx.Err() == nil {
			s.comeBack(ctx, end)
		}
	}
	s.tab.Drop()
}

// open makes the first visit, at the session's pod. A busy pod is asked again.
func (s *session) open(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := s.visit(ctx, s.pod)
		if err == nil {
			return nil
		}
		s.crowd.failedAttempt(err)
		if ctx.Err() != nil || attempt == len(s.crowd.pace.Reconnect) {
			return fmt.Errorf("open at %s: %w", s.pod, err)
		}
		pause(ctx, s.crowd.pace.Wait(attempt))
	}
}

func (s *session) visit(ctx context.Context, address string) error {
	tab, err := browser.Open(ctx, s.crowd.client, address, s.crowd.pace)
	if err != nil {
		return err
	}
	s.tab = tab
	s.ledger = ledger{acked: tab.Count}
	return nil
}

// live is the time of one socket. It returns when the socket has ended or is to be ended.
func (s *session) live(ctx context.Context) browser.End {
	return s.tab.Live(ctx, browser.Habits{
		FirstStash: s.untilFirstStash, NextStash: s.untilStash, Stashes: s.wantsToStash,
		Sent: func() {
			s.ledger.sent()
			s.sent = time.Now()
		},
		Acknowledged: s.acknowledged,
		Leave:        s.check,
	})
}

func (s *session) acknowledged() {
	acked := s.ledger.acked
	s.judge(s.ledger.acknowledged(s.tab.Count, s.sent), "stashed at %d and the page showed %d", acked, s.tab.Count)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready, s.stashed = true, s.sent
}

// since is from when on a user counts as away. A server that fell silent was gone since it was heard last, or since the event
// that took it away.
func (s *session) since(end browser.End) time.Time {
	if effect := s.crowd.effect(); end.Silent && effect.After(end.Since) {
		return effect
	}
	return end.Since
}

// comeBack reconnects through the Service until it works.
func (s *session) comeBack(ctx context.Context, end browser.End) {
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	if end.Why != "" {
		s.crowd.closed(end.Why)
		s.mu.Lock()
		s.record.closed = true
		s.mu.Unlock()
	}
	if end.Final {
		s.judge(lost, "%s: a browser does not come back", end.Why)
	}
	end = s.shown(ctx, end)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		pause(ctx, s.crowd.pace.Wait(attempt))
		err := s.rejoin(ctx, s.oldest(end))
		if err == nil {
			break
		}
		s.crowd.failedAttempt(err)
		if errors.Is(err, liveview.ErrStale) {
			s.judge(lost, "%v", err)
			s.startAnew(ctx)
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.away = false
	if end.Why != "" {
		s.record.moves++
		s.record.times = append(s.record.times, s.tab.Heard.Sub(s.since(end)))
	}
	s.mu.Unlock()
	if end.Asked {
		close(s.checked)
	}
}

// shown waits until the user looks at the page, if that is hidden. How long that takes says nothing of the fleet, so such an
// end counts as one of the user's own.
func (s *session) shown(ctx context.Context, end browser.End) browser.End {
	if !s.crowd.plan.Hidden {
		return end
	}
	if !end.Asked {
		select {
		case <-s.check:
		case <-ctx.Done():
		}
	}
	return browser.End{Asked: true}
}

// oldest is from when on what the user has stashed may be missing. Nothing may of a user who left.
func (s *session) oldest(end browser.End) time.Time {
	young := time.Duration(s.crowd.plan.YoungMS) * time.Millisecond
	if young == 0 || end.Why == "" {
		return time.Now()
	}
	return s.since(end).Add(-young)
}

// rejoin comes back. What was stashed since then may be missing.
func (s *session) rejoin(ctx context.Context, since time.Time) error {
	from := s.tab.Node
	if err := s.tab.Rejoin(ctx, s.crowd.service); err != nil {
		return err
	}
	known := s.ledger.acked
	s.judge(s.ledger.found(s.tab.Status, s.tab.Count, since), "had stashed %d and found %s with %d, from %s on %s",
		known, s.tab.Status, s.tab.Count, from, s.tab.Node)
	return nil
}

// startAnew is what is left to a browser whose page is refused: it loads it again, as a new user.
func (s *session) startAnew(ctx context.Context) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		err := s.visit(ctx, s.crowd.service)
		if err == nil {
			return
		}
		s.crowd.failedAttempt(err)
		pause(ctx, s.crowd.pace.Wait(attempt))
	}
}

func (s *session) judge(v verdict, why string, args ...any) {
	s.mu.Lock()
	s.record.worst = max(s.record.worst, v)
	s.mu.Unlock()
	if v > recovered {
		s.crowd.note(fmt.Sprintf("session %d ", s.index) + fmt.Sprintf(why, args...))
	}
}

// untilStash is the time between two stashes: a half to one and a half of the mean, so that the crowd does not act as one.
func (s *session) untilStash() time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(s.crowd.every))
}

// untilFirstStash is the same for the first stash on a socket: who has never stashed does so at once.
func (s *session) untilFirstStash() time.Duration {
	if !s.ready {
		return 0
	}
	return s.untilStash()
}

func (s *session) wantsToStash() bool { return (!s.idle || !s.ready) }

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
