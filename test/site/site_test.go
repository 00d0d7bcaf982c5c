// Package site tries the site of the documentation, which `make docs` builds, in a real browser.
package site

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/chromium"
)

const (
	// within bounds whatever a page does.
	within = 20 * time.Second
	looks  = 20 * time.Millisecond

	wide, high          = 1400, 900
	phoneWide, phoneTop = 360, 740
	// contrast is the least between a text and what is behind it, by WCAG 2, level AA.
	contrast = 4.5
	// fields is the page of the fields of a LiveStashCluster.
	fields = "docs/reference/livestashcluster/"
)

// reader is somebody who reads the site in a browser.
type reader struct {
	t       *testing.T
	tab     *chromium.Tab
	address string

	mu sync.Mutex
	// wrong is what no page may do.
	wrong []string
}

// newReader opens a browser with nothing in it. It can reach the site, and nothing else.
func newReader(t *testing.T) *reader {
	t.Helper()
	folder := os.Getenv("SITE")
	if folder == "" {
		t.Skip("SITE does not name the folder of a site: make test-docs builds it")
	}
	if _, err := chromium.Program(); err != nil {
		if os.Getenv("BROWSER_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	browser, err := chromium.Start(nil, "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := browser.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &reader{t: t, address: server.URL + "/"}
	r.do(func(ctx context.Context) (err error) {
		r.tab, err = browser.Blank(ctx)
		if err != nil {
			return err
		}
		return r.tab.Listen(ctx, r.hear)
	})
	r.resize(wide, high)
	return r
}

// hear notes what is wrong with a page: errors of its scripts or in its console, and requests that leave the site or fail.
func (r *reader) hear(event string, details json.RawMessage) {
	var told struct {
		Type  string `json:"type"`
		Level string `json:"level"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Response struct {
			URL    string `json:"url"`
			Status int    `json:"status"`
		} `json:"response"`
	}
	if err := json.Unmarshal(details, &told); err != nil {
		r.note("%s cannot be read: %v", event, err)
		return
	}
	switch event {
	case "Network.requestWillBeSent":
		if !strings.HasPrefix(told.Request.URL, r.address) && !strings.HasPrefix(told.Request.URL, "data:") {
			r.note("it asks for %s, which is elsewhere", told.Request.URL)
		}
	case "Network.responseReceived":
		if told.Response.Status >= http.StatusBadRequest {
			r.note("%s is answered with %d", told.Response.URL, told.Response.Status)
		}
	case "Runtime.exceptionThrown":
		r.note("a script fails: %s", details)
	case "Runtime.consoleAPICalled":
		if told.Type == "error" || told.Type == "warning" || told.Type == "assert" {
			r.note("the console says: %s", details)
		}
	case "Log.entryAdded":
		if told.Entry.Level == "error" || told.Entry.Level == "warning" {
			r.note("the browser says: %s %s", told.Entry.Text, told.Entry.URL)
		}
	}
}

func (r *reader) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// nothingWrong fails the test for what was noted since it was asked last.
func (r *reader) nothingWrong(where string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, wrong := range r.wrong {
		r.t.Errorf("%s: %s", where, wrong)
	}
	r.wrong = nil
}

func (r *reader) do(what func(ctx context.Context) error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), within)
	defer cancel()
	if err := what(ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) resize(width, height int) {
	r.t.Helper()
	r.do(func(ctx context.Context) error { return r.tab.Resize(ctx, width, height) })
}

func (r *reader) prefer(scheme string) {
	r.t.Helper()
	r.do(func(ctx context.Context) error { return r.tab.Prefer(ctx, scheme) })
}

// open opens a page of the site, and waits until its scripts have run.
func (r *reader) open(page string) {
	r.t.Helper()
	r.do(func(ctx context.Context) error { return r.tab.Load(ctx, r.address+page) })
	r.until(`document.readyState == "complete" && location.href.startsWith(` + quoted(r.address+strings.Split(page, "#")[0]) + `)`)
}

// until waits until an expression is true in the page.
func (r *reader) until(expression string) {
	r.t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < within; time.Sleep(looks) {
		ctx, cancel := context.WithTimeout(r.t.Context(), within)
		is := false
		err = r.tab.Evaluate(ctx, expression, &is)
		cancel()
		if err == nil && is {
			return
		}
	}
	r.t.Fatalf("not within %s: %s (%v)", within, expression, err)
}

// see is the value of an expression in the page.
func see[T any](r *reader, expression string) (value T) {
	r.t.Helper()
	r.do(func(ctx context.Context) error { return r.tab.Evaluate(ctx, expression, &value) })
	return value
}

func quoted(text string) string {
	raw, _ := json.Marshal(text) //nolint:errchkjson // a string can always be written
	return string(raw)
}

// visible is an expression: whether an element is there and can be seen.
func visible(selector string) string {
	return fmt.Sprintf(`(e => { if (!e) return false; const b = e.getBoundingClientRect(); const s = getComputedStyle(e);
		return b.width > 0 && b.height > 0 && b.right > 0 && b.left < innerWidth && s.visibility == "visible" && s.opacity > 0.9 })(document.querySelector(%s))`, quoted(selector))
}

// every is every page of the site.
func every(t *testing.T) []string {
	t.Helper()
	folder := os.Getenv("SITE")
	var found []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "index.html" {
			name, relErr := filepath.Rel(folder, filepath.Dir(path))
			err = relErr
			found = append(found, strings.TrimPrefix(filepath.ToSlash(name)+"/", "./"))
		}
		return err
	})
	if err != nil || len(found) < 50 {
		t.Fatalf("the site has %d pages, %v", len(found), err)
	}
	return found
}

// Every page loads with all its pictures, asks nobody else for anything, has nothing to complain of, and fits a phone and a desktop
// without being wider than the window.
func TestEveryPage(t *testing.T) {
	r := newReader(t)
	for _, page := range every(t) {
		r.open(page)
		r.until(`[...document.images].every(i => i.complete && (i.naturalWidth > 0 || i.loading == "lazy"))`)
		for _, width := range []int{phoneWide, wide} {
			r.resize(width, phoneTop)
			r.until(fmt.Sprintf("innerWidth == %d", width))
			if over := see[int](r, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("%s: it is %d pixels wider than a window of %d", page, over, width)
			}
		}
		if heading := see[string](r, `(document.querySelector("article h1") || {innerText: ""}).innerText`); heading == "" {
			t.Errorf("%s: it has no heading", page)
		}
		r.nothingWrong("/" + page)
	}
}

// ratio is the contrast between the text of an element and what is behind it, by WCAG 2.
func (r *reader) ratio(selector string) float64 {
	r.t.Helper()
	return see[float64](r, fmt.Sprintf(`(e => {
		const parse = c => c.match(/[\d.]+/g).map(Number);
		const over = (top, below) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)) };
		const layers = [];
		for (let n = e; n; n = n.parentElement) layers.unshift(parse(getComputedStyle(n).backgroundColor));
		const back = layers.reduce((below, top) => over(top, below), [255, 255, 255]);
		const light = c => { const [x, y, z] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * x + 0.7152 * y + 0.0722 * z };
		const both = [light(over(parse(getComputedStyle(e).color), back)), light(back)].sort((a, b) => b - a);
		return (both[0] + 0.05) / (both[1] + 0.05);
	})(document.querySelector(%s))`, quoted(selector)))
}

// The site is light or dark as the user likes it, can be switched, and stays so on the next page. Either way it can be read.
func TestLightAndDark(t *testing.T) {
	const scheme = `document.body.getAttribute("data-md-color-scheme")`
	names := map[string]string{"light": "default", "dark": "slate"}
	for liked, other := range map[string]string{"light": "dark", "dark": "light"} {
		t.Run(liked, func(t *testing.T) {
			r := newReader(t)
			readable := func() {
				t.Helper()
				for _, selector := range []string{"article h1", "article h2", "article p", "article a[href]:not(.headerlink)", "article td", "article code", ".md-nav__link[href]"} {
					if ratio := r.ratio(selector); ratio < contrast {
						t.Errorf("%s: %s has a contrast of %.1f, want %.1f", see[string](r, scheme), selector, ratio, contrast)
					}
				}
			}
			r.prefer(liked)
			r.open("docs/quickstart/")
			r.until(scheme + " == " + quoted(names[liked]))
			readable()
			r.until(visible(".md-header label[for^=__palette]:not([hidden])"))
			r.until(`(document.querySelector(".md-header label[for^=__palette]:not([hidden])").click(), true)`)
			r.until(scheme + " == " + quoted(names[other]))
			readable()
			r.open("docs/concepts/")
			r.until(scheme + " == " + quoted(names[other]))
			r.nothingWrong(liked)
		})
	}
}

// Who searches for a field, or for what happened, finds the page about it.
func TestSearch(t *testing.T) {
	r := newReader(t)
	for query, want := range map[string]string{
		"spec.shadow.interval": fields,
		"shadow interval":      fields,
		"check_origin":         "docs/how-to/prepare-your-app/",
		"sticky sessions":      "docs/how-to/ingress/",
		"OOMKilled":            "docs/how-to/crash-dumps/", // it stands in brackets there
	} {
		r.open("docs/concepts/")
		r.until(`(i => (i.focus(), document.activeElement == i))(document.querySelector("input[data-md-component=search-query]"))`)
		r.do(func(ctx context.Context) error { return r.tab.Type(ctx, query) })
		r.until(visible(".md-search-result__item a"))
		r.until(`/^\d+ matching/.test(document.querySelector(".md-search-result__meta").innerText)`)
		found := see[[]string](r, `[...document.querySelectorAll(".md-search-result__item > a")].slice(0, 8).map(a => a.href)`)
		hit := false
		for _, address := range found {
			path, err := url.Parse(address)
			hit = hit || err == nil && strings.HasPrefix(strings.TrimPrefix(path.Path, "/"), want)
		}
		if !hit {
			t.Errorf("%q: %s is not among the first results: %q", query, want, found)
		}
		r.until(`(document.querySelector(".md-search-result__item > a").click(), true)`)
		r.until(`location.href.split(/[?#]/)[0] == ` + quoted(strings.FieldsFunc(found[0], func(r rune) bool { return r == '?' || r == '#' })[0]))
		r.nothingWrong(query)
	}
}

// On a phone the menu is behind a button, and leads to every part.
func TestMenuOfAPhone(t *testing.T) {
	r := newReader(t)
	r.resize(phoneWide, phoneTop)
	r.open("")
	const drawer = ".md-sidebar--primary"
	if see[bool](r, visible(drawer)) {
		t.Error("the menu covers the page before anybody has asked for it")
	}
	r.until(visible("label.md-header__button[for=__drawer]"))
	r.until(`(document.querySelector("label.md-header__button[for=__drawer]").click(), true)`)
	r.until(visible(drawer))
	link := `[...document.querySelectorAll(".md-nav--primary a.md-nav__link")].find(a => /\/docs\/how-to\/ingress\/$/.test(a.href))`
	// Its part of the menu has to be opened first.
	r.until(`(l => { const box = l.closest("nav").parentElement.querySelector("input.md-nav__toggle"); if (!box.checked) box.parentElement.querySelector("label.md-nav__link").click(); return box.checked })(` + link + `)`)
	r.until(`(l => { const b = l.getBoundingClientRect(); const e = document.elementFromPoint(b.left + b.width / 2, b.top + b.height / 2); return e && l.contains(e) })((` + link + `))`)
	r.until(`(` + link + `.click(), true)`)
	r.until(`location.pathname == "/docs/how-to/ingress/" && document.querySelector("h1").innerText.startsWith("Ingress")`)
	r.until("!(" + visible(drawer) + ")")
	r.nothingWrong("the menu")
}

// A field is found under its path, on top of the window, and what the page says of itself can be copied from there.
func TestFieldsHaveAddresses(t *testing.T) {
	r := newReader(t)
	for _, field := range []string{"spec.shadow.interval", "spec.redis.managed.tls.enabled", "status.rollouts.handedOver"} {
		r.open("") // so that the page is loaded anew
		r.open(fields + "#" + field)
		element := "document.getElementById(" + quoted(field) + ")"
		r.until(element + ` && /^H[2-6]$/.test(` + element + `.tagName)`)
		r.until(`(b => b.top >= 0 && b.bottom < innerHeight / 2)(` + element + `.getBoundingClientRect())`)
		if link := see[string](r, element+`.querySelector("a.headerlink").getAttribute("href")`); link != "#"+field {
			t.Errorf("the heading of %s leads to %s", field, link)
		}
		r.nothingWrong(field)
	}
	if twice := see[[]string](r, `[...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) != i)`); len(twice) > 0 {
		t.Errorf("ids that two elements have: %q", twice)
	}
}
