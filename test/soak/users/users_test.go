package users

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
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

// patient is a browser that comes back at once, and bears a machine that stands still for a while.
func patient() browser.Pace {
	return browser.Pace{
		Reconnect: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		Connect:   30 * time.Second, Reply: 30 * time.Second, Heartbeat: 30 * time.Second,
	}
}

func plan(server *liveviewtest.Server, adapter string, users int) Plan {
	return Plan{
		Adapter: adapter, Users: users, Host: "shop.example", Service: server.Address(), Pods: []string{server.Address()},
		TTLMS: 60000, Seed: 1,
	}
}

func open(t *testing.T, server *liveviewtest.Server, adapter string) *Users {
	t.Helper()
	return openAt(t, patient(), server, adapter)
}

func openAt(t *testing.T, pace browser.Pace, server *liveviewtest.Server, adapter string) *Users {
	t.Helper()
	all, err := Open(plan(server, adapter, 20), pace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Stop)
	await(t, all, "the users are ready", func(r Report) bool { return r.Ready == 20 })
	return all
}

func await(t *testing.T, all *Users, what string, is func(Report) bool) Report {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		r := all.Report()
		if is(r) {
			return r
		}
		if r.Problem != "" || time.Now().After(deadline) {
			t.Fatalf("waited for %q in vain: %+v", what, r)
		}
	}
}

func checked(t *testing.T, all *Users) Report {
	t.Helper()
	all.Check()
	return await(t, all, "all are checked", func(r Report) bool { return r.Unchecked == 0 })
}

func TestMix(t *testing.T) {
	counts := map[Kind]int{}
	for i := range 300 {
		counts[kindOf(i)]++
	}
	for _, kind := range []Kind{Steady, Idle, Hopping, Sleeping, Doubling, Busy} {
		if counts[kind] == 0 || kind == Busy && counts[kind] != maxBusy {
			t.Errorf("of 300 users %d are %s", counts[kind], kind)
		}
	}
}

func TestEverybodyIsChecked(t *testing.T) {
	for _, adapter := range []string{"ets", "browser_memory"} {
		t.Run(adapter, func(t *testing.T) {
			server := liveviewtest.New(t)
			all := open(t, server, adapter)
			server.CloseAll(websocket.StatusServiceRestart)
			await(t, all, "all were cut and are back", func(r Report) bool { return r.Cut == 20 && r.Away == 0 && r.Returns == 20 })
			r := checked(t, all)
			if good := r.Verdicts[ledger.Recovered]; good < 40 || len(r.Findings) > 0 || r.Verdicts[ledger.Stale]+r.Verdicts[ledger.Lost] > 0 {
				t.Errorf("%d returns found their state: %+v", good, r)
			}
			if r.Times == nil || r.Times.Count != 20 || len(r.Slowest) != maxSlowest {
				t.Errorf("the times are %+v, the slowest %+v", r.Times, r.Slowest)
			}
		})
	}
}

func TestWhatWouldBeTold(t *testing.T) {
	for name, c := range map[string]struct {
		misbehave func(*liveviewtest.Server)
		want      ledger.Verdict
	}{
		"a lost state":  {func(s *liveviewtest.Server) { s.Forget(true) }, ledger.Lost},
		"an older one":  {func(s *liveviewtest.Server) { s.Rewind(1) }, ledger.Stale},
		"a foreign one": {func(s *liveviewtest.Server) { s.Rewind(-7) }, ledger.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			server := liveviewtest.New(t)
			all := open(t, server, "ets")
			c.misbehave(server)
			r := checked(t, all)
			if r.Verdicts[c.want] < 20 || len(r.Findings) < 20 {
				t.Fatalf("of 20 %d are %s, and %d are told: %v", r.Verdicts[c.want], c.want, len(r.Findings), r.Verdicts)
			}
			if f := r.Findings[0]; f.Last.Version == 0 || len(f.Trail) < 2 || f.At.IsZero() {
				t.Errorf("what is told is %+v", f)
			}
		})
	}
}

// The answer to a stash is lost, with the socket, but the stash was done.
func TestALostAnswer(t *testing.T) {
	server := liveviewtest.New(t)
	pace := patient()
	pace.Reply = time.Second
	all := openAt(t, pace, server, "ets")
	server.MuteStashes(true)
	await(t, all, "busy users give the server up", func(r Report) bool { return r.Endings["no answer to a stash"] > 0 })
	server.MuteStashes(false)
	r := checked(t, all)
	if r.Verdicts[ledger.Newer] == 0 || len(r.Findings) > 0 {
		t.Errorf("the verdicts are %v", r.Verdicts)
	}
}

// What is acknowledged while the store is away may be missing afterwards, what was acknowledged before may not.
func TestAStoreThatWasAway(t *testing.T) {
	for name, told := range map[string]bool{"which is known": true, "which is not": false} {
		t.Run(name, func(t *testing.T) {
			server := liveviewtest.New(t)
			all := open(t, server, "redis")
			all.Store(told)
			server.DropStashes(true)
			before := all.Report().Stashes
			await(t, all, "a busy user has stashed", func(r Report) bool { return r.Stashes > before+3 })
			server.CloseAll(-1)
			r := await(t, all, "all are back", func(r Report) bool { return r.Cut == 20 && r.Away == 0 })
			if told && (r.Verdicts[ledger.Unstored] == 0 || len(r.Findings) > 0) || !told && r.Verdicts[ledger.Stale] == 0 {
				t.Errorf("the verdicts are %v", r.Verdicts)
			}
		})
	}
}

// Two tabs with one stash: both come back, and the ledger takes either's version afterwards.
func TestTwoTabs(t *testing.T) {
	server := liveviewtest.New(t)
	all := open(t, server, "ets")
	var doubling *user
	for _, u := range all.users {
		if u.kind == Doubling {
			doubling = u
			break
		}
	}
	doubling.goAway()
	r := await(t, all, "a user has come back twice and once more", func(r Report) bool { return r.Doubled == 1 && r.Returns >= 3 })
	if r.DoubledEmpty > 0 || len(r.Findings) > 0 {
		t.Errorf("two tabs came to %+v", r)
	}
	if r := checked(t, all); len(r.Findings) > 0 {
		t.Errorf("after two tabs: %+v", r.Findings)
	}
}

// A user who was away for longer than a stash lives was promised nothing.
func TestExpired(t *testing.T) {
	server := liveviewtest.New(t)
	p := plan(server, "ets", 9)
	p.TTLMS = 1
	all, err := Open(p, patient())
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	await(t, all, "the users are ready", func(r Report) bool { return r.Ready == 9 })
	server.Forget(true)
	if r := checked(t, all); r.Verdicts[ledger.Expired] == 0 || r.Verdicts[ledger.Lost] > 0 {
		t.Errorf("the verdicts are %v", r.Verdicts)
	}
}

func TestServer(t *testing.T) {
	application := liveviewtest.New(t)
	server := NewServer(patient())
	api := httptest.NewServer(server.Handler())
	defer api.Close()
	defer server.Stop()
	text, err := json.Marshal(plan(application, "ets", 4))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		path, body string
		want       int
	}{
		{"/soak/check", "", http.StatusConflict},
		{"/soak/open", `{"users": 0}`, http.StatusConflict},
		{"/soak/open", string(text), http.StatusOK},
		{"/soak/store", `{"away": true}`, http.StatusOK},
		{"/soak/store", `{"away": false}`, http.StatusOK},
		{"/soak/check", "", http.StatusOK},
	} {
		response, err := http.Post(api.URL+step.path, "application/json", strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != step.want {
			t.Errorf("%s %s: %d, want %d", step.path, step.body, response.StatusCode, step.want)
		}
	}
	response, err := http.Get(api.URL + "/soak/report")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var report Report
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil || report.Users != 4 {
		t.Errorf("the report is %+v, %v", report, err)
	}
}

// Whatever happens, a report is not larger than it may be, and says what it leaves out.
func TestFindingsAreBounded(t *testing.T) {
	var r Report
	for range maxFindings + 3 {
		r.keep(ledger.Return{Verdict: ledger.Lost, Trail: []string{"left"}})
	}
	r.keep(ledger.Return{Verdict: ledger.Recovered})
	if len(r.Findings) != maxFindings || r.MoreFindings != 3 {
		t.Errorf("%d findings are kept, %d are not", len(r.Findings), r.MoreFindings)
	}
	if r.Findings[0].Trail == nil || r.Findings[maxFindings-1].Trail != nil {
		t.Error("the first findings have no trail, or the last ones do")
	}
}
