package browser

import (
	"context"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/internal/liveview"
)

// normalClosure is the close code after which phoenix.js does not come back.
const normalClosure = 1000

// Tab is one page with at most one socket. One goroutine owns it.
type Tab struct {
	*liveview.View
	// Heard is when the server was heard last.
	Heard time.Time

	pace   Pace
	socket *liveview.Socket
}

// Habits are what a user does while the socket is open.
type Habits struct {
	// FirstStash is how long after the beginning the user wants to stash, and NextStash how long after that again.
	FirstStash, NextStash func() time.Duration
	// Stashes is whether the user does it when the time has come and no stash is on its way.
	Stashes func() bool
	// Sent is called when a stash is about to be sent, Acknowledged when the page shows its answer.
	Sent         func()
	Acknowledged func()
	// Leave asks the user, once, to end the socket. A stash on its way is waited for: which of two sockets wins would be a
	// race of this client's own making.
	Leave <-chan struct{}
}

// End is how a socket ended.
type End struct {
	// Since is when the server was gone, as far as the page can tell.
	Since time.Time
	// Why is empty when the user left, or the context ended.
	Why string
	// Asked is whether Leave has asked, though the socket may have ended for another reason.
	Asked bool
	// Silent is whether the server was given up: it may have been gone later than it was heard last.
	Silent bool
	// Final is whether a browser would not come back.
	Final bool
}

// Open loads a page from an address (host:port) and opens its socket.
func Open(ctx context.Context, client *liveview.Client, address string, pace Pace) (*Tab, error) {
	ctx, cancel := context.WithTimeout(ctx, pace.Connect)
	defer cancel()
	view, err := client.Visit(ctx, address)
	if err != nil {
		return nil, err
	}
	t := &Tab{View: view, pace: pace}
	if err := t.join(ctx, address); err != nil {
		return nil, err
	}
	return t, nil
}

// Rejoin opens a new socket for the same page. The one before must have ended.
func (t *Tab) Rejoin(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, t.pace.Connect)
	defer cancel()
	return t.join(ctx, address)
}

func (t *Tab) join(ctx context.Context, address string) error {
	socket, err := t.Join(ctx, address)
	if err != nil {
		return err
	}
	t.socket, t.Heard = socket, time.Now()
	return nil
}

// Twin is a second tab with the same page, as when a user duplicates one. It has no socket yet.
func (t *Tab) Twin() *Tab { return &Tab{View: t.Clone(), pace: t.pace} }

// Drop ends the connection at once, without a close frame.
func (t *Tab) Drop() { t.socket.Drop() }

// Live is the time of one socket. It returns when the socket has ended or is to be dropped.
func (t *Tab) Live(ctx context.Context, habits Habits) End {
	frames := t.socket.Frames()
	heartbeat := time.NewTicker(t.pace.Heartbeat)
	defer heartbeat.Stop()
	stash := time.NewTimer(habits.FirstStash())
	defer stash.Stop()
	silence := time.NewTimer(0)
	silence.Stop()
	defer silence.Stop()
	leave := habits.Leave
	asked := false
	for {
		select {
		case <-ctx.Done():
			return End{Asked: asked}
		case frame, open := <-frames:
			if !open {
				return t.ended(asked)
			}
			if err := t.handle(frame, habits); err != nil {
				return End{Since: t.Heard, Why: err.Error(), Asked: asked}
			}
			if !t.Stashing() {
				silence.Stop()
			}
		case <-stash.C:
			stash.Reset(habits.NextStash())
			if t.stash(ctx, habits) {
				silence.Reset(t.pace.Reply)
			}
		case <-silence.C:
			return t.gaveUp("no answer to a stash", asked)
		case <-heartbeat.C:
			if t.Beating() {
				return t.gaveUp("no answer to a heartbeat", asked)
			}
			t.send(ctx, t.Heartbeat)
		case <-leave:
			leave, asked = nil, true
		}
		if asked && !t.Stashing() {
			return End{Since: time.Now(), Asked: true}
		}
	}
}

// stash sends a stash, if the user wants to.
func (t *Tab) stash(ctx context.Context, habits Habits) bool {
	if t.Stashing() || !habits.Stashes() {
		return false
	}
	habits.Sent()
	t.send(ctx, t.Stash)
	return true
}

// send writes to the socket. A failure shows in the socket's end.
func (t *Tab) send(ctx context.Context, message func(context.Context, *liveview.Socket) error) {
	ctx, cancel := context.WithTimeout(ctx, t.pace.Reply)
	defer cancel()
	_ = message(ctx, t.socket)
}

// handle takes in a message. After an error the socket is of no more use.
func (t *Tab) handle(frame liveview.Frame, habits Habits) error {
	t.Heard = time.Now()
	stashing := t.Stashing()
	if err := t.Handle(frame); err != nil {
		return err
	}
	if stashing && !t.Stashing() {
		habits.Acknowledged()
	}
	return nil
}

func (t *Tab) ended(asked bool) End {
	closed, code, err := t.socket.Ended()
	why := "connection lost: " + Kind(err)
	if code >= 0 {
		why = fmt.Sprintf("closed with %d", code)
	}
	return End{Since: closed, Why: why, Asked: asked, Final: code == normalClosure}
}

func (t *Tab) gaveUp(why string, asked bool) End {
	return End{Since: t.Heard, Why: why, Asked: asked, Silent: true}
}
