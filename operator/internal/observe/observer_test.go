package observe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

var shop = types.NamespacedName{Namespace: "default", Name: "shop"}

// fakeAgents answer as told, by the IP of the pod; who is not told of answers that all is well.
type fakeAgents struct {
	mu       sync.Mutex
	statuses map[string]agentclient.Status
	failures map[string]error
	// hanging never answer; slow take their time.
	hanging map[string]bool
	slow    map[string]time.Duration
	// asked is when each was asked, out how many are being asked, and most how many ever were.
	asked     map[string][]time.Time
	out, most int
}

var well = agentclient.Status{Version: "0.1.0", Node: "shop@shop-0", Ready: true, Store: agentclient.Store{Ready: true}}

func newAgents() *fakeAgents {
	return &fakeAgents{
		statuses: map[string]agentclient.Status{}, failures: map[string]error{},
		hanging: map[string]bool{}, slow: map[string]time.Duration{}, asked: map[string][]time.Time{},
	}
}

func (a *fakeAgents) Status(ctx context.Context, ip string, port int32) (agentclient.Status, error) {
	a.mu.Lock()
	a.asked[ip] = append(a.asked[ip], time.Now())
	a.out++
	a.most = max(a.most, a.out)
	takes := max(a.slow[ip], 5*time.Millisecond)
	if a.hanging[ip] {
		takes = time.Hour
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.out--
		a.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return agentclient.Status{}, &agentclient.UnreachableError{Port: port, Cause: ctx.Err()}
	case <-time.After(takes):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.failures[ip]; err != nil {
		return agentclient.Status{}, err
	}
	if status, told := a.statuses[ip]; told {
		return status, nil
	}
	return well, nil
}

func (a *fakeAgents) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// times is when a pod was asked after the first time, and forgets it.
func (a *fakeAgents) times(ip string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	times := a.asked[ip]
	delete(a.asked, ip)
	return times
}

// changes counts what an observer tells.
type changes struct {
	mu    sync.Mutex
	count map[types.NamespacedName]int
}

func (c *changes) add(fleet types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == nil {
		c.count = map[types.NamespacedName]int{}
	}
	c.count[fleet]++
}

// since is how often a fleet changed since it was last asked for.
func (c *changes) since(fleet types.NamespacedName) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.count[fleet]
	delete(c.count, fleet)
	return count
}

// observing runs a test in time of its own, with an observer that is asking.
func observing(t *testing.T, test func(t *testing.T, o *Observer, agents *fakeAgents, changed *changes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		agents, changed := newAgents(), &changes{}
		o := &Observer{Agents: agents, Changed: changed.add}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- o.Start(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		test(t, o, agents, changed)
	})
}

// after lets time go by, and everything happen that happens in it.
func after(pause time.Duration) {
	time.Sleep(pause)
	synctest.Wait()
}

func pods(count int) []Target {
	targets := make([]Target, count)
	for i := range targets {
		name := fmt.Sprintf("shop-%d", i)
		targets[i] = Target{UID: types.UID(name), Pod: name, IP: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Port: 9568}
	}
	return targets
}

const (
	first = "10.0.0.0"
	uid   = types.UID("shop-0")
)

func gaps(times []time.Time) []time.Duration {
	var between []time.Duration
	for i := 1; i < len(times); i++ {
		between = append(between, times[i].Sub(times[i-1]))
	}
	return between
}

func TestNewPodsAreAskedAtOnce(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, _ *fakeAgents, changed *changes) {
		synctest.Wait()
		if got := o.Answers(shop); got != nil {
			t.Errorf("%v of a fleet that nobody knows", got)
		}
		targets := pods(3)
		o.Track(shop, Resting, targets)
		if got := o.Answers(shop); len(got) != 0 {
			t.Errorf("%v before anybody was asked", got)
		}
		after(time.Second)
		want := map[types.UID]Answer{}
		for _, target := range targets {
			want[target.UID] = Answer{Target: target, Status: well}
		}
		if diff := cmp.Diff(want, o.Answers(shop), cmpopts.IgnoreFields(Answer{}, "At")); diff != "" {
			t.Error(diff)
		}
		if changed.since(shop) != 3 {
			t.Error("each first answer is a change")
		}
	})
}

func TestPodsTrackedBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Observer{Agents: newAgents()}
		o.Track(shop, Resting, pods(2))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := o.Start(ctx); err != nil || len(o.Answers(shop)) != 2 {
			t.Errorf("%v, %v, want two answers", err, o.Answers(shop))
		}
	})
}

func TestPace(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		within := func(what string, times []time.Time, least, most time.Duration) {
			t.Helper()
			for _, gap := range gaps(times) {
				if gap < least || gap > most {
					t.Errorf("%s: asked again after %s, want %s to %s", what, gap, least, most)
				}
			}
		}
		targets := pods(1)
		o.Track(shop, Resting, targets)
		after(10 * time.Minute)
		times := agents.times(first)
		// The second one comes earlier, to spread those that began together.
		within("at rest", times[1:], 27*time.Second, 34*time.Second)
		if len(times) < 19 {
			t.Errorf("asked %d times in ten minutes", len(times))
		}

		o.Track(shop, Rolling, targets)
		after(time.Minute)
		times = agents.times(first)
		within("in a rollout", times, 900*time.Millisecond, 1200*time.Millisecond)
		if len(times) < 50 {
			t.Errorf("asked %d times in a minute of a rollout", len(times))
		}

		o.Track(shop, Resting, targets)
		after(10 * time.Minute)
		within("at rest again", agents.times(first)[1:], 27*time.Second, 34*time.Second)
	})
}

// Who watches for what locks users out is told within ten seconds.
func TestWatching(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, told *changes) {
		o.Track(shop, Watching, pods(1))
		after(time.Minute)
		for bytes := range int64(20) {
			told.since(shop)
			agents.set(func() {
				status := well
				status.LargestStashBytes = 9000 + bytes
				agents.statuses[first] = status
			})
			after(9 * time.Second)
			if got := told.since(shop); got != 1 {
				t.Errorf("told %d times within 9 seconds, want once", got)
			}
			after(time.Duration(bytes) * 100 * time.Millisecond)
		}
	})
}

func TestTrackAgainChangesNothing(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		for range 600 {
			o.Track(shop, Resting, pods(1))
			after(time.Second)
		}
		if asked := len(agents.times(first)); asked > 25 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
	})
}

// TestTwoMisses: one is none.
func TestTwoMisses(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, changed *changes) {
		targets := pods(1)
		o.Track(shop, Rolling, targets)
		after(5 * time.Second)
		changed.since(shop)
		before := o.Answers(shop)[uid]

		agents.set(func() { agents.hanging[first] = true })
		for o.Answers(shop)[uid].Since.IsZero() {
			after(10 * time.Millisecond)
		}
		got := o.Answers(shop)[uid]
		if got.Err != nil || got.Since.IsZero() || got.Status.Node != before.Status.Node || changed.since(shop) != 0 {
			t.Errorf("after one miss: %+v", got)
		}
		since := got.Since

		agents.set(func() { agents.hanging[first] = false })
		after(2 * time.Second)
		if got := o.Answers(shop)[uid]; got.Err != nil || !got.Since.IsZero() || !got.At.After(since) || changed.since(shop) != 0 {
			t.Errorf("after one miss and an answer: %+v", got)
		}

		agents.set(func() { agents.hanging[first] = true })
		after(6 * time.Second)
		got = o.Answers(shop)[uid]
		if agentclient.KindOf(got.Err) != agentclient.KindSilent || !got.At.Before(got.Since) || got.Status.Node != before.Status.Node {
			t.Errorf("after two misses: %+v", got)
		}
		if told := changed.since(shop); told != 1 {
			t.Errorf("two misses were told %d times", told)
		}

		agents.set(func() { agents.hanging[first] = false })
		after(10 * time.Second)
		if got := o.Answers(shop)[uid]; got.Err != nil || !got.Since.IsZero() || changed.since(shop) != 1 {
			t.Errorf("after an answer: %+v", got)
		}
	})
}

// What a pod did not answer while it started says nothing of one that serves.
func TestAPodThatServesNowIsAskedAtOnce(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		targets := pods(1)
		agents.set(func() { agents.hanging[first] = true })
		o.Track(shop, Resting, targets)
		after(time.Minute)
		if o.Answers(shop)[uid].Err == nil {
			t.Fatal("a pod that does not answer has no error")
		}
		agents.set(func() { agents.hanging[first] = false })
		targets[0].Serves = true
		o.Track(shop, Resting, targets)
		if answer, known := o.Answers(shop)[uid]; known && answer.Err != nil {
			t.Errorf("what it did not answer while it started is held against it: %v", answer.Err)
		}
		after(time.Second)
		if answer := o.Answers(shop)[uid]; answer.At.IsZero() || answer.Err != nil {
			t.Errorf("a second after it serves, %+v is known", answer)
		}
	})
}

// TestSlowAgent takes longer than a look, but it answers.
func TestSlowAgent(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, changed *changes) {
		agents.slow[first] = 1500 * time.Millisecond
		o.Track(shop, Resting, pods(1))
		after(10 * time.Minute)
		if got := o.Answers(shop)[uid]; got.Err != nil || time.Since(got.At) > time.Minute || changed.since(shop) != 1 {
			t.Errorf("%+v", got)
		}
		agents.set(func() { agents.hanging[first] = true })
		after(30 * time.Minute)
		if o.Answers(shop)[uid].Err == nil {
			t.Error("no error while it hangs")
		}
		agents.set(func() { agents.hanging[first] = false })
		after(20 * time.Minute)
		if got := o.Answers(shop)[uid]; got.Err != nil {
			t.Errorf("%v, although it answers again", got.Err)
		}
	})
}

func TestBackoff(t *testing.T) {
	second := time.Second
	cases := map[string]struct {
		pace Pace
		want []time.Duration
	}{
		"at rest":      {Resting, []time.Duration{second, 5 * second, 10 * second, 20 * second, 40 * second, 80 * second, 120 * second, 120 * second}},
		"in a rollout": {Rolling, []time.Duration{second, second, 2 * second, 4 * second, 5 * second, 5 * second}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
				agents.failures[first] = &agentclient.UnreachableError{Cause: syscall.ECONNREFUSED}
				o.Track(shop, c.pace, pods(1))
				after(10 * time.Minute)
				got := gaps(agents.times(first))
				for i, want := range c.want {
					if got[i] < want*9/10 || got[i] > want*11/10+10*time.Millisecond {
						t.Errorf("pause %d is %s, want about %s", i, got[i], want)
					}
				}

				agents.set(func() { delete(agents.failures, first) })
				after(3 * time.Minute)
				times := agents.times(first)
				if last := time.Since(times[len(times)-1]); o.Answers(shop)[uid].Err != nil || last > 34*time.Second {
					t.Errorf("after its first answer it is still left alone: last asked %s ago", last)
				}
			})
		})
	}
}

// TestPaceRisesForSilentPods: a rollout does not wait for the backoff of a fleet at rest.
func TestPaceRisesForSilentPods(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		agents.hanging[first] = true
		o.Track(shop, Resting, pods(1))
		after(time.Hour)
		agents.set(func() { agents.hanging[first] = false })
		o.Track(shop, Rolling, pods(1))
		after(6 * time.Second)
		if got := o.Answers(shop)[uid]; got.Err != nil {
			t.Errorf("not asked for %s", time.Since(got.Since))
		}
	})
}

// A copy that waits a second longer is no news, and one that is late is.
func TestWhenCopiesMatter(t *testing.T) {
	late := func(seconds int64) agentclient.Status {
		return lasting(agentclient.Status{Shadow: &agentclient.Shadow{Holders: 1, LagSeconds: seconds}})
	}
	for _, same := range []int64{1, agentclient.LateSeconds - 1} {
		if diff := cmp.Diff(late(0), late(same)); diff != "" {
			t.Errorf("%d s: -on time +later:\n%s", same, diff)
		}
	}
	if cmp.Equal(late(0), late(agentclient.LateSeconds)) {
		t.Error("late copies are no news")
	}
}

func TestWhatMatters(t *testing.T) {
	refused := &agentclient.UnreachableError{Port: 9568, Cause: syscall.ECONNREFUSED}
	reset := func(port string) error {
		return &agentclient.UnreachableError{Port: 9568, Cause: errors.New("read from " + port + ": reset")}
	}
	changed := func(change func(*agentclient.Status)) agentclient.Status {
		status := well
		change(&status)
		return status
	}
	cases := map[string]struct {
		status      agentclient.Status
		before, err error
		// told is how often the change is told in ten seconds, and in the two minutes after these.
		told, later int
	}{
		"nothing":         {status: well},
		"uptime":          {status: changed(func(s *agentclient.Status) { s.UptimeSeconds = 5 })},
		"ready":           {status: changed(func(s *agentclient.Status) { s.Ready = false }), told: 1},
		"reason":          {status: changed(func(s *agentclient.Status) { s.Reason = "It starts." }), told: 1},
		"draining":        {status: changed(func(s *agentclient.Status) { s.Draining = true }), told: 1},
		"store":           {status: changed(func(s *agentclient.Status) { s.Store.Ready = false }), told: 1},
		"store's reason":  {status: changed(func(s *agentclient.Status) { s.Store.Reason = "It is away." }), told: 1},
		"peers":           {status: changed(func(s *agentclient.Status) { s.Peers.Connected = 2 }), told: 1},
		"missing":         {status: changed(func(s *agentclient.Status) { s.Peers.Missing = 2 }), told: 1},
		"missing nodes":   {status: changed(func(s *agentclient.Status) { s.Peers.MissingNodes = []string{"a@b"} }), told: 1},
		"version":         {status: changed(func(s *agentclient.Status) { s.Version = "0.2.0" }), told: 1},
		"largest stash":   {status: changed(func(s *agentclient.Status) { s.LargestStashBytes = 9000 }), told: 1},
		"stashes":         {status: changed(func(s *agentclient.Status) { s.Stashes = 5 }), later: 1},
		"bytes":           {status: changed(func(s *agentclient.Status) { s.StashBytes = 5 }), later: 1},
		"hand-offs":       {status: changed(func(s *agentclient.Status) { s.Handoffs.Sent = 5 }), later: 1},
		"connections":     {status: changed(func(s *agentclient.Status) { s.Sockets = new(int64(5)) }), later: 1},
		"silence":         {err: refused, told: 1},
		"an end of it":    {before: refused, status: well, told: 1},
		"another failure": {before: refused, err: &agentclient.ForeignServerError{Port: 9568}, told: 1},
		"the same one":    {before: reset("1"), err: reset("2")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, told *changes) {
				if c.before != nil {
					agents.failures[first] = c.before
				}
				o.Track(shop, Rolling, pods(1))
				after(5 * time.Second)
				told.since(shop)
				agents.set(func() {
					agents.statuses[first] = c.status
					agents.failures[first] = c.err
				})
				after(10 * time.Second)
				if got := told.since(shop); got != c.told {
					t.Errorf("told %d times at once, want %d", got, c.told)
				}
				after(2 * time.Minute)
				if got := told.since(shop); got != c.later {
					t.Errorf("told %d times later, want %d", got, c.later)
				}
				if c.before != nil && c.err != nil && c.told == 0 && !errors.Is(o.Answers(shop)[uid].Err, c.before) {
					t.Error("an error of the same kind took the place of the one before")
				}
			})
		})
	}
}

// TestCountersOncePerMinute: those of all pods of a fleet together.
func TestCountersOncePerMinute(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, changed *changes) {
		targets := pods(10)
		o.Track(shop, Rolling, targets)
		after(5 * time.Second)
		changed.since(shop)
		for i := range 10 * 60 {
			agents.set(func() {
				for _, target := range targets {
					status := well
					status.Stashes = int64(i)
					agents.statuses[target.IP] = status
				}
			})
			after(time.Second)
		}
		if told := changed.since(shop); told < 9 || told > 10 {
			t.Errorf("told %d times in ten minutes", told)
		}
	})
}

func TestPodsGoAndMove(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		targets := pods(3)
		o.Track(shop, Resting, targets)
		after(time.Second)

		o.Track(shop, Resting, targets[:1])
		if answers := o.Answers(shop); len(answers) != 1 {
			t.Errorf("%v, want what is known of one pod", answers)
		}
		for _, target := range targets {
			agents.times(target.IP)
		}
		after(5 * time.Minute)
		if agents.times(targets[0].IP) == nil || agents.times(targets[1].IP) != nil {
			t.Error("asked are not those that are left")
		}

		targets[0].IP = "10.9.9.9"
		o.Track(shop, Resting, targets[:1])
		after(time.Second)
		if len(agents.times("10.9.9.9")) != 1 {
			t.Error("a pod with another address is not asked at once")
		}
		if got := o.Answers(shop)[uid]; got.IP != "10.9.9.9" || got.Status.Node == "" {
			t.Errorf("%+v", got)
		}

		o.Forget(shop)
		o.Forget(shop)
		after(5 * time.Minute)
		if o.Answers(shop) != nil || agents.times("10.9.9.9") != nil {
			t.Error("a fleet is not forgotten")
		}
	})
}

// TestLateAnswersDoNotCount: a pod is asked, and before it answers it has gone, or moved.
func TestLateAnswersDoNotCount(t *testing.T) {
	cases := map[string]func(o *Observer, targets []Target){
		"gone": func(o *Observer, _ []Target) { o.Track(shop, Resting, nil) },
		"gone and back by another": func(o *Observer, targets []Target) {
			targets[0].UID = "another"
			o.Track(shop, Resting, targets)
		},
		"moved": func(o *Observer, targets []Target) {
			targets[0].IP = "10.9.9.9"
			o.Track(shop, Resting, targets)
		},
		"forgotten": func(o *Observer, _ []Target) { o.Forget(shop) },
		"forgotten and tracked again": func(o *Observer, targets []Target) {
			o.Forget(shop)
			targets[0].IP = "10.9.9.9"
			o.Track(shop, Resting, targets)
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
				old := well
				old.Node = "old@shop-0"
				agents.statuses[first] = old
				agents.slow[first] = 400 * time.Millisecond
				agents.hanging["10.9.9.9"] = true
				targets := pods(1)
				o.Track(shop, Resting, targets)
				after(200 * time.Millisecond)
				if len(agents.times(first)) != 1 {
					t.Fatal("it is not being asked")
				}
				change(o, targets)
				after(400 * time.Millisecond)
				if got := o.Answers(shop)[uid]; got.Status.Node != "" || got.Err != nil {
					t.Errorf("a late answer counts: %+v", got)
				}
			})
		})
	}
}

// TestTheEndIsNoMiss: what the operator's end cuts off says nothing about an agent.
func TestTheEndIsNoMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := newAgents()
		agents.hanging[first] = true
		o := &Observer{Agents: agents}
		o.Track(shop, Resting, pods(1))
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		if err := o.Start(ctx); err != nil {
			t.Error(err)
		}
		if got := o.Answers(shop); len(got) != 0 {
			t.Errorf("%v, want nothing", got)
		}
		if agents.out != 0 {
			t.Errorf("%d questions are still out", agents.out)
		}
	})
}

func TestOnlyTheLeaderAsks(t *testing.T) {
	var runnable manager.Runnable = &Observer{}
	if needs, tells := runnable.(manager.LeaderElectionRunnable); !tells || !needs.NeedLeaderElection() {
		t.Error("every replica of the operator would ask")
	}
}

// TestOneAtATime: the smallest pool still asks everybody.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := newAgents()
		agents.hanging[first] = true
		o := &Observer{Agents: agents, Parallel: 1}
		o.Track(shop, Resting, pods(5))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := o.Start(ctx); err != nil {
			t.Error(err)
		}
		if len(o.Answers(shop)) != 5 || agents.most != 1 {
			t.Errorf("%d answers, %d at once", len(o.Answers(shop)), agents.most)
		}
	})
}

// tenThousand tracks the pods of 1,000 fleets.
func tenThousand(o *Observer) {
	const size = 10
	targets := pods(10_000)
	for i := 0; i < len(targets); i += size {
		o.Track(types.NamespacedName{Name: fmt.Sprint(i / size)}, Resting, targets[i:i+size])
	}
}

// TestQuestionsSpread: pods that became known together, as when the operator starts, are not asked together from then on.
func TestQuestionsSpread(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		tenThousand(o)
		after(time.Minute)
		agents.set(func() { clear(agents.asked) })
		began := time.Now()
		after(time.Minute)
		perSecond := map[time.Duration]int{}
		fullest := 0
		for _, times := range agents.asked {
			for _, at := range times {
				second := at.Sub(began).Truncate(time.Second)
				perSecond[second]++
				fullest = max(fullest, perSecond[second])
			}
		}
		if mean := 10_000 / 30; fullest > mean*3/2 {
			t.Errorf("%d pods were asked in the same second, want about %d", fullest, mean)
		}
	})
}

// TestSilentPodsHoldNobodyUp: a third of 10,000 pods hang from the beginning, later another third begins to.
func TestSilentPodsHoldNobodyUp(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		hang := func(targets []Target, hanging bool) {
			agents.set(func() {
				for _, target := range targets {
					agents.hanging[target.IP] = hanging
				}
			})
		}
		began := time.Now()
		all := pods(10_000)
		third := len(all) / 3
		hang(all[:third], true)
		tenThousand(o)
		healthy := all[2*third:]

		// onTime checks how long healthy pods were not asked: an interval and its jitter, and a moment.
		onTime := func(what string, most time.Duration) {
			t.Helper()
			late := 0
			var worst time.Duration
			perSecond := map[int]int{}
			for _, target := range healthy {
				times := agents.times(target.IP)
				for _, at := range times {
					perSecond[int(at.Sub(began)/time.Second)]++
				}
				for _, gap := range append(gaps(times), time.Since(times[len(times)-1])) {
					worst = max(worst, gap)
					if gap > most {
						late++
					}
				}
			}
			if late > 0 {
				t.Errorf("%s: %d times a pod was asked later than after %s, at worst after %s", what, late, most, worst)
			}
			fullest := 0
			for _, count := range perSecond {
				fullest = max(fullest, count)
			}
			t.Logf("%s: asked after %s at most, %d of %d in the fullest second", what, worst, fullest, len(healthy))
			if what == "at rest" && fullest > len(healthy)/30*2 {
				t.Errorf("%d of %d pods were asked in the same second", fullest, len(healthy))
			}
		}

		after(40 * time.Second)
		for _, target := range healthy {
			if agents.times(target.IP) == nil {
				t.Fatalf("%s was not asked within 40 s of the start", target.Pod)
			}
		}
		after(2 * time.Minute)
		onTime("while the first third is found silent", 34*time.Second)
		after(2 * time.Minute)
		onTime("at rest", 34*time.Second)
		if agents.most > defaultParallel {
			t.Errorf("%d were asked at once, want %d at most", agents.most, defaultParallel)
		}

		hang(all[third:2*third], true)
		after(5 * time.Minute)
		onTime("while two thirds are silent", 36*time.Second)
		silent := 0
		for i := range 1000 {
			for _, answer := range o.Answers(types.NamespacedName{Name: fmt.Sprint(i)}) {
				if answer.Err != nil {
					silent++
				}
			}
		}
		if silent != 2*third {
			t.Errorf("%d pods are known to be silent, want %d", silent, 2*third)
		}

		hang(all[:2*third], false)
		after(5 * time.Minute)
		for i := range 1000 {
			for _, answer := range o.Answers(types.NamespacedName{Name: fmt.Sprint(i)}) {
				if answer.Err != nil {
					t.Fatalf("%s answers again since 5 minutes, and is taken for silent", answer.Pod)
				}
			}
		}
		if agents.most > defaultParallel {
			t.Errorf("%d were asked at once, want %d at most", agents.most, defaultParallel)
		}
	})
}

// TestRolloutAmongSilentPods: a fleet that rolls, and a pod of it that comes back, while thousands of others are silent.
func TestRolloutAmongSilentPods(t *testing.T) {
	observing(t, func(t *testing.T, o *Observer, agents *fakeAgents, _ *changes) {
		for _, target := range pods(10_000)[:3000] {
			agents.hanging[target.IP] = true
		}
		tenThousand(o)
		after(6 * time.Minute)
		mine := []Target{
			{UID: "a", Pod: "a", IP: "10.1.1.1"}, {UID: "b", Pod: "b", IP: "10.1.1.2"}, {UID: "c", Pod: "c", IP: "10.1.1.3"},
		}
		o.Track(shop, Rolling, mine)
		after(10 * time.Second)
		agents.set(func() { agents.failures["10.1.1.3"] = &agentclient.UnreachableError{Cause: syscall.ECONNREFUSED} })
		after(time.Minute)
		agents.set(func() { delete(agents.failures, "10.1.1.3") })
		after(7 * time.Second)
		if got := o.Answers(shop)["c"]; got.Err != nil {
			t.Errorf("%v, 7 s after it came back", got.Err)
		}
		if gap := slices.Max(gaps(agents.times("10.1.1.1"))); gap > 2*time.Second {
			t.Errorf("a pod of the rollout was not asked for %s", gap)
		}
	})
}

// verbose answers with texts of its own for each pod, as large as they may be.
type verbose struct{}

func (verbose) Status(_ context.Context, ip string, _ int32) (agentclient.Status, error) {
	status := well
	status.Node = strings.Repeat(ip, 6)
	status.Version, status.OTP, status.Adapter = strings.Clone("0.1.0"), strings.Clone("27"), strings.Clone("mnesia")
	status.Reason = strings.Repeat("x", 512)
	status.Peers = agentclient.Peers{Expected: 99, Missing: 99}
	return status, nil
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heap := func() uint64 {
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		targets := pods(10_000)
		before := heap()
		o := &Observer{Agents: verbose{}}
		o.Track(shop, Resting, targets)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		if err := o.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if used := heap() - before; used > 20<<20 {
			t.Errorf("%d bytes for 10,000 pods", used)
		} else {
			t.Logf("%d bytes for each of 10,000 pods", used/10_000)
		}
		if len(o.Answers(shop)) != len(targets) {
			t.Error("not all have answered")
		}
	})
}
