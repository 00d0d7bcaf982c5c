package report_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// browser is Chromium's program. `make test-operator` installs it and sets BROWSER_NEEDED, so that there a missing one is
// a failure.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("BROWSER_NEEDED") != "" {
		t.Fatal("no Chromium: hack/deps browser installs it")
	}
	t.Skip("no Chromium on this machine: hack/deps browser installs it")
	return ""
}

// chromium runs the browser and returns its standard output.
func chromium(t *testing.T, args ...string) []byte {
	t.Helper()
	path := browser(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args = append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--virtual-time-budget=10000", "--user-data-dir=" + t.TempDir(),
	}, args...)
	command := exec.CommandContext(ctx, path, args...)
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, problems.Bytes())
	}
	return output
}

// darkMode makes the browser say that its user wants dark pages.
const darkMode = "--blink-settings=preferredColorScheme=0"

// measure is a page that holds the report in a frame as wide as a phone or a desk, and writes down what a reader would see.
const measure = `<!doctype html><body style="margin:0"><iframe src="/report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><script>
onload = () => {
  const d = document.querySelector('iframe').contentDocument, root = d.documentElement, seen = {errors: []};
  seen.width = root.clientWidth; seen.scroll = root.scrollWidth;
  const cost = d.querySelector('#costs table'), rows = [...cost.querySelectorAll('tbody tr')];
  seen.costBottom = cost.getBoundingClientRect().bottom;
  seen.firstBottom = rows[0].getBoundingClientRect().bottom;
  seen.columns = [...rows[0].querySelectorAll('td')].map(e => e.dataset.column);
  seen.bars = [...cost.querySelectorAll('td[data-column=Memory] .bar i')].map(e => Math.round(100 * e.getBoundingClientRect().width / e.parentElement.getBoundingClientRect().width));
  seen.amber = [...new Set([...d.querySelectorAll('td.untimed')].map(e => d.defaultView.getComputedStyle(e).backgroundColor))];
  seen.contents = [...d.querySelectorAll('nav a')].map(e => e.innerText);
  for (const e of d.querySelectorAll('nav a'))
    if (!d.querySelector(e.getAttribute('href'))) seen.errors.push('nothing is at ' + e.getAttribute('href'));
  seen.charts = d.querySelectorAll('figure svg:not(.latency)').length;
  seen.latencies = d.querySelectorAll('figure svg.latency').length;
  seen.lines = d.querySelectorAll('figure .trace').length;
  seen.verdicts = [...d.querySelectorAll('.runs .badge')].map(e => e.innerText);
  const rgb = text => (text.match(/[0-9.]+/g) || []).map(Number);
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgb(d.defaultView.getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const faint = new Set();
  for (const e of d.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = d.defaultView.getComputedStyle(e), ink = rgb(e.namespaceURI.endsWith('svg') ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(ink), light(behind(e).slice(0, 3))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.add(e.tagName + '.' + (e.getAttribute('class') || '') + ' ' + style.color);
  }
  for (const e of faint) seen.errors.push(e + ' is hard to read on what is behind it');
  for (const svg of d.querySelectorAll('figure svg')) {
    const frame = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label');
    for (const e of svg.querySelectorAll('.trace, text')) {
      const r = e.getBoundingClientRect();
      if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 1 || r.bottom > frame.bottom + 1)
        seen.errors.push(name + ': ' + (e.textContent || e.tagName) + ' is drawn outside of the chart');
      if (e.tagName === 'text' && parseFloat(d.defaultView.getComputedStyle(e).fontSize) * frame.width / 360 < 9)
        seen.errors.push(name + ': text of less than 9 px');
    }
    const ticks = [...svg.querySelectorAll('text.x')].map(e => e.getBoundingClientRect());
    for (let i = 1; i < ticks.length - 1; i++)
      if (ticks[i].left < ticks[i - 1].right) seen.errors.push(name + ': the times overlap');
  }
  const colours = new Set();
  for (const a of ['none', 'ets', 'browsermemory', 'redis', 'mnesia']) {
    const e = d.querySelector('.key .a-' + a + ' polyline');
    if (e) colours.add(d.defaultView.getComputedStyle(e).stroke);
  }
  seen.colours = colours.size;
  for (const e of d.querySelectorAll('body *')) {
    if (e.closest('.scroll') && !e.matches('.scroll')) continue;
    if (e.getBoundingClientRect().right > root.clientWidth + 1) { seen.errors.push(e.tagName + '.' + e.className + ' is wider than the page'); break; }
  }
  document.body.innerHTML = '<pre></pre>'; document.querySelector('pre').textContent = 'SEEN' + btoa(unescape(encodeURIComponent(JSON.stringify(seen)))) + 'SEEN';
};
</script>`

type seen struct {
	Width, Scroll, Charts, Lines, Latencies, Colours int
	CostBottom, FirstBottom                          float64
	Bars                                             []int
	Columns, Contents, Amber, Verdicts, Errors       []string
}

func look(t *testing.T, page, width string, dark bool) seen {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.Path {
		case "/":
			_, _ = io.WriteString(w, strings.ReplaceAll(measure, "WIDTH", width))
		case "/report.html":
			_, _ = io.WriteString(w, page)
		case "/favicon.ico":
			w.WriteHeader(http.StatusNotFound)
		default:
			t.Errorf("the page asked for %s", r.URL.Path)
		}
	}))
	defer server.Close()
	args := []string{"--window-size=1300,950", "--dump-dom", server.URL + "/"}
	if dark {
		args = append([]string{darkMode}, args...)
	}
	dom := chromium(t, args...)
	found := regexp.MustCompile(`SEEN([A-Za-z0-9+/=]+)SEEN`).FindSubmatch(dom)
	if found == nil {
		t.Fatalf("the browser measured nothing:\n%s", dom)
	}
	text, err := base64.StdEncoding.DecodeString(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	var s seen
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInABrowser(t *testing.T) {
	bound := mixed()
	clientBound(&bound.Runs[1])
	all := []string{"Which adapter", "Cost of 1,000\u00a0users", "Other loads", "Round trips", "Figures over time", "Beside the published figures", "Runs", "Where and what"}
	for _, test := range []struct {
		name, width              string
		dark                     bool
		report                   report.Report
		charts, lines, latencies int
		verdicts                 string
		amber                    int
	}{
		{"the published matrix on a phone", "390", false, example(report.MaxPoints, published...), 11 * 7, 11 * 35, 4 * 7, strings.Repeat("Passed ", 35), 0},
		{"the published matrix on a desk", "1280", true, example(report.MaxPoints, published...), 11 * 7, 11 * 35, 4 * 7, strings.Repeat("Passed ", 35), 0},
		{"runs of every verdict on a phone", "390", true, bound, 11 * 2, 11 * 8, 4 * 2, "Passed Errored Passed Failed Errored Passed Passed Passed Passed Not finished ", 1},
		{"runs of every verdict on a desk", "1280", false, bound, 11 * 2, 11 * 8, 4 * 2, "Passed Errored Passed Failed Errored Passed Passed Passed Passed Not finished ", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := look(t, html(test.report), test.width, test.dark)
			if s.Scroll > s.Width {
				t.Errorf("the page is %d px wide in a window of %d", s.Scroll, s.Width)
			}
			if s.Charts != test.charts || s.Lines != test.lines || s.Latencies != test.latencies {
				t.Errorf("%d charts with %d lines and %d of round trips, and there should be %d with %d, and %d", s.Charts, s.Lines, s.Latencies, test.charts, test.lines, test.latencies)
			}
			if s.Colours != 5 {
				t.Errorf("%d colours for five adapters", s.Colours)
			}
			if s.FirstBottom > 840 || test.width == "1280" && s.CostBottom > 840 {
				t.Errorf("the first screen does not show what it cost: the first adapter ends at %g px, the table at %g", s.FirstBottom, s.CostBottom)
			}
			if want := []string{"Memory", "CPU", "Network", "Round trip", "Recovered"}; !slices.Equal(s.Columns, want) {
				t.Errorf("the table has the columns %q", s.Columns)
			}
			if len(s.Bars) < 3 || slices.Max(s.Bars) != 100 || slices.Min(s.Bars) < 60 {
				t.Errorf("the bars are %v %% long", s.Bars)
			}
			if len(s.Amber) != test.amber {
				t.Errorf("times that do not count are %q", s.Amber)
			}
			if !slices.Equal(s.Contents, all) {
				t.Errorf("contents %q", s.Contents)
			}
			if got := strings.Join(s.Verdicts, " ") + " "; got != test.verdicts {
				t.Errorf("verdicts shown: %s", got)
			}
			for _, e := range s.Errors {
				t.Error(e)
			}
		})
	}
}

// SCREENSHOTS=DIR keeps what the browser drew, for eyes.
func TestPrinted(t *testing.T) {
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, r := range map[string]report.Report{"mixed": mixed(), "matrix": example(report.MaxPoints, published...)} {
		page := filepath.Join(dir, name+".html")
		if err := os.WriteFile(page, []byte(html(r)), 0o600); err != nil {
			t.Fatal(err)
		}
		pdf := filepath.Join(dir, name+".pdf")
		chromium(t, "--no-pdf-header-footer", "--print-to-pdf="+pdf, "file://"+page)
		printed, err := os.ReadFile(pdf)
		if err != nil {
			t.Fatal(err)
		}
		pages := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(printed, -1))
		if !bytes.HasPrefix(printed, []byte("%PDF")) || pages < 2 || pages > 40 {
			t.Errorf("%s: %d bytes, %d pages", name, len(printed), pages)
		}
		t.Logf("%s: %d pages", name, pages)
		if os.Getenv("SCREENSHOTS") != "" {
			pictures(t, dir, name, page)
		}
	}
}

// pictures are what the page looks like on a desk and on a phone, light and dark.
func pictures(t *testing.T, dir, name, page string) {
	t.Helper()
	// Chromium's window is never as narrow as a phone, a frame in it is.
	phone := filepath.Join(dir, name+"-phone.html")
	frame := `<!doctype html><body style="margin:0"><iframe src="` + filepath.Base(page) + `" style="border:0;width:390px;height:2600px"></iframe>`
	if err := os.WriteFile(phone, []byte(frame), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, picture := range []struct{ kind, file string }{{"desk", page}, {"phone", phone}} {
		size := map[string]string{"desk": "1280,2600", "phone": "500,2600"}[picture.kind]
		chromium(t, "--window-size="+size, "--screenshot="+filepath.Join(dir, name+"-"+picture.kind+".png"), "file://"+picture.file)
		chromium(t, "--window-size="+size, darkMode, "--screenshot="+filepath.Join(dir, name+"-"+picture.kind+"-dark.png"), "file://"+picture.file)
	}
}
