package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// TestSurvival is `make survival` with few sessions: every adapter, every plain event, and a few of two things at once. With
// Redis, whose pods hold nothing, only those that can go wrong. A fleet of one pod is rolled out with ETS only.
func TestSurvival(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make test-survival`, or set it to a cluster for tests that has the images")
	}
	o := defaults()
	o.sessions = 60
	// The times of a machine that does everything at once say nothing.
	o.together, o.maxP99 = true, 0
	if text := os.Getenv("SESSIONS"); text != "" {
		var err error
		if o.sessions, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SESSIONS=%s is not a number", text)
		}
	}
	if text := os.Getenv("ADAPTERS"); text != "" {
		o.adapters = words(text)
	}
	if events := words(os.Getenv("EVENTS")); len(events) > 0 {
		o.events = events
	} else {
		o.events = []string{plain, "evict-change-2", "scale-change-3", "rollout-config-1"}
		o.fewer = map[string][]string{
			"ETS":           {plain, "evict-change-2", "rollout-config-1"},
			"BrowserMemory": {plain, "evict-change-2"},
			"Mnesia":        {plain, "evict-change-2", "scale-change-3"},
			"Redis":         {"rollout-config", "redis-restart", "evict-change-2"},
		}
	}
	results, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Adapter+"/"+r.Event, func(t *testing.T) {
			if r.skipped != "" {
				t.Skip(r.word())
			}
			if r.failed() {
				t.Error(r.line())
			}
			if r.Sessions != o.sessions || r.Recovered+r.Young+r.Stale+r.Lost != o.sessions {
				t.Errorf("not every one of %d sessions was checked: %s", o.sessions, r.line())
			}
		})
	}
	if err := printTable(t.Output(), o, results); err != nil {
		t.Fatal(err)
	}
}

func TestJudge(t *testing.T) {
	const limit = 500
	const first, second = "shop-1.shop-nodes:4000", "shop-2.shop-nodes:4000"
	slow := &browser.Times{P99: limit + 1}
	for name, c := range map[string]struct {
		adapter, event string
		report         crowd.Report
		fails          bool
	}{
		"a planned event that loses nothing": {"ETS", "eviction", crowd.Report{Recovered: 9}, false},
		"a planned event that loses one":     {"ETS", "eviction", crowd.Report{Recovered: 8, Lost: 1}, true},
		"a planned event with a stale one":   {"Mnesia", "scale-up", crowd.Report{Recovered: 8, Stale: 1}, true},
		"a planned event that is slow":       {"ETS", "eviction", crowd.Report{Recovered: 9, Times: slow}, true},
		"a pair that takes longer":           {"ETS", "evict-change-2", crowd.Report{Recovered: 9, Times: slow}, false},
		"a pair that takes too long":         {"ETS", "evict-change-2", crowd.Report{Recovered: 9, Times: &browser.Times{P99: 1001}}, true},
		"a pair that loses one":              {"Mnesia", "scale-change-3", crowd.Report{Recovered: 8, Lost: 1}, true},
		"a pod on its own that loses one":    {"Mnesia", "rollout-image-1", crowd.Report{Recovered: 8, Lost: 1}, true},
		"a kill that is slow":                {"Mnesia", "kill", crowd.Report{Recovered: 9, Times: slow}, false},
		"a kill that loses a Mnesia session": {"Mnesia", "kill", crowd.Report{Lost: 1}, true},
		"a kill that loses the pod's own":    {"ETS", "kill", crowd.Report{Lost: 3, Pods: map[string]crowd.Pod{first: {Sessions: 3, Lost: 3}}}, false},
		"a kill that loses another pod's":    {"ETS", "kill", crowd.Report{Lost: 1, Pods: map[string]crowd.Pod{first: {Sessions: 3}, second: {Sessions: 3, Lost: 1}}}, true},
		"a kill that leaves a stale one":     {"ETS", "kill", crowd.Report{Stale: 1}, true},
		"a restart of Redis":                 {"Redis", "redis-restart", crowd.Report{Recovered: 9}, false},
		"a restart of Redis that loses one":  {"Redis", "redis-restart", crowd.Report{Lost: 1, LostIdle: 1}, true},
		"hidden tabs that lose nothing":      {"Redis", "hidden", crowd.Report{Recovered: 9}, false},
		"hidden tabs that lose one":          {"Redis", "hidden", crowd.Report{Recovered: 8, Lost: 1}, true},
		"hidden tabs that were not cut":      {"ETS", "hidden", crowd.Report{Sessions: 9, Closed: 8, Recovered: 9}, true},
		"a split that loses":                 {"ETS", "split", crowd.Report{Lost: 1}, false},
		"a split that leaves a stale one":    {"ETS", "split", crowd.Report{Stale: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			o.events = []string{c.event}
			chosen, err := choose(o)
			if err != nil || len(chosen) != 1 {
				t.Fatal(chosen, err)
			}
			d := &driver{options: o}
			d.options.maxP99 = limit * 1e6
			r := newResult(c.adapter, c.event, c.report)
			if verdict := d.judge(chosen[0], r); (verdict != "") != c.fails {
				t.Errorf("the verdict is %q", verdict)
			}
			d.options.Agent = false
			if verdict := d.judge(chosen[0], r); verdict != "" {
				t.Errorf("without the agent the verdict is %q", verdict)
			}
		})
	}
}

func TestJudgeWithoutPersistence(t *testing.T) {
	o := defaults()
	o.Persistence = false
	for _, c := range []struct {
		report crowd.Report
		fails  bool
	}{
		{crowd.Report{Recovered: 5, Lost: 4, LostIdle: 4}, false},
		{crowd.Report{Recovered: 5, Lost: 4, LostIdle: 3}, true},
	} {
		if verdict := redisRestarted(o)("Redis", c.report); (verdict != "") != c.fails {
			t.Errorf("the verdict on %+v is %q", c.report, verdict)
		}
	}
}

// What the operator must not have done fails an event that lost nothing.
func TestJudgeTheOrder(t *testing.T) {
	d := &driver{options: defaults()}
	r := newResult("ETS", "evict-change-2", crowd.Report{Recovered: 9})
	r.faults = []string{"the operator took shop-1 while shop-0 was terminating"}
	if verdict := d.judge(event{judge: planned}, r); verdict != r.faults[0] {
		t.Errorf("the verdict is %q", verdict)
	}
}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   int
	}{
		"one":               {[]string{"evict-change-3"}, 1},
		"a group":           {[]string{single}, 2},
		"a group and one":   {[]string{single, "kill"}, 3},
		"one of its group":  {[]string{single, "rollout-image-1"}, 2},
		"all pairs":         {[]string{paired}, 14},
		"hidden tabs":       {[]string{hidden}, 1},
		"hidden for longer": {[]string{forgotten}, 1},
		"those of one only": {[]string{plain}, 14},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaults()
			o.adapters, o.events = []string{"ETS", "Redis"}, c.events
			chosen, err := choose(o)
			if err != nil {
				t.Fatal(err)
			}
			if len(chosen) != c.want {
				t.Errorf("%d events are chosen, want %d", len(chosen), c.want)
			}
		})
	}
}

func TestSkips(t *testing.T) {
	elsewhere := options{}
	here := options{Options: fleet.Options{OnNode: true}}
	for name, c := range map[string]struct {
		options options
		event   event
		adapter string
		skips   bool
	}{
		"an event for all":                   {elsewhere, event{}, "ETS", false},
		"processes that are elsewhere":       {elsewhere, event{needsNode: true}, "ETS", true},
		"processes that are here":            {here, event{needsNode: true}, "ETS", false},
		"hidden tabs with a stash of theirs": {here, hiddenEvents()[0], "BrowserMemory", true},
		"hidden tabs":                        {here, hiddenEvents()[0], "Redis", false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := c.options.skips(c.event, c.adapter); (why != "") != c.skips {
				t.Errorf("it is skipped because %q", why)
			}
		})
	}
}

func TestSubjects(t *testing.T) {
	o := options{fewer: map[string][]string{"Redis": {"redis-restart", single}}}
	fleets := []*fleet.Fleet{{Adapter: "ETS"}, {Adapter: "Redis"}}
	for name, c := range map[string]struct {
		event event
		want  string
	}{
		"an event for all":       {event{name: "eviction"}, "ETS"},
		"an event of one":        {event{name: "redis-restart", adapter: "Redis"}, "Redis"},
		"one of a group":         {event{name: "rollout-image-1", group: single}, "ETS Redis"},
		"one it does not choose": {event{name: "redis-kill", adapter: "Redis"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range o.subjects(c.event, fleets) {
				got = append(got, f.Adapter)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("it is done to %v, want %s", got, c.want)
			}
		})
	}
}

func TestChooseRefusesUnknownNames(t *testing.T) {
	for _, change := range []func(*options){
		func(o *options) { o.events = []string{"earthquake"} },
		func(o *options) { o.adapters = []string{"Memcached"} },
		func(o *options) { o.adapters, o.events = []string{"ETS"}, []string{"redis-restart"} },
	} {
		o := defaults()
		change(&o)
		if _, err := choose(o); err == nil {
			t.Errorf("%+v is not refused", o)
		}
	}
}
