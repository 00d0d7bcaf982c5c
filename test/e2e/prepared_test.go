package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/chromium"
	"github.com/livestash-dev/livestash/test/internal/tour"
)

// An application as `mix phx.new` makes it, changed by nothing but the steps of docs/how-to/prepare-your-app.md (test/prepare), keeps
// the state of a visitor through a deploy, with every adapter. Its image is not built here: that takes packages from hex.
func TestPreparedApp(t *testing.T) {
	archive := filepath.Join(repository(), ".cache", "dist", "livestash-prepared-app.tar")
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("there is no %s: CONTRIBUTING.md says how to build it", archive)
	}
	if _, err := chromium.Program(); err != nil {
		t.Skip(err)
	}
	for _, adapter := range []string{"ETS", "BrowserMemory", "Mnesia", "Redis"} {
		t.Run(adapter, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, "prepared-"+strings.ToLower(adapter))
			image := fmt.Sprintf("%s/livestash-prepared-app:%s", registry, version)
			s.must(fmt.Sprintf("apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: shop}\nspec:\n"+
				"  image: %s\n  adapter: %s\n  replicas: 2\n  http: {host: localhost, readinessPath: /healthz}", image, adapter), "apply", "-f", "-")
			s.settled()
			s.eventually(time.Minute, func() error {
				nodes, err := s.kubectl("", "exec", "statefulset/shop", "-c", "app", "--", "bin/my_app", "rpc", "IO.inspect(Node.list())")
				if err == nil && !strings.Contains(nodes, "@shop-") {
					err = fmt.Errorf("the node knows %s", nodes)
				}
				return err
			})

			address, closed, err := tour.OpenFleet(context.Background(), plugin(), s.name, "shop")
			if err != nil {
				t.Fatal(err)
			}
			defer closed()
			v := s.visit(strings.Replace(address, "127.0.0.1", "http://localhost", 1) + "/counter")
			for i := range 3 {
				v.click()
				v.shows(i + 1)
			}
			s.must("", "rollout", "restart", "statefulset/shop")
			s.settled()
			v.shows(3)
			v.click()
			v.shows(4)
			if mark := v.value("window.mark"); mark != "here since the first click" {
				t.Errorf("the page was loaded anew: its mark is %q", mark)
			}
		})
	}
}

// counterPage is a real browser with the page of the counter.
type counterPage struct {
	space
	tab *chromium.Tab
}

func (s space) visit(address string) counterPage {
	s.t.Helper()
	browser, err := chromium.Start(nil, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := browser.Close(); err != nil {
			s.t.Error(err)
		}
	})
	tab, err := browser.Open(s.t.Context(), address, "")
	if err != nil {
		s.t.Fatal(err)
	}
	v := counterPage{s, tab}
	v.shows(0)
	v.value(`window.mark = "here since the first click"`)
	return v
}

func (v counterPage) value(expression string) string {
	v.t.Helper()
	var value string
	if err := v.tab.Evaluate(v.t.Context(), expression, &value); err != nil {
		v.t.Fatal(err)
	}
	return value
}

func (v counterPage) click() {
	v.t.Helper()
	v.value(`document.querySelector("[phx-click=increment]").click(), ""`)
}

// shows waits until the page has its socket and this count.
func (v counterPage) shows(count int) {
	v.t.Helper()
	v.eventually(time.Minute, func() error {
		var says string
		err := v.tab.Evaluate(v.t.Context(), `[document.querySelector("[data-phx-main]").className, document.querySelector("[phx-click=increment]").innerText].join(" ")`, &says)
		if err == nil && (!strings.Contains(says, "phx-connected") || !strings.HasSuffix(says, fmt.Sprintf(" %d", count))) {
			err = fmt.Errorf("the page is %q, not connected with %d", says, count)
		}
		return err
	})
}
