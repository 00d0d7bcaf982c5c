package crowd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/liveviewtest"
)

func TestLedger(t *testing.T) {
	for name, c := range map[string]struct {
		ledger ledger
		status string
		count  int
		want   verdict
	}{
		"what was acknowledged":              {ledger{acked: 3}, "recovered", 3, recovered},
		"an older count":                     {ledger{acked: 3}, "recovered", 2, stale},
		"a count that nobody stashed":        {ledger{acked: 3}, "recovered", 4, stale},
		"an unacknowledged stash counts":     {ledger{acked: 3, unsure: true}, "recovered", 4, recovered},
		"an unacknowledged stash does not":   {ledger{acked: 3, unsure: true}, "recovered", 3, recovered},
		"only one stash can be on its way":   {ledger{acked: 3, unsure: true}, "recovered", 5, stale},
		"an older one than the acknowledged": {ledger{acked: 3, unsure: true}, "recovered", 2, stale},
		"nothing":                            {ledger{acked: 3}, "not_found", 0, lost},
		"a first visit":                      {ledger{acked: 3}, "new", 0, lost},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.ledger.found(c.status, c.count, time.Now()); got != c.want {
				t.Errorf("the verdict is %d, want %d", got, c.want)
			}
			if c.ledger.acked != c.count || c.ledger.unsure {
				t.Errorf("the user goes on from %+v, not from %d", c.ledger, c.count)
			}
		})
	}
	l := ledger{acked: 3}
	l.sent()
	if got := l.acknowledged(4, time.Now()); got != recovered {
		t.Errorf("the answer to a stash is %d", got)
	}
	if got := l.acknowledged(4, time.Now()); got != stale {
		t.Errorf("an answer with the count of before is %d", got)
	}
}

func TestLedgerAfterALoss(t *testing.T) {
	l := ledger{acked: 3}
	for i, step := range []struct {
		status string
		count  int
		want   verdict
	}{
		{"not_found", 0, lost},
		{"not_found", 0, lost},
		{"recovered", 3, recovered}, // nothing is newer
		{"not_found", 0, lost},
	} {
		if got := l.found(step.status, step.count, time.Now()); got != step.want {
			t.Errorf("step %d: the verdict is %d, want %d", i, got, step.want)
		}
	}
	l.sent()
	l.acknowledged(1, time.Now())
	if got := l.found("recovered", 3, time.Now()); got != stale {
		t.Errorf("the state of the life before is %d, although there is a newer one", got)
	}
}

// What is missing is told apart by when it was stashed.
func TestLedgerOfAKilledServer(t *testing.T) {
	killed := time.Now()
	ago := func(seconds ...int) ledger {
		l := ledger{}
		for i, s := range seconds {
			l.sent()
			l.acknowledged(i+1, killed.Add(-time.Duration(s)*time.Second))
		}
		return l
	}
	for name, c := range map[string]struct {
		ledger ledger
		status string
		count  int
		want   verdict
	}{
		"the last one is missing, which was young":   {ago(9, 5, 1), "recovered", 2, young},
		"the last one is missing, which was not":     {ago(9, 5, 3), "recovered", 2, stale},
		"two are missing, and both were young":       {ago(9, 2, 1), "recovered", 1, young},
		"two are missing, and one was not young":     {ago(9, 5, 1), "recovered", 1, stale},
		"nothing is missing":                         {ago(9, 5, 1), "recovered", 3, recovered},
		"all are missing, and the first was young":   {ago(2, 1), "not_found", 0, young},
		"all are missing, and the first was not":     {ago(9, 1), "not_found", 0, lost},
		"a count that nobody stashed is never young": {ago(1), "recovered", 4, stale},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.ledger.found(c.status, c.count, killed.Add(-2*time.Second)); got != c.want {
				t.Errorf("the verdict is %d, want %d", got, c.want)
			}
		})
	}
	l := ago(9, 5, 3, 1)
	l.found("recovered", 3, killed.Add(-2*time.Second))
	l.sent()
	l.acknowledged(4, killed)
	if got := l.found("recovered", 3, killed.Add(-time.Millisecond)); got != young {
		t.Errorf("after a young loss and another stash, losing that is %d", got)
	}
}

// patient is a browser that comes back at once, and bears a machine that stands still for a while.
func patient() browser.Pace {
	return browser.Pace{
		Reconnect: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		Connect:   30 * time.Second, Reply: 30 * time.Second, Heartbeat: 30 * time.Second,
	}
}

// hasty is one that gives a silent server up.
func hasty() browser.Pace {
	pace := patient()
	pace.Connect, pace.Reply, pace.Heartbeat = 2*time.Second, 2*time.Second, time.Second
	return pace
}

// never is a pause between stashes in which no test ends.
const never = time.Hour

func plan(server *liveviewtest.Server, adapter string, sessions int, every time.Duration) Plan {
	return Plan{
		Adapter: adapter, Sessions: sessions, Host: "shop.example", Service: server.Address(), Pods: []string{server.Address()},
		StashEveryMS: int(every / time.Millisecond),
	}
}

func open(t *testing.T, server *liveviewtest.Server, adapter string, sessions int, every time.Duration) *Crowd {
	t.Helper()
	return openPlan(t, plan(server, adapter, sessions, every), patient())
}

func openPlan(t *testing.T, plan Plan, pace browser.Pace) *Crowd {
	t.Helper()
	c, err := Open(plan, pace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	await(t, c, "the sessions are open", func(r Report) bool { return r.Phase == Opened })
	return c
}

// await waits until the crowd is as wanted.
func await(t *testing.T, c *Crowd, what string, is func(Report) bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is(c.Report()) {
		if r := c.Report(); r.Problem != "" || time.Now().After(deadline) {
			t.Fatalf("waited for %q in vain: %+v", what, r)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func begin(t *testing.T, c *Crowd) {
	t.Helper()
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
}

func verified(t *testing.T, c *Crowd, within time.Duration) Report {
	t.Helper()
	if err := c.Verify(within); err != nil {
		t.Fatal(err)
	}
	await(t, c, "all sessions are checked", func(r Report) bool { return r.Phase == Verified })
	return c.Report()
}

func expect(t *testing.T, r Report, recovered, stale, lost int) {
	t.Helper()
	if r.Recovered != recovered || r.Stale != stale || r.Lost != lost {
		t.Errorf("%d recovered, %d stale, %d lost; want %d, %d, %d\n%+v", r.Recovered, r.Stale, r.Lost, recovered, stale, lost, r)
	}
}

func back(sessions int) func(Report) bool {
	return func(r Report) bool { return r.Away == 0 && r.Times != nil && r.Times.Count == sessions }
}

func TestClosedSocketsComeBack(t *testing.T) {
	for _, adapter := range []string{"ets", "browser_memory"} {
		t.Run(adapter, func(t *testing.T) {
			server := liveviewtest.New(t)
			c := open(t, server, adapter, 20, 5*time.Millisecond)
			begin(t, c)
			server.CloseAll(websocket.StatusServiceRestart)
			await(t, c, "all are back", back(20))
			r := verified(t, c, 20*time.Second)
			expect(t, r, 20, 0, 0)
			if r.Closed != 20 || r.Endings["closed with 1012"] != 20 || r.Moves != 20 || r.MostMoves != 1 {
				t.Errorf("%d closed: %v, moved %d times, one at most %d", r.Closed, r.Endings, r.Moves, r.MostMoves)
			}
		})
	}
}

func TestUntouchedSessionsAreChecked(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 10, never)
	begin(t, c)
	_, before := server.Seen()
	r := verified(t, c, 20*time.Second)
	expect(t, r, 10, 0, 0)
	if _, after := server.Seen(); after-before != 10 {
		t.Errorf("%d joins, want one for each session", after-before)
	}
	if r.Closed != 0 || r.Times != nil || r.Moves != 0 {
		t.Errorf("the checks count as an event: %d closed, times %+v", r.Closed, r.Times)
	}
}

// Half of them stash: whoever was cut does nothing, and whoever was not goes on.
func TestHiddenTabsComeBackWhenChecked(t *testing.T) {
	server := liveviewtest.New(t)
	p := plan(server, "ets", 10, 5*time.Millisecond)
	p.Hidden = true
	c := openPlan(t, p, patient())
	begin(t, c)
	_, before := server.Seen()
	server.CloseAll(websocket.StatusServiceRestart)
	await(t, c, "all are away", func(r Report) bool { return r.Away == 10 })
	// Time for many attempts of the others.
	time.Sleep(100 * time.Millisecond)
	if _, after := server.Seen(); after != before {
		t.Errorf("%d joins of pages that nobody looks at", after-before)
	}
	r := verified(t, c, 20*time.Second)
	expect(t, r, 10, 0, 0)
	if r.Closed != 10 || r.Times != nil {
		t.Errorf("%d closed, times %+v: the time until they are shown does not count", r.Closed, r.Times)
	}
}

func TestOldCopyIsStale(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 4, never)
	begin(t, c)
	server.Rewind(1)
	r := verified(t, c, 20*time.Second)
	expect(t, r, 0, 4, 0)
	if len(r.Notes) != 4 || !strings.Contains(r.Notes[0], "found recovered with 0") {
		t.Errorf("the notes are %q", r.Notes)
	}
}

func TestForgottenSessionsAreLost(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 4, never)
	begin(t, c)
	server.Forget(true)
	server.CloseAll(-1)
	await(t, c, "all are back", back(4))
	server.Forget(false)
	// What is found afterwards does not make up for what was lost.
	r := verified(t, c, 20*time.Second)
	expect(t, r, 0, 0, 4)
	if pod := r.Pods[server.Address()]; pod.Sessions != 4 || pod.Lost != 4 {
		t.Errorf("the pod had %+v", pod)
	}
}

func TestRefusedPageIsLost(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 3, never)
	begin(t, c)
	server.RefuseJoins("stale")
	server.CloseAll(websocket.StatusServiceRestart)
	await(t, c, "every session was refused", func(r Report) bool { return r.Lost == 3 })
	server.RefuseJoins("")
	r := verified(t, c, 20*time.Second)
	expect(t, r, 0, 0, 3)
	if visits, _ := server.Seen(); visits < 6 {
		t.Errorf("the page was loaded %d times, want each session to load it again", visits)
	}
}

func TestNormalClosureIsLost(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 3, never)
	begin(t, c)
	server.CloseAll(websocket.StatusNormalClosure)
	await(t, c, "all are back", back(3))
	expect(t, verified(t, c, 20*time.Second), 0, 0, 3)
}

// A stash that the server took and did not acknowledge: the counter is one higher than the user knows.
func TestUnacknowledgedStash(t *testing.T) {
	server := liveviewtest.New(t)
	c := openPlan(t, plan(server, "ets", 10, 5*time.Millisecond), hasty())
	begin(t, c)
	server.MuteStashes(true)
	await(t, c, "the sessions that stash give the server up", func(r Report) bool { return r.Endings["no answer to a stash"] >= 5 })
	server.MuteStashes(false)
	expect(t, verified(t, c, 20*time.Second), 10, 0, 0)
}

// As LiveStash does while its store is away.
func TestAcknowledgedStashesThatAreNotStored(t *testing.T) {
	for name, restash := range map[string]bool{"count once they are stashed again": true, "do not count before": false} {
		t.Run(name, func(t *testing.T) {
			server := liveviewtest.New(t)
			c := open(t, server, "redis", 10, 5*time.Millisecond)
			begin(t, c)
			server.DropStashes(true)
			c.Restash()
			await(t, c, "all have stashed in vain", func(r Report) bool { return r.Outdated == 0 })
			if !restash {
				expect(t, verified(t, c, 20*time.Second), 5, 5, 0)
				return
			}
			server.DropStashes(false)
			c.Restash()
			if got := c.Report().Outdated; got == 0 {
				t.Errorf("nobody has to stash again")
			}
			await(t, c, "all have stashed again", func(r Report) bool { return r.Outdated == 0 })
			expect(t, verified(t, c, 20*time.Second), 10, 0, 0)
		})
	}
}

func TestIdleSessionsAreLostByThemselves(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "redis", 10, never)
	begin(t, c)
	server.Forget(true)
	r := verified(t, c, 20*time.Second)
	expect(t, r, 0, 0, 10)
	if r.LostIdle != 5 {
		t.Errorf("%d of the lost ones stash once, want 5", r.LostIdle)
	}
}

// A server that takes connections and answers nothing is given up, and the time away counts from the event.
func TestHungServer(t *testing.T) {
	server := liveviewtest.New(t)
	c := openPlan(t, plan(server, "ets", 6, never), hasty())
	begin(t, c)
	server.Hang(true)
	c.Effect()
	await(t, c, "attempts time out", func(r Report) bool { return r.FailedAttempts["timeout"] >= 6 })
	server.Hang(false)
	await(t, c, "all are back", back(6))
	r := verified(t, c, 20*time.Second)
	expect(t, r, 6, 0, 0)
	// The silence that led to giving up is part of it: a heartbeat without an answer, and an attempt without one.
	atLeast := hasty().Heartbeat + hasty().Connect
	if r.Endings["no answer to a heartbeat"] != 6 || r.Times.P50 < float64(atLeast.Milliseconds()) {
		t.Errorf("endings %v, times %+v, want at least %s", r.Endings, r.Times, atLeast)
	}
}

func TestSessionsThatDoNotComeBackAreLost(t *testing.T) {
	server := liveviewtest.New(t)
	c := open(t, server, "ets", 4, never)
	begin(t, c)
	server.RefuseJoins("not now")
	server.CloseAll(-1)
	await(t, c, "all are away", func(r Report) bool { return r.Away == 4 })
	expect(t, verified(t, c, 200*time.Millisecond), 0, 0, 4)
}

func TestOpenGivesUp(t *testing.T) {
	server := liveviewtest.New(t)
	server.RefuseJoins("never")
	c, err := Open(Plan{
		Adapter: "ets", Sessions: 2, Host: "h", Service: server.Address(), Pods: []string{server.Address()}, StashEveryMS: 1,
	}, patient())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	for deadline := time.Now().Add(20 * time.Second); c.Report().Problem == ""; {
		if time.Now().After(deadline) {
			t.Fatal("no problem is reported")
		}
		time.Sleep(time.Millisecond)
	}
	if problem := c.Report().Problem; !strings.Contains(problem, "the join was refused") {
		t.Errorf("the problem is %q", problem)
	}
}

func TestServer(t *testing.T) {
	application := liveviewtest.New(t)
	sessions := NewServer(patient())
	api := httptest.NewServer(sessions.Handler())
	defer api.Close()
	defer sessions.Stop()
	post := func(path, body string) int {
		t.Helper()
		response, err := http.Post(api.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}

	if code := post("/begin", ""); code != http.StatusConflict {
		t.Errorf("begin without sessions: %d", code)
	}
	if code := post("/open", `{"sessions": 0}`); code != http.StatusConflict {
		t.Errorf("open without sessions: %d", code)
	}
	plan, err := json.Marshal(Plan{
		Adapter: "ets", Sessions: 4, Host: "h", Service: application.Address(), Pods: []string{application.Address()}, StashEveryMS: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	if code := post("/open", string(plan)); code != http.StatusOK {
		t.Fatalf("open: %d", code)
	}
	await(t, sessions.current(), "the sessions are open", func(r Report) bool { return r.Phase == Opened })
	if code := post("/verify", `{"withinMs": 1}`); code != http.StatusConflict {
		t.Errorf("verify before begin: %d", code)
	}
	for _, step := range []string{"/begin", "/effect", "/restash"} {
		if code := post(step, ""); code != http.StatusOK {
			t.Errorf("%s: %d", step, code)
		}
	}
	if code := post("/verify", `{"withinMs": 20000}`); code != http.StatusOK {
		t.Errorf("verify: %d", code)
	}
	await(t, sessions.current(), "all are checked", func(r Report) bool { return r.Phase == Verified })
	response, err := http.Get(api.URL + "/report")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var report Report
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil || report.Recovered != 4 {
		t.Errorf("the report is %+v, %v", report, err)
	}
	if code := post("/stop", ""); code != http.StatusOK {
		t.Errorf("stop: %d", code)
	}
}
