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

// measure is a page that holds the report in a frame as wide as a phone or a desk, and writes down what a reader would see.
const measure = `<!doctype html><body style="margin:0"><iframe src="/report.html" style="border:0;width:WIDTHpx;height:900px"></iframe><script>
onload = () => {
  const d = document.querySelector('iframe').contentDocument, root = d.documentElement, seen = {errors: []};
  seen.width = root.clientWidth; seen.scroll = root.scrollWidth;
  seen.lead = d.querySelector('.lead').innerText;
  seen.leadBottom = d.querySelector('.lead').getBoundingClientRect().bottom;
  seen.charts = d.querySelectorAll('figure svg').length;
  seen.lines = d.querySelectorAll('figure polyline').length;
  seen.verdicts = [...d.querySelectorAll('.runs .badge')].map(e => e.innerText);
  for (const svg of d.querySelectorAll('figure svg')) {
    const frame = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label');
    for (const e of svg.querySelectorAll('polyline, text')) {
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
	Width, Scroll, Charts, Lines, Colours int
	Lead                                  string
	LeadBottom                            float64
	Verdicts, Errors                      []string
}

func look(t *testing.T, page string, width string) seen {
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
	dom := chromium(t, "--window-size=1300,950", "--dump-dom", server.URL+"/")
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
	for _, test := range []struct {
		name, width   string
		report        report.Report
		charts, lines int
		verdicts      string
	}{
		{"the published matrix on a phone", "390", example(report.MaxPoints, published...), 9 * 7, 9 * 35, strings.Repeat("Passed ", 35)},
		{"the published matrix on a desk", "1280", example(report.MaxPoints, published...), 9 * 7, 9 * 35, strings.Repeat("Passed ", 35)},
		{"runs of every verdict on a phone", "390", mixed(), 9 * 2, 9 * 8, "Passed Passed Passed Failed Errored Passed Passed Passed Passed Not finished "},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := look(t, html(test.report), test.width)
			if s.Scroll > s.Width {
				t.Errorf("the page is %d px wide in a window of %d", s.Scroll, s.Width)
			}
			if s.Charts != test.charts || s.Lines != test.lines {
				t.Errorf("%d charts with %d lines, and there should be %d with %d", s.Charts, s.Lines, test.charts, test.lines)
			}
			if s.Colours != 5 {
				t.Errorf("%d colours for five adapters", s.Colours)
			}
			if !strings.Contains(s.Lead, "cost") || s.LeadBottom > 900 {
				t.Errorf("the first paragraph ends at %g px: %s", s.LeadBottom, s.Lead)
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
			chromium(t, "--window-size=1280,2600", "--screenshot="+filepath.Join(dir, name+"-desk.png"), "file://"+page)
			chromium(t, "--window-size=1280,2600", "--force-dark-mode", "--blink-settings=preferredColorScheme=0", "--screenshot="+filepath.Join(dir, name+"-dark.png"), "file://"+page)
		}
	}
}
