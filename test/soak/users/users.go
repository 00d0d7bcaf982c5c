package users

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveview"
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

const (
	// atOnce is how many users are opened at a time.
	atOnce = 50
	// maxFindings is how many returns are kept to be explained, maxTrails how many of them with all that came before.
	maxFindings = 10000
	maxTrails   = 5000
	maxSlowest  = 10
	// maxTimes is how many times to be back are kept.
	maxTimes = 1_000_000
)

// Users are those of one plan.
type Users struct {
	plan   Plan
	pace   browser.Pace
	client *liveview.Client
	users  []*user
	stop   context.CancelFunc
	// over ends when users are asked to come back for the last time.
	over context.Context
	end  context.CancelFunc
	// running are the users' goroutines.
	running sync.WaitGroup

	mu      sync.Mutex
	report  Report
	times   []time.Duration
	checked time.Time
	// storeAway is whether the store is away, storeBack when it was back last.
	storeAway bool
	storeBack time.Time
}

// Open starts to open the users of a plan. Report says how many are ready.
func Open(plan Plan, pace browser.Pace) (*Users, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	over, end := context.WithCancel(ctx)
	all := &Users{
		over: over, end: end,
		plan: plan, pace: pace, client: liveview.NewClient(plan.Host, "/stash/"+plan.Adapter), stop: cancel,
		report: Report{
			Users: plan.Users, Verdicts: map[ledger.Verdict]int{}, Endings: map[string]int{}, FailedAttempts: map[string]int{},
		},
	}
	turns := make(chan struct{}, atOnce)
	for i := range plan.Users {
		u := &user{
			all: all, index: i, kind: kindOf(i),
			random: rand.New(rand.NewPCG(plan.Seed, uint64(i)+1)),
		}
		all.users = append(all.users, u)
		all.running.Go(func() {
			turns <- struct{}{}
			err := u.open(ctx)
			<-turns
			if err != nil {
				all.fail(fmt.Sprintf("user %d: %v", u.index, err))
				return
			}
			u.run(ctx)
		})
	}
	return all, nil
}

// Store says whether the store is away: what is acknowledged meanwhile may not be in it.
func (a *Users) Store(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.storeAway && !away {
		a.storeBack = time.Now()
	}
	a.storeAway = away
}

// storedSince is whether the store was there all the time since then.
func (a *Users) storedSince(since time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.storeAway && since.After(a.storeBack)
}

// Check asks every user to come back once more, also those who sleep, and from then on nobody leaves by itself. Report says who has not.
func (a *Users) Check() {
	a.mu.Lock()
	a.checked = time.Now()
	a.mu.Unlock()
	a.end()
	for _, u := range a.users {
		u.goAway()
	}
}

// lastCheck is when every user was asked to come back once more; zero before.
func (a *Users) lastCheck() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checked
}

// Stop ends all users and waits for them.
func (a *Users) Stop() {
	a.stop()
	a.running.Wait()
}

func (a *Users) fail(problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.report.Problem == "" {
		a.report.Problem = problem
	}
}

// count changes the report.
func (a *Users) count(change func(*Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.report)
}

func (a *Users) failedAttempt(err error) {
	a.count(func(r *Report) { r.FailedAttempts[browser.Kind(err)]++ })
}

// judged counts a return, and keeps it when it has to be explained.
func (a *Users) judged(back ledger.Return) {
	a.count(func(r *Report) {
		r.Returns++
		r.Verdicts[back.Verdict]++
		r.keep(back)
	})
}

func (r *Report) keep(back ledger.Return) {
	if !back.Verdict.Bad() {
		return
	}
	if len(r.Findings) == maxFindings {
		r.MoreFindings++
		return
	}
	if len(r.Findings) >= maxTrails {
		back.Trail = nil
	}
	r.Findings = append(r.Findings, back)
}

// back counts a user who is back after it was cut.
func (a *Users) back(s Slow, took time.Duration) {
	s.TookMS = float64(took.Microseconds()) / 1000
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.times) < maxTimes {
		a.times = append(a.times, took)
	}
	slowest := &a.report.Slowest
	*slowest = append(*slowest, s)
	slices.SortFunc(*slowest, func(x, y Slow) int { return cmp.Compare(y.TookMS, x.TookMS) })
	*slowest = (*slowest)[:min(len(*slowest), maxSlowest)]
}

// Report is what is known at this moment.
func (a *Users) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.report
	r.Verdicts, r.Endings, r.FailedAttempts = maps.Clone(r.Verdicts), maps.Clone(r.Endings), maps.Clone(r.FailedAttempts)
	r.Slowest, r.Findings = slices.Clone(r.Slowest), slices.Clone(r.Findings)
	r.Times = browser.TimesOf(a.times)
	for _, u := range a.users {
		u.mu.Lock()
		if u.ready {
			r.Ready++
		}
		if u.away {
			r.Away++
		}
		if u.returned.Before(a.checked) {
			r.Unchecked++
		}
		u.mu.Unlock()
	}
	return r
}
