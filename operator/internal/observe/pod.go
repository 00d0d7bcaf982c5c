package observe

import (
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// Pace is how often the agents of a fleet are asked.
type Pace int

const (
	// Resting is for fleets in which nothing is expected to change: every 30 seconds.
	Resting Pace = iota
	// Watching is for fleets whose users are locked out when a stash gets too large: every 8 seconds, so that somebody is told
	// within 10.
	Watching
	// Rolling is for fleets in which somebody waits for a pod: every second.
	Rolling
)

func (p Pace) every() time.Duration {
	switch p {
	case Rolling:
		return time.Second
	case Watching:
		return 8 * time.Second
	default:
		return 30 * time.Second
	}
}

const (
	// startTime spreads the first questions to the pods of a new fleet a little.
	startTime = 100 * time.Millisecond
	// retryPause is between a miss and the question that decides.
	retryPause = time.Second
	// longEach: of as many questions to a silent agent one is long, for those that are slow but answer.
	longEach = 8
)

// backoff is how long an agent that missed twice is left alone at first, and at most. It doubles in between.
func (p Pace) backoff() (least, most time.Duration) {
	if p == Rolling {
		return time.Second, 5 * time.Second
	}
	return 5 * time.Second, 2 * time.Minute
}

// pod is one whose agent is asked.
type pod struct {
	fleet  *fleet
	answer Answer
	// misses in a row.
	misses int
	// due is when it is asked next. It stands in a line at a place, or nowhere.
	due         time.Time
	line, place int
}

// known is whether anything can be said of the pod.
func (p *pod) known() bool { return !p.answer.At.IsZero() || p.answer.Err != nil }

// belongs is the line that the pod belongs in.
func (p *pod) belongs() int {
	switch {
	case p.misses == 0:
		return looks
	case p.misses == 1 || p.fleet.pace == Rolling:
		return again
	}
	return silent
}

// patience is how long the next question may take.
func (p *pod) patience() time.Duration {
	if p.misses%longEach == 1 {
		return patience
	}
	return lookTime
}

// pause is how long it is until the next question.
func (p *pod) pause() time.Duration {
	switch p.misses {
	case 0:
		return jittered(p.fleet.pace.every())
	case 1:
		return jittered(retryPause)
	}
	pause, most := p.fleet.pace.backoff()
	for i := 2; i < p.misses && pause < most; i++ {
		pause *= 2
	}
	return jittered(min(pause, most))
}

// take keeps what came of a question. matters is whether somebody should hear of it at once, counted whether a counter
// changed.
func (p *pod) take(status agentclient.Status, err error, now time.Time) (matters, counted bool) {
	before := p.answer
	if err != nil {
		p.miss(err, now)
		return agentclient.KindOf(before.Err) != agentclient.KindOf(p.answer.Err), false
	}
	p.misses = 0
	p.answer.Status, p.answer.At, p.answer.Err, p.answer.Since = status, now, nil, time.Time{}
	matters = before.At.IsZero() || before.Err != nil || !reflect.DeepEqual(lasting(before.Status), lasting(status))
	return matters, counters(before.Status) != counters(status)
}

// miss counts one that did not answer. The second in a row is an error.
func (p *pod) miss(err error, now time.Time) {
	p.misses++
	if p.misses == 1 {
		p.answer.Since = now
		return
	}
	if agentclient.KindOf(p.answer.Err) != agentclient.KindOf(err) {
		p.answer.Err = err
	}
}

// lasting is what of a status does not change by itself while users come and go. Returns are only looked at in rollouts, which look
// by themselves.
func lasting(status agentclient.Status) agentclient.Status {
	status.Stashes, status.StashBytes, status.Handoffs, status.UptimeSeconds = 0, 0, agentclient.Handoffs{}, 0
	status.Returns, status.Sockets = agentclient.Returns{}, nil
	if status.Shadow != nil {
		shadow := *status.Shadow
		shadow.LagSeconds -= shadow.LagSeconds % agentclient.LateSeconds
		status.Shadow = &shadow
	}
	return status
}

// counters are what does, but for the time itself.
func counters(status agentclient.Status) [6]int64 {
	return [...]int64{
		status.Stashes, status.StashBytes, status.Handoffs.Sent, status.Handoffs.Received, status.Handoffs.Failed, ptr.Deref(status.Sockets, -1),
	}
}

// jittered is within a tenth of a time, so that questions that began together spread.
func jittered(pause time.Duration) time.Duration {
	return pause - pause/10 + spread(pause/5)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// spread is a part of a time, by chance.
func spread(most time.Duration) time.Duration {
	return rand.N(most) //nolint:gosec // nobody gains by guessing it
}
