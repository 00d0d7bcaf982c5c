// Package crowd is many users of one application at once, each of whom knows what state it must find after a reconnect.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveview"
)

const (
	// atOnce is how many sessions are opened or checked at a time.
	atOnce = 50
	// maxNotes is how many sentences on single sessions are kept.
	maxNotes = 20
)

// Plan says which sessions are opened.
type Plan struct {
	// Adapter is LiveStash's, as it stands in the page's path: ets, browser_memory, redis, mnesia.
	Adapter string `json:"adapter"`
	// Sessions is how many. Those with an even number stash every now and then, the others once.
	Sessions int `json:"sessions"`
	// Host is the application's public host name.
	Host string `json:"host"`
	// Pods are the addresses (host:port) at which sessions are opened in turn.
	Pods []string `json:"pods"`
	// Service is the address through which they come back.
	Service string `json:"service"`
	// StashEveryMS is the mean time between two stashes of a session, in milliseconds.
	StashEveryMS int `json:"stashEveryMs"`
	// Hidden is whether the pages are hidden tabs: a browser connects one that was cut only when it is shown again, and the
	// users look at theirs when the sessions are checked.
	Hidden bool `json:"hidden,omitempty"`
	// YoungMS is how long before the end of its socket a stash was sent, at most, that may be missing, in milliseconds. 0: none may.
	YoungMS int `json:"youngMs,omitempty"`
}

func (p Plan) check() error {
	switch {
	case p.Sessions < 1:
		return errors.New("sessions must be at least 1")
	case len(p.Pods) == 0 || p.Service == "" || p.Host == "" || p.Adapter == "":
		return errors.New("adapter, host, pods and service must be set")
	case p.StashEveryMS < 1:
		return errors.New("stashEveryMs must be at least 1")
	}
	return nil
}

// Crowd is the sessions of one plan.
type Crowd struct {
	client   *liveview.Client
	pace     browser.Pace
	plan     Plan
	service  string
	every    time.Duration
	sessions []*session
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	phase    Phase
	problem  string
	begun    time.Time
	effected time.Time
	restash  time.Time
	attempts map[string]int
	endings  map[string]int
	notes    []string
}

// Open starts to open the sessions of a plan. The crowd's phase is Open when all are open and have stashed.
func Open(plan Plan, pace browser.Pace) (*Crowd, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Crowd{
		client: liveview.NewClient(plan.Host, "/stash/"+plan.Adapter),
		pace:   pace, plan: plan, service: plan.Service, every: time.Duration(plan.StashEveryMS) * time.Millisecond,
		stop: cancel, phase: Opening,
	}
	c.forget()
	for i := range plan.Sessions {
		c.sessions = append(c.sessions, &session{
			crowd: c, index: i, pod: plan.Pods[i%len(plan.Pods)],
			// Of the sessions of each pod one half is idle.
			idle:  i/len(plan.Pods)%2 == 1,
			check: make(chan struct{}, 1), checked: make(chan struct{}),
		})
	}
	c.running.Go(func() { c.open(ctx) })
	return c, nil
}

func (c *Crowd) open(ctx context.Context) {
	c.inParallel(func(s *session) error {
		if err := s.open(ctx); err != nil {
			return fmt.Errorf("session %d: %w", s.index, err)
		}
		c.running.Go(func() { s.run(ctx) })
		return nil
	})
	// The pod that answered the page may be busy for a moment, but a stash that nobody acknowledges is a fault.
	deadline := time.Now().Add(c.pace.Connect + c.pace.Reply)
	for c.tally().ready < len(c.sessions) {
		if time.Now().After(deadline) {
			c.fail(fmt.Sprintf("%d of %d sessions could not stash", len(c.sessions)-c.tally().ready, len(c.sessions)))
		}
		if ctx.Err() != nil || c.failed() {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
	c.enter(Opened)
}

// inParallel does something with every session, a few at a time. The first error ends it.
func (c *Crowd) inParallel(do func(*session) error) {
	queue := make(chan *session)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for s := range queue {
				if err := do(s); err != nil {
					c.fail(err.Error())
				}
			}
		})
	}
	for _, s := range c.sessions {
		if c.failed() {
			break
		}
		queue <- s
	}
	close(queue)
	workers.Wait()
}

// Begin starts an event: what happened before no longer counts.
func (c *Crowd) Begin() error {
	if phase := c.Report().Phase; phase != Opened {
		return fmt.Errorf("the sessions are %s, not %s", phase, Opened)
	}
	for _, s := range c.sessions {
		s.mu.Lock()
		s.record = record{}
		s.mu.Unlock()
	}
	c.mu.Lock()
	c.forget()
	c.mu.Unlock()
	c.enter(Event)
	return nil
}

// Effect says that the event takes effect now. A server that fell silent is counted as gone from here on.
func (c *Crowd) Effect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.effected = time.Now()
}

// Restash says that the store is back: from here on Outdated counts the sessions that have not stashed since. LiveStash
// acknowledges a stash that its store did not take. The process behind the page has it, and the store gets all of it with
// the next one that differs; only then can the last acknowledged count be asked for.
func (c *Crowd) Restash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restash = time.Now()
}

// Verify starts to check what every session finds: each one drops its socket and comes back through the Service. The
// crowd's phase is Verified when all were checked, or when the time is over: who is not back by then has lost its state.
func (c *Crowd) Verify(within time.Duration) error {
	if phase := c.Report().Phase; phase != Event {
		return fmt.Errorf("the sessions are in phase %s, not %s", phase, Event)
	}
	c.enter(Verifying)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	c.running.Go(func() {
		defer cancel()
		c.inParallel(func(s *session) error {
			s.check <- struct{}{}
			select {
			case <-s.checked:
			case <-ctx.Done():
				s.judge(lost, "was not back after %s", within)
			}
			return nil
		})
		c.enter(Verified)
	})
	return nil
}

// Stop ends all sessions and waits for them.
func (c *Crowd) Stop() {
	c.stop()
	c.running.Wait()
}

func (c *Crowd) enter(phase Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = phase
}

func (c *Crowd) fail(problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == "" {
		c.problem = problem
	}
}

func (c *Crowd) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem != ""
}

func (c *Crowd) effect() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.effected
}

func (c *Crowd) failedAttempt(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[browser.Kind(err)]++
}

func (c *Crowd) closed(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endings[why]++
}

func (c *Crowd) note(sentence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.notes) < maxNotes {
		c.notes = append(c.notes, fmt.Sprintf("after %.1f s %s", time.Since(c.begun).Seconds(), sentence))
	}
}

// forget drops what was counted. The lock is held.
func (c *Crowd) forget() {
	c.attempts, c.endings, c.notes = map[string]int{}, map[string]int{}, nil
	c.begun, c.effected, c.restash = time.Now(), time.Time{}, time.Time{}
}

// tally is what the sessions' records add up to.
type tally struct {
	ready, away, closed, outdated, recovered, young, stale, lost, lostIdle, mostMoves, moves int
	times                                                                                    []time.Duration
	pods                                                                                     map[string]Pod
}

func (c *Crowd) tally() tally {
	t := tally{pods: map[string]Pod{}}
	c.mu.Lock()
	restash := c.restash
	c.mu.Unlock()
	for _, s := range c.sessions {
		s.mu.Lock()
		t.add(s)
		if !s.idle && s.stashed.Before(restash) {
			t.outdated++
		}
		s.mu.Unlock()
	}
	return t
}

func (t *tally) add(s *session) {
	pod := t.pods[s.pod]
	pod.Sessions++
	if s.ready {
		t.ready++
	}
	if s.away {
		t.away++
	}
	if s.record.closed {
		t.closed++
	}
	switch s.record.worst {
	case recovered:
		t.recovered++
	case young:
		t.young++
	case stale:
		t.stale++
	case lost:
		t.lost++
		pod.Lost++
		if s.idle {
			t.lostIdle++
		}
	default:
	}
	t.mostMoves, t.moves = max(t.mostMoves, s.record.moves), t.moves+s.record.moves
	t.times = append(t.times, s.record.times...)
	t.pods[s.pod] = pod
}

// Report is what is known at this moment.
func (c *Crowd) Report() Report {
	t := c.tally()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Report{
		Phase: c.phase, Problem: c.problem,
		Sessions: len(c.sessions), Ready: t.ready, Away: t.away, Closed: t.closed, Outdated: t.outdated,
		Recovered: t.recovered, Young: t.young, Stale: t.stale, Lost: t.lost, LostIdle: t.lostIdle,
		MostMoves: t.mostMoves, Moves: t.moves,
		Times:          browser.TimesOf(t.times),
		FailedAttempts: maps.Clone(c.attempts), Endings: maps.Clone(c.endings),
		Pods: t.pods, Notes: append([]string{}, c.notes...),
	}
}
