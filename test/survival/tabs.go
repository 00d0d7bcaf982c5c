package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/chromium"
	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/internal/nginx"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

const (
	// openWithin is how long a tab may take to show what is done in it.
	openWithin = 3 * time.Minute
	// backWithin is how long a tab may take to be back before it counts as lost.
	backWithin = 45 * time.Second
	// tabsP99 is the longest that a tab may be without a connection.
	tabsP99 = time.Second
	// tabPort is the fleet's port as the browser sees it, proxyPort that of the proxy.
	tabPort, proxyPort = "80", "8081"
)

// watching runs in every page. It notes in the tab's sessionStorage what its user would see.
//
//go:embed tabs.js
var watching string

// kind is a kind of tab.
type kind struct {
	name     string
	longPoll bool
	// proxied tabs come through nginx.
	proxied bool
	// hidden tabs are not looked at from before the event until options.shownAfter after it.
	hidden bool
	// busy tabs are always in the middle of an event, which takes two seconds.
	busy bool
}

// kinds are all there are. The workload without dependencies has the first four.
var kinds = []kind{
	{name: "WebSocket"},
	{name: "WebSocket, nginx", proxied: true},
	{name: "WebSocket, hidden", hidden: true},
	{name: "WebSocket, hidden, nginx", hidden: true, proxied: true},
	{name: "long polling", longPoll: true},
	{name: "long polling, nginx", longPoll: true, proxied: true},
	{name: "WebSocket, in an event", busy: true},
	{name: "WebSocket, in an event, hidden", busy: true, hidden: true},
	{name: "long polling, in an event", busy: true, longPoll: true},
}

// tabs are users in a real browser: some of each kind, each in a profile of its own.
type tabs struct {
	*subject
	browser *chromium.Browser
	proxy   *nginx.Proxy
	all     []*tab
	// allHidden is whether no tab is looked at before it is checked.
	allHidden bool
}

type tab struct {
	*chromium.Tab
	kind
	seen seen
}

// seen is what a tab has noted.
type seen struct {
	// Loads is how often the page was loaded, Cuts how often it lost its connection.
	Loads int `json:"loads"`
	Cuts  int `json:"cuts"`
	// Outages are the milliseconds until it was back, for a hidden tab from when it was shown.
	Outages []float64 `json:"outages"`
	// Wrong says what it found instead of its state when it came back; empty when it never did.
	Wrong string `json:"wrong"`
	// Count is the counter that it shows, Most the highest that it has shown.
	Count     int  `json:"count"`
	Most      int  `json:"most"`
	Connected bool `json:"connected"`
	Hidden    bool `json:"hidden"`
}

// open opens the tabs and stashes in each, a few times in some.
func (u *tabs) open(ctx context.Context, hidden bool) error {
	network, err := u.ClientNetwork(ctx)
	if err != nil {
		return err
	}
	_, service, host, err := u.Addresses(ctx)
	if err != nil {
		return err
	}
	return u.openIn(ctx, network, service, host, hidden)
}

// openIn opens them in a network, where the application that takes itself for this host is at the service's address.
func (u *tabs) openIn(ctx context.Context, network, service, host string, hidden bool) error {
	u.allHidden = hidden
	enter := []string{"nsenter", "--net=" + network}
	var err error
	if u.proxy, err = startProxy(ctx, enter, service); err != nil {
		return err
	}
	// Nothing but the fleet has an address.
	through := net.JoinHostPort("127.0.0.1", proxyPort)
	u.browser, err = chromium.Start(enter, fmt.Sprintf("MAP %s:%s %s, MAP %s:%s %s, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE %s",
		host, proxyPort, through, host, tabPort, service, strings.Split(service, ":")[0]))
	if err != nil {
		return err
	}
	for i := range u.options.tabs {
		for _, k := range u.options.kinds {
			if k.hidden && hidden {
				continue // there they all are
			}
			t, err := u.openTab(ctx, host, k, i%2 == 1)
			if err != nil {
				return fmt.Errorf("%s: open a tab (%s): %w", u.Adapter, k.name, err)
			}
			u.all = append(u.all, t)
		}
	}
	return nil
}

// openTab opens a tab, which goes on stashing or only does so now.
func (u *tabs) openTab(ctx context.Context, host string, k kind, goesOn bool) (*tab, error) {
	port := tabPort
	if k.proxied {
		port = proxyPort
	}
	address := "http://" + net.JoinHostPort(host, port) + "/stash/" + fleet.Adapters[u.Adapter]
	if k.longPoll {
		address += "?transport=longpoll"
	}
	t := &tab{kind: k}
	var err error
	if t.Tab, err = u.browser.Open(ctx, address, watching); err != nil {
		return nil, err
	}
	if err := t.until(ctx, openWithin, func() bool { return t.seen.Connected }); err != nil {
		return nil, err
	}
	clicks := 1 + len(u.all)%3
	for i := range clicks {
		if err := t.Evaluate(ctx, "livestashTest.stash()", nil); err != nil {
			return nil, err
		}
		if err := t.until(ctx, openWithin, func() bool { return t.seen.Count == i+1 }); err != nil {
			return nil, err
		}
	}
	if k.busy {
		err = t.Evaluate(ctx, "livestashTest.goOnSlowly()", nil)
	} else if goesOn {
		err = t.Evaluate(ctx, "livestashTest.goOn()", nil)
	}
	return t, err
}

// look asks the tab what it has seen.
func (t *tab) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	var now seen
	if err := t.Evaluate(ctx, "livestashTest.seen()", &now); err != nil {
		return err
	}
	t.seen = now
	return nil
}

// until waits for the tab. While it is loaded anew it cannot be asked.
func (t *tab) until(ctx context.Context, within time.Duration, holds func() bool) error {
	return fleet.Eventually(ctx, within, func(ctx context.Context) error {
		if err := t.look(ctx); err != nil {
			return err
		}
		if !holds() {
			return fmt.Errorf("it has seen %+v", t.seen)
		}
		return nil
	})
}

// begin hides what is to be hidden.
func (u *tabs) begin(ctx context.Context) error {
	for _, t := range u.all {
		if !t.hidden && !u.allHidden {
			continue
		}
		if err := t.Hide(ctx); err != nil {
			return err
		}
		if err := t.until(ctx, openWithin, func() bool { return t.seen.Hidden }); err != nil {
			return err
		}
	}
	return nil
}

// effect is for users who need to know when a pod has gone. These see it.
func (u *tabs) effect(context.Context) error { return nil }

// verify shows the hidden tabs, waits until all are back, and says what they have found.
func (u *tabs) verify(ctx context.Context) (crowd.Report, error) {
	if !u.allHidden && slices.ContainsFunc(u.all, func(t *tab) bool { return t.hidden }) {
		if err := fleet.Pause(ctx, u.options.shownAfter); err != nil {
			return crowd.Report{}, err
		}
	}
	for _, t := range u.all {
		if err := t.Show(ctx); err != nil {
			return crowd.Report{}, err
		}
	}
	for _, t := range u.all {
		// Who is not back in time is lost, and told as such.
		_ = t.until(ctx, backWithin, func() bool { return t.seen.Connected && !t.seen.Hidden })
	}
	// A tab that has just come back looks at what it has found a moment later.
	if err := fleet.Pause(ctx, time.Second); err != nil {
		return crowd.Report{}, err
	}
	for _, t := range u.all {
		if err := t.look(ctx); err != nil {
			return crowd.Report{}, err
		}
	}
	u.rows = tabRows(u.all)
	return tabReport(u.all), nil
}

// stop ends the browser and the proxy.
func (u *tabs) stop(context.Context) error {
	var err error
	if u.browser != nil {
		err = u.browser.Close()
	}
	if u.proxy != nil {
		err = errors.Join(err, u.proxy.Stop())
	}
	u.browser, u.proxy, u.all = nil, nil, nil
	return err
}

// found is what a tab has found instead of its state; empty when it has that.
func (t *tab) found() string {
	switch {
	case t.seen.Wrong != "":
		return t.seen.Wrong
	case !t.seen.Connected:
		return "lost: it was not back in time"
	case t.seen.Loads != 1:
		return "lost: the page was loaded anew"
	}
	return ""
}

// tabReport is what all tabs have found.
func tabReport(all []*tab) crowd.Report {
	r := crowd.Report{Phase: crowd.Verified, Sessions: len(all)}
	var times []time.Duration
	for i, t := range all {
		if t.seen.Cuts > 0 {
			r.Closed++
		}
		times = append(times, t.outages()...)
		r.Moves += len(t.seen.Outages)
		r.MostMoves = max(r.MostMoves, len(t.seen.Outages))
		wrong := t.found()
		switch {
		case wrong == "":
			r.Recovered++
			continue
		case strings.HasPrefix(wrong, "stale"):
			r.Stale++
		default:
			r.Lost++
		}
		r.Notes = append(r.Notes, fmt.Sprintf("tab %d (%s): %s; it has seen %+v", i, t.name, wrong, t.seen))
	}
	r.Times = browser.TimesOf(times)
	return r
}

func (t *tab) outages() []time.Duration {
	times := make([]time.Duration, len(t.seen.Outages))
	for i, ms := range t.seen.Outages {
		times[i] = time.Duration(ms * float64(time.Millisecond))
	}
	return times
}

// tabRow is what the tabs of a kind have found.
type tabRow struct {
	Kind string `json:"kind"`
	Tabs int    `json:"tabs"`
	// Cut is how many lost their connection at least once, Moves how often all of them together came back.
	Cut     int            `json:"cut"`
	Moves   int            `json:"moves"`
	Lost    int            `json:"lost"`
	Reloads int            `json:"reloads"`
	Times   *browser.Times `json:"times"`
}

// tabRows have the kinds in their order.
func tabRows(all []*tab) []tabRow {
	var rows []tabRow
	for _, k := range kinds {
		row, times := tabRow{Kind: k.name}, []time.Duration(nil)
		for _, t := range all {
			if t.kind != k {
				continue
			}
			row.Tabs++
			row.Cut += min(1, t.seen.Cuts)
			row.Moves += len(t.seen.Outages)
			row.Reloads += max(0, t.seen.Loads-1)
			if t.found() != "" {
				row.Lost++
			}
			times = append(times, t.outages()...)
		}
		if row.Times = browser.TimesOf(times); row.Tabs > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// chooseKinds are the kinds that the words name: all when there are none.
func chooseKinds(names []string) ([]kind, error) {
	if len(names) == 0 {
		return kinds, nil
	}
	var chosen []kind
	for _, k := range kinds {
		short := cmp.Or(map[bool]string{true: "longpoll"}[k.longPoll], "websocket")
		if k.hidden {
			short = "hidden"
		}
		if k.proxied {
			short += "-nginx"
		}
		if k.busy {
			short += "-busy"
		}
		if slices.Contains(names, short) {
			chosen = append(chosen, k)
		}
	}
	if len(chosen) != len(names) {
		return nil, fmt.Errorf("-kinds %s: choose from websocket, hidden, longpoll, each also with -nginx or -busy", strings.Join(names, " "))
	}
	return chosen, nil
}
