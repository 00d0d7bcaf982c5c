package main

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

// TestBrowser is `make test-browser` with few tabs and one rollout.
func TestBrowser(t *testing.T) {
	o := defaults()
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make test-survival`, or set it to a cluster for tests that has the images")
	}
	if !o.OnNode {
		t.Skip("the browser is put into the network of a pod, which only CLUSTER=local has on this machine")
	}
	o.tabs, o.kinds = 2, kinds[:4] // the workload does not speak long polling
	o.adapters, o.events, o.maxP99 = []string{"ETS"}, []string{"rollout-config"}, 0
	o.shownAfter = 5 * time.Second
	results, err := run(t.Context(), o, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].failed() || results[0].Recovered != 8 {
		t.Errorf("the results are %+v, want one of eight tabs that have their state", results)
	}
	if err := printTable(t.Output(), o, results); err != nil {
		t.Fatal(err)
	}
}

func TestTabReport(t *testing.T) {
	all := []*tab{
		{kind: kinds[0], seen: seen{Loads: 1, Connected: true}},
		{kind: kinds[0], seen: seen{Loads: 1, Connected: true, Cuts: 2, Outages: []float64{40, 200}}},
		{kind: kinds[5], seen: seen{Loads: 3, Connected: true, Cuts: 1, Outages: []float64{900}}},
		{kind: kinds[5], seen: seen{Loads: 1, Connected: true, Cuts: 1, Outages: []float64{60}, Wrong: "stale: recovered 3 instead of 4"}},
		{kind: kinds[5], seen: seen{Loads: 1, Cuts: 1}},
	}
	times := func(ms ...time.Duration) *browser.Times {
		for i := range ms {
			ms[i] *= time.Millisecond
		}
		return browser.TimesOf(ms)
	}
	rows := []tabRow{
		{Kind: "WebSocket", Tabs: 2, Cut: 1, Moves: 2, Times: times(40, 200)},
		{Kind: "long polling, nginx", Tabs: 3, Cut: 3, Moves: 2, Lost: 3, Reloads: 2, Times: times(900, 60)},
	}
	if diff := cmp.Diff(rows, tabRows(all)); diff != "" {
		t.Errorf("by kind (-want +got):\n%s", diff)
	}
	got := tabReport(all)
	if len(got.Notes) != 3 {
		t.Errorf("the notes are %q", got.Notes)
	}
	got.Notes = nil
	want := crowd.Report{
		Phase: crowd.Verified, Sessions: 5, Closed: 4, Recovered: 2, Stale: 1, Lost: 2, Moves: 4, MostMoves: 2,
		Times: times(40, 200, 900, 60),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	d := &driver{options: options{Options: fleet.Options{Agent: true}}}
	r := newResult("ETS", "eviction", crowd.Report{Recovered: 3})
	r.Tabs = rows
	if line := "| ETS | eviction | WebSocket | 2 | 1 | 2 | 0 | 0 | 40 / 200 |"; r.tabLines()[0] != line {
		t.Errorf("the line is %q, want %q", r.tabLines()[0], line)
	}
	if d.judge(event{judge: planned}, r) != "long polling, nginx: 2 reloads" {
		t.Errorf("the verdict is %q", d.judge(event{judge: planned}, r))
	}
}

func TestChooseKinds(t *testing.T) {
	for names, want := range map[string]int{"": 9, "websocket": 1, "hidden-busy": 1, "hidden-nginx longpoll": 2, "longpolling": 0, "websocket carrier-pigeon": 0} {
		chosen, err := chooseKinds(words(names))
		if len(chosen) != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v", names, chosen, err)
		}
	}
}
