package crowd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/survival/internal/liveview"
)

// normalClosure is the close code after which phoenix.js does not come back.
const normalClosure = 1000

// session is one user. One goroutine owns it; what others look at is guarded by mu.
type session struct {
	crowd *Crowd
	index int
	// pod is the address where the session was opened.
	pod string
	// idle sessions stash once.
	idle   bool
	view   *liveview.View
	ledger ledger
	socket *liveview.Socket
	// check asks for a reconnect; checked is closed when it is done.
	check chan chan struct{}
	// heard is when the server was heard last, sent when the last stash was sent.
	heard, sent time.Time

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
	// times are how long it took to be back, one for each time the socket was closed.
	times []time.Duration
}

// ending is how a socket ended.
type ending struct {
	since time.Time
	// why is empty when the session ended it to be checked.
	why     string
	checked chan struct{}
	// gone is whether a browser would not come back.
	gone bool
}

// run keeps an opened session alive until the context ends.
func (s *session) run(ctx context.Context) {
	for ctx.Err() == nil {
		end := s.live(ctx)
		s.socket.Drop()
		if ctx.Err() == nil {
			s.comeBack(ctx, end)
		}
	}
	s.socket.Drop()
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
		pause(ctx, s.crowd.pace.wait(attempt))
	}
}

func (s *session) visit(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, s.crowd.pace.Connect)
	defer cancel()
	view, err := s.crowd.client.Visit(ctx, address)
	if err != nil {
		return err
	}
	socket, err := view.Join(ctx, address)
	if err != nil {
		return err
	}
	s.view, s.socket, s.heard = view, socket, time.Now()
	s.ledger = ledger{acked: view.Count}
	return nil
}

// live is the time of one socket. It returns when the socket has ended or is to be ended.
func (s *session) live(ctx context.Context) ending {
	pace, frames := s.crowd.pace, s.socket.Frames()
	heartbeat := time.NewTicker(pace.Heartbeat)
	defer heartbeat.Stop()
	stash := time.NewTimer(s.untilFirstStash())
	defer stash.Stop()
	silence := time.NewTimer(0)
	silence.Stop()
	defer silence.Stop()
	check := s.check
	var checked chan struct{}
	for {
		select {
		case <-ctx.Done():
			return ending{}
		case frame, open := <-frames:
			if !open {
				return s.ended(checked)
			}
			if broken := s.handle(frame); broken != "" {
				return ending{since: s.heard, why: broken, checked: checked}
			}
			if !s.view.Stashing() {
				silence.Stop()
			}
		case <-stash.C:
			stash.Reset(s.untilStash())
			if s.wantsToStash() {
				s.ledger.sent()
				s.sent = time.Now()
				silence.Reset(pace.Reply)
				s.send(ctx, s.view.Stash)
			}
		case <-silence.C:
			return s.gaveUp("no answer to a stash", checked)
		case <-heartbeat.C:
			if s.view.Beating() {
				return s.gaveUp("no answer to a heartbeat", checked)
			}
			s.send(ctx, s.view.Heartbeat)
		case checked = <-check:
			check = nil
		}
		// A stash on its way is waited for: which of two sockets wins would be a race of this client's own making.
		if checked != nil && !s.view.Stashing() {
			return ending{since: time.Now(), checked: checked}
		}
	}
}

// send writes to the socket. A failure shows in the socket's end.
func (s *session) send(ctx context.Context, message func(context.Context, *liveview.Socket) error) {
	ctx, cancel := context.WithTimeout(ctx, s.crowd.pace.Reply)
	defer cancel()
	_ = message(ctx, s.socket)
}

// handle takes in a message. It returns why the socket is of no more use, or nothing.
func (s *session) handle(frame liveview.Frame) string {
	s.heard = time.Now()
	stashing := s.view.Stashing()
	if err := s.view.Handle(frame); err != nil {
		return err.Error()
	}
	if stashing && !s.view.Stashing() {
		acked := s.ledger.acked
		s.judge(s.ledger.acknowledged(s.view.Count), "stashed at %d and the page showed %d", acked, s.view.Count)
		s.mu.Lock()
		s.ready, s.stashed = true, s.sent
		s.mu.Unlock()
	}
	return ""
}

func (s *session) ended(checked chan struct{}) ending {
	closed, code, err := s.socket.Ended()
	why := "connection lost: " + kind(err)
	if code >= 0 {
		why = fmt.Sprintf("closed with %d", code)
	}
	return ending{since: closed, why: why, checked: checked, gone: code == normalClosure}
}

// gaveUp is the end of a socket whose server fell silent: it was gone since it was heard last, or since the event that
// took it away.
func (s *session) gaveUp(why string, checked chan struct{}) ending {
	since := s.heard
	if effect := s.crowd.effect(); effect.After(since) {
		since = effect
	}
	return ending{since: since, why: why, checked: checked}
}

// comeBack reconnects through the Service until it works.
func (s *session) comeBack(ctx context.Context, end ending) {
	s.mu.Lock()
	s.away = true
	s.mu.Unlock()
	if end.why != "" {
		s.crowd.closed(end.why)
		s.mu.Lock()
		s.record.closed = true
		s.mu.Unlock()
	}
	if end.gone {
		s.judge(lost, "closed with %d: a browser does not come back", normalClosure)
	}
	for attempt := 1; ctx.Err() == nil; attempt++ {
		pause(ctx, s.crowd.pace.wait(attempt))
		err := s.rejoin(ctx)
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
	if end.why != "" {
		s.record.times = append(s.record.times, s.heard.Sub(end.since))
	}
	s.mu.Unlock()
	if end.checked != nil {
		close(end.checked)
	}
}

func (s *session) rejoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.crowd.pace.Connect)
	defer cancel()
	from := s.view.Node
	socket, err := s.view.Join(ctx, s.crowd.service)
	if err != nil {
		return err
	}
	s.socket, s.heard = socket, time.Now()
	known := s.ledger.acked
	s.judge(s.ledger.found(s.view.Status, s.view.Count), "had stashed %d and found %s with %d, from %s on %s",
		known, s.view.Status, s.view.Count, from, s.view.Node)
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
		pause(ctx, s.crowd.pace.wait(attempt))
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

func (s *session) wantsToStash() bool { return !s.view.Stashing() && (!s.idle || !s.ready) }

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// kind is a short name for what went wrong with a connection attempt, so that attempts can be counted.
func kind(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, liveview.ErrStale):
		return "stale"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, io.EOF):
		return "end of stream"
	}
	return "other"
}
