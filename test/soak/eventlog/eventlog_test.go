package eventlog

import (
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/soak/ledger"
	"github.com/livestash-dev/livestash/test/soak/schedule"
)

func at(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }

// stopped is a pod that was told to stop, and was gone at once.
func stopped(pod string, when int) []Move { return []Move{{Pod: pod, At: at(when), End: at(when)}} }

func node(pod string) string { return "shop@" + pod + ".shop-nodes.soak.svc.cluster.local" }

// With copies in other pods a killed pod may take with it what was younger than the copies have to be, and nothing else.
func TestExplainWithCopies(t *testing.T) {
	kill := func(pod string, when int) Event {
		return Event{Kind: schedule.Kill, Pods: []string{pod}, Start: at(when), End: at(when)}
	}
	for name, c := range map[string]struct {
		verdict   ledger.Verdict
		missing   int
		events    []Event
		explained bool
	}{
		"lost, and it was young":                {ledger.Lost, 49, []Event{kill("shop-1", 50)}, true},
		"lost, and it was not":                  {ledger.Lost, 45, []Event{kill("shop-1", 50)}, false},
		"stale, and what is missing was young":  {ledger.Stale, 49, []Event{kill("shop-1", 50)}, true},
		"stale, and what is missing was not":    {ledger.Stale, 45, []Event{kill("shop-1", 50)}, false},
		"young, but another pod was killed":     {ledger.Lost, 49, []Event{kill("shop-2", 50)}, false},
		"nobody knows how young it was":         {ledger.Lost, -1000, []Event{kill("shop-1", 50)}, false},
		"the copy's pod was killed too":         {ledger.Lost, 30, []Event{kill("shop-0", 45), kill("shop-1", 50)}, true},
		"another pod was killed long before":    {ledger.Lost, 15, []Event{kill("shop-0", 20), kill("shop-1", 50)}, false},
		"a graceful event does not count there": {ledger.Lost, 15, []Event{{Kind: schedule.Delete, Pods: []string{"shop-0"}, Start: at(49), End: at(49)}, kill("shop-1", 50)}, false},
		"no other pod was there":                {ledger.Lost, 30, []Event{{Kind: schedule.Kill, Pods: []string{"shop-1"}, Start: at(50), End: at(50), Alone: true}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: "ETS", Young: 2 * time.Second, Events: c.events}
			r := ledger.Return{
				Verdict: c.verdict, At: at(100), Node: node("shop-2"), Missing: at(c.missing),
				Last: ledger.Stash{Version: 3, Node: node("shop-1"), At: at(10)},
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

// LiveStash refuses what some pages stash in the seconds after a split, and the user may be back long after.
func TestWhatMnesiaHasRefused(t *testing.T) {
	split := Event{Kind: schedule.Split, Pods: []string{"shop-1", "shop-0"}, Start: at(20), End: at(45)}
	for name, c := range map[string]struct {
		missing, last int
		explained     bool
	}{
		"and the user left":               {missing: 47, last: 47, explained: true},
		"and stashed again":               {missing: 47, last: 70},
		"long after":                      {missing: 58, last: 58},
		"before":                          {missing: 10, last: 47},
		"nobody knows when, and was last": {missing: -1000, last: 47},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: "Mnesia", Events: []Event{split}}
			r := ledger.Return{
				Verdict: ledger.Stale, At: at(100), Node: node("shop-2"), Missing: at(c.missing),
				Last: ledger.Stash{Version: 15, Node: node("shop-2"), At: at(c.last)},
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

// Redis writes to its append-only file up to two seconds late.
func TestWhatRedisHadNotWritten(t *testing.T) {
	killed := Event{Kind: schedule.RedisKill, Start: at(50), End: at(54)}
	for name, c := range map[string]struct {
		missing   int
		explained bool
	}{
		"acknowledged just before":       {missing: 48, explained: true},
		"acknowledged before that":       {missing: 40},
		"nobody knows when":              {missing: -1},
		"acknowledged while it was away": {missing: 51, explained: true},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: "Redis", Persistent: true, Events: []Event{killed}}
			r := ledger.Return{Verdict: ledger.Stale, At: at(60), Node: node("shop-2"), Last: ledger.Stash{Version: 13, Node: node("shop-2"), At: at(52)}}
			if c.missing > 0 {
				r.Missing = at(c.missing)
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

// Another tab of the user was on the pod that was cut off, or the user went to that one first.
func TestWhereElseTheUserWas(t *testing.T) {
	cutOff := Event{Kind: schedule.CutOff, Pods: []string{"shop-0"}, Start: at(80), End: at(95)}
	long := Event{Kind: schedule.CutOff, Pods: []string{"shop-0"}, Start: at(60), End: at(85)}
	for name, c := range map[string]struct {
		event     Event
		tabs      []string
		first     string
		explained bool
	}{
		"nowhere else":                      {cutOff, nil, "", false},
		"in another tab there":              {cutOff, []string{node("shop-3"), node("shop-0")}, "", true},
		"in another tab elsewhere":          {cutOff, []string{node("shop-3")}, "", false},
		"there first":                       {cutOff, nil, "shop-0", true},
		"there first, long after":           {long, nil, "shop-0", false},
		"elsewhere first":                   {cutOff, nil, "shop-3", false},
		"in another tab there, long before": {Event{Kind: schedule.CutOff, Pods: []string{"shop-0"}, Start: at(20), End: at(50)}, []string{node("shop-0")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: "ETS", Events: []Event{c.event}}
			r := ledger.Return{
				Verdict: ledger.Stale, At: at(100), Node: node("shop-2"), Tabs: c.tabs, First: c.first,
				Last: ledger.Stash{Version: 3, Node: node("shop-1"), At: at(95)},
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

// The user began anew on shop-1, because shop-0, which had the state, was cut off. What turns up is the former one.
func TestAFormerState(t *testing.T) {
	split := Event{Kind: schedule.Split, Pods: []string{"shop-0", "shop-3"}, Start: at(60), End: at(80)}
	for name, c := range map[string]struct {
		event     Event
		origin    string
		moves     []Move
		explained bool
	}{
		"it was on a pod that was cut off":     {split, node("shop-0"), nil, true},
		"it was on another one":                {split, node("shop-2"), nil, false},
		"nobody knows where it was":            {split, "", nil, false},
		"it moved during the split":            {split, node("shop-2"), stopped("shop-2", 70), true},
		"the split was over for a long time":   {Event{Kind: schedule.Split, Pods: split.Pods, Start: at(20), End: at(60)}, node("shop-0"), nil, false},
		"it was handed over before the split":  {split, node("shop-2"), stopped("shop-2", 30), false},
		"graceful events do not count as ever": {Event{Kind: schedule.Delete, Pods: []string{"shop-0"}, Start: at(90), End: at(90)}, node("shop-0"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: "ETS", Events: []Event{c.event}, Moves: c.moves}
			r := ledger.Return{
				Verdict: ledger.Stale, At: at(100), Node: node("shop-2"), Origin: c.origin,
				Last: ledger.Stash{Version: 3, Node: node("shop-1"), At: at(95)},
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

// Every user here was last known to have its state in shop-1 at 10 s, and came back to shop-2 at 100 s.
func TestExplain(t *testing.T) {
	event := func(kind schedule.Kind, start, end int, pods ...string) Event {
		return Event{Kind: kind, Pods: pods, Start: at(start), End: at(end)}
	}
	alone := func(e Event) Event { e.Alone = true; return e }
	for name, c := range map[string]struct {
		adapter    string
		persistent bool
		verdict    ledger.Verdict
		event      Event
		moves      []Move
		explained  bool
	}{
		"lost, and nothing happened":                   {adapter: "ETS", verdict: ledger.Lost},
		"lost by a graceful event":                     {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Delete, 50, 50, "shop-1")},
		"lost when all pods were deleted":              {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.DeleteAll, 50, 50, "shop-0", "shop-1", "shop-2")},
		"lost with the pod that had it":                {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-1"), explained: true},
		"lost when another was killed":                 {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0")},
		"lost when the one of the new page was":        {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-2")},
		"killed before the user stashed there":         {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 5, 5, "shop-1")},
		"killed after the user was back":               {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 110, 110, "shop-1")},
		"stale is not a matter of a kill":              {adapter: "ETS", verdict: ledger.Stale, event: event(schedule.Kill, 50, 50, "shop-1")},
		"moved, and killed where it may have been":     {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: stopped("shop-1", 30), explained: true},
		"moved only after the other one was killed":    {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: stopped("shop-1", 70)},
		"moved before the user stashed there":          {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: stopped("shop-1", 5)},
		"told to stop before, and served on":           {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: []Move{{Pod: "shop-1", At: at(5), End: at(30)}}, explained: true},
		"told to stop before, and still there":         {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: []Move{{Pod: "shop-1", At: at(5)}}, explained: true},
		"another pod moved":                            {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-0"), moves: stopped("shop-2", 30)},
		"moved, and nothing else":                      {adapter: "ETS", verdict: ledger.Lost, moves: stopped("shop-1", 30)},
		"lost while the pod that had it was frozen":    {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Freeze, 90, 105, "shop-1"), explained: true},
		"lost just after a split":                      {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Split, 30, 80, "shop-1", "shop-2"), explained: true},
		"stale just after a split":                     {adapter: "ETS", verdict: ledger.Stale, event: event(schedule.Split, 30, 80, "shop-1", "shop-2"), explained: true},
		"lost on the pod that was cut off":             {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.CutOff, 90, 120, "shop-2"), explained: true},
		"a split that was over before":                 {adapter: "ETS", verdict: ledger.Stale, event: event(schedule.Split, -90, -60, "shop-1", "shop-2")},
		"the new page's pod was cut off long before":   {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.CutOff, -20, -5, "shop-2")},
		"lost when a split was long over":              {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Split, 20, 50, "shop-1", "shop-2")},
		"stopped while others were frozen":             {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Freeze, 20, 40, "shop-0"), moves: stopped("shop-1", 30), explained: true},
		"stale is not a matter of stopping then":       {adapter: "ETS", verdict: ledger.Stale, event: event(schedule.Freeze, 20, 40, "shop-0"), moves: stopped("shop-1", 30)},
		"stopped for a while, others frozen meanwhile": {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Freeze, 45, 50, "shop-0"), moves: stopped("shop-1", 30), explained: true},
		"stopped when others were no longer frozen":    {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Freeze, 12, 20, "shop-0"), moves: stopped("shop-1", 50)},
		"a split of others":                            {adapter: "ETS", verdict: ledger.Lost, event: event(schedule.Split, 90, 120, "shop-0", "shop-3")},
		"Mnesia has other copies":                      {adapter: "Mnesia", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-1")},
		"but not when no other pod is ready":           {adapter: "Mnesia", verdict: ledger.Lost, event: alone(event(schedule.Kill, 50, 50, "shop-1")), explained: true},
		"Mnesia's copies go apart":                     {adapter: "Mnesia", verdict: ledger.Stale, event: event(schedule.Split, 80, 95, "shop-0", "shop-2"), explained: true},
		"Redis comes back with all it had":             {adapter: "Redis", persistent: true, verdict: ledger.Lost, event: event(schedule.RedisKill, 50, 50)},
		"Redis comes back without":                     {adapter: "Redis", verdict: ledger.Lost, event: event(schedule.RedisKill, 50, 50), explained: true},
		"Redis does not mind a BEAM":                   {adapter: "Redis", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-1")},
		"a pod that does not reach Redis":              {adapter: "Redis", persistent: true, verdict: ledger.Stale, event: event(schedule.CutOff, 0, 8, "shop-1"), explained: true},
		"a pod that did not reach Redis later on":      {adapter: "Redis", persistent: true, verdict: ledger.Stale, event: event(schedule.CutOff, 30, 60, "shop-1")},
		"BrowserMemory has no part in a pod":           {adapter: "BrowserMemory", verdict: ledger.Lost, event: event(schedule.Kill, 50, 50, "shop-1")},
		"BrowserMemory has no part in a split":         {adapter: "BrowserMemory", verdict: ledger.Lost, event: event(schedule.Split, 90, 120, "shop-1", "shop-2")},
		"a restart of Redis as one should do it":       {adapter: "Redis", persistent: true, verdict: ledger.Lost, event: event(schedule.Redis, 50, 60)},
	} {
		t.Run(name, func(t *testing.T) {
			log := Log{Adapter: c.adapter, Persistent: c.persistent, Moves: c.moves}
			if c.event.Kind != "" {
				log.Events = []Event{c.event}
			}
			r := ledger.Return{
				Verdict: c.verdict, At: at(100), Node: node("shop-2"),
				Last: ledger.Stash{Version: 3, Node: node("shop-1"), At: at(10)},
			}
			if got := log.Explain(r); (got != "") != c.explained {
				t.Errorf("it is explained by %q", got)
			}
		})
	}
}

func TestPod(t *testing.T) {
	for node, want := range map[string]string{
		"shop@shop-1.shop-nodes.soak-ets.svc.cluster.local": "shop-1",
		"shop-2": "shop-2",
		"":       "",
	} {
		if got := Pod(node); got != want {
			t.Errorf("%q is in %q, want %q", node, got, want)
		}
	}
}

// Of several events the one is told that is the best reason.
func TestTheBestReason(t *testing.T) {
	r := ledger.Return{
		Verdict: ledger.Lost, At: at(100), Node: node("shop-2"),
		Last: ledger.Stash{Version: 3, Node: node("shop-1"), At: at(10)},
	}
	log := Log{Adapter: "ETS", Moves: stopped("shop-1", 70)}
	for _, c := range []struct {
		event Event
		want  string
	}{
		{Event{Kind: schedule.Freeze, Pods: []string{"shop-2"}, Start: at(90), End: at(105)}, "freeze shop-2"},
		{Event{Kind: schedule.Kill, Pods: []string{"shop-0"}, Start: at(80), End: at(80)}, "kill shop-0"},
		{Event{Kind: schedule.Kill, Pods: []string{"shop-1"}, Start: at(50), End: at(50)}, "kill shop-1"},
		{Event{Kind: schedule.Split, Pods: []string{"shop-1", "shop-2"}, Start: at(95), End: at(99)}, "kill shop-1"},
	} {
		log.Events = append(log.Events, c.event)
		if got := log.Explain(r); !strings.HasPrefix(got, c.want+" at ") {
			t.Errorf("with %s it is explained by %q, want %q", c.event, got, c.want)
		}
	}
}

// The user was last known to have its state at 10 s and came back at 100 s; a pod has 60 s to stop, a stash lives for 80 s.
func TestOutages(t *testing.T) {
	for name, c := range map[string]struct {
		adapter   string
		verdict   ledger.Verdict
		outage    Outage
		explained bool
	}{
		"longer than a pod waits":             {"ETS", ledger.Lost, Outage{at(20), at(70)}, true},
		"and Mnesia's":                        {"Mnesia", ledger.Lost, Outage{at(20), at(70)}, true},
		"shorter, and the user was late":      {"ETS", ledger.Lost, Outage{at(20), at(60)}, true},
		"too short for being late":            {"ETS", ledger.Lost, Outage{at(20), at(25)}, false},
		"over before the user stashed":        {"ETS", ledger.Lost, Outage{at(-60), at(5)}, false},
		"begun when the user was back":        {"ETS", ledger.Lost, Outage{at(105), at(300)}, false},
		"stale is not a matter of an outage":  {"ETS", ledger.Stale, Outage{at(20), at(70)}, false},
		"Redis does not wait, but is late":    {"Redis", ledger.Lost, Outage{at(20), at(70)}, true},
		"a browser's stash is late, too":      {"BrowserMemory", ledger.Lost, Outage{at(20), at(60)}, true},
		"Redis, when the user was late by it": {"Redis", ledger.Lost, Outage{at(20), at(28)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := &Log{Adapter: c.adapter, Outages: []Outage{c.outage}, Grace: time.Minute, TTL: 80 * time.Second}
			back := ledger.Return{Verdict: c.verdict, At: at(100), Node: node("shop-2"), Last: ledger.Stash{Node: node("shop-1"), At: at(10)}}
			if got := log.Explain(back); (got != "") != c.explained {
				t.Errorf("explained by %q", got)
			}
		})
	}
}
