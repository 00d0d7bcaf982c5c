package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

func html(r report.Report) string { return string(report.HTML(r)) }

// breakable is a page as html has it, with ordinary spaces before the units.
func breakable(r report.Report) string { return strings.ReplaceAll(html(r), "\u00a0", " ") }

// section is the text of a section of a page, without its tags.
func section(page, id string) string {
	_, rest, _ := strings.Cut(page, `<section id="`+id+`"`)
	text, _, _ := strings.Cut(rest, "</section>")
	_, text, _ = strings.Cut(text, ">")
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " ")), " ")
}

func TestGolden(t *testing.T) {
	_, body, _ := strings.Cut(html(mixed()), "<body>")
	for name, got := range map[string]string{
		"report.md": string(report.Markdown(mixed())),
		// Without the style: it changes often, and only eyes can judge it.
		"report.html": body,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got); look at the difference, then run the test with -update:\n%s", file, diff)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	first := func(r report.Report) string {
		return section(breakable(r), "which")
	}
	all := example(20, [2]int{1000, 60})

	t.Run("every adapter against the baseline", func(t *testing.T) {
		got := first(all)
		for _, want := range []string{
			"With 1,000 users and a TTL of 1 min, the fleet without LiveStash (None) took", "ETS cost", "(4 %) more CPU time", "between the nodes",
			"BrowserMemory cost about the same memory", "to and from Redis", "Mnesia cost", "differences of a few percent mean nothing",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in: %s", want, got)
			}
		}
	})
	t.Run("no baseline", func(t *testing.T) {
		r := all
		r.Runs = r.Runs[1:]
		if got := first(r); !strings.Contains(got, "no sound run without LiveStash") || strings.Contains(got, "more") {
			t.Errorf("compares with nothing: %s", got)
		}
	})
	t.Run("an errored run is not compared", func(t *testing.T) {
		r := mixed()
		if got := first(r); strings.Contains(got, "Mnesia") || !strings.Contains(got, "Redis cost") {
			t.Errorf("Mnesia errored, Redis only failed: %s", got)
		}
	})
	t.Run("times of machines that had no time left are not compared", func(t *testing.T) {
		r := example(20, [2]int{1000, 60})
		d := r.Runs[0].Durations["reconnect"]
		d.P95 = 4450
		r.Runs[0].Durations["reconnect"] = d
		got := first(r)
		if !strings.Contains(got, "Times are not compared: 4,450 ms for a return without LiveStash") || strings.Contains(got, "time for a return") {
			t.Errorf("compares waiting: %s", got)
		}
		if !strings.Contains(got, "(4 %) more CPU time") {
			t.Errorf("CPU time does not depend on waiting: %s", got)
		}
	})
	t.Run("times of a client that was the bottleneck are not compared", func(t *testing.T) {
		r := example(20, [2]int{1000, 60})
		clientBound(&r.Runs[1])
		page := breakable(r)
		got, _, _ := strings.Cut(first(r), "BrowserMemory cost")
		if !strings.Contains(got, "ETS cost") || !strings.Contains(got, "(4 %) more CPU time") || strings.Contains(got, "time for a return") {
			t.Errorf("of ETS memory, CPU and bytes are known, and no times: %s", got)
		}
		if !strings.Contains(page, "In 1 of 5 runs the client was the bottleneck") || strings.Count(page, `<tr class="untimed">`) != 1 || !strings.Contains(page, "the client late by 340 ms (p99)") {
			t.Errorf("the page does not say that the times of ETS say nothing: %s", page)
		}
		md := string(report.Markdown(r))
		if !strings.Contains(md, "not the fleet's: ") {
			t.Errorf("the Markdown does not say that the times of ETS say nothing: %s", md)
		}
		published := example(20, [2]int{25000, 300})
		clientBound(&published.Runs[1])
		if md := string(report.Markdown(published)); !strings.Contains(md, "| Stash, p50 | 1.64 ms (2.12 ms) | – (2.8 ms) | 1.72 ms (2.84 ms) |") {
			t.Errorf("the times of ETS are compared with those that were published: %s", md)
		}
	})
	t.Run("rounds", func(t *testing.T) {
		// CPU time grows by 4 % with ETS. What varies from run to run by more than that hides it.
		rounds := func(n int, spread float64) string {
			var r report.Report
			for round := range n {
				of := example(20, [2]int{1000, 60})
				for i := range of.Runs[:2] {
					run := &of.Runs[i]
					run.Name, run.Round = fmt.Sprintf("%s-%d", run.Name, round), round+1
					cpu := run.Samples[report.SeriesCPU]
					total := *cpu.Total * (1 + spread*float64(round%3-1))
					cpu.Total = &total
					run.Samples[report.SeriesCPU] = cpu
				}
				r.Runs = append(r.Runs, of.Runs[:2]...)
			}
			return first(r)
		}
		for want, got := range map[string]string{
			"One run each":           rounds(1, 0),
			"Means of 3 runs":        rounds(3, 0.001),
			"(4 %) more CPU time":    rounds(6, 0.01),
			"about the same CPU":     rounds(6, 0.2),
			"Means of 6 runs at lea": rounds(6, 0.2),
		} {
			if !strings.Contains(got, want) || strings.Count(got, "ETS cost") != 1 {
				t.Errorf("%q is not in: %s", want, got)
			}
		}
	})
	t.Run("no samples", func(t *testing.T) {
		r := example(0, [2]int{1000, 60})
		for i := range r.Runs {
			r.Runs[i].Samples = nil
		}
		if got := first(r); !strings.Contains(got, "time for a return") || strings.Contains(got, "MB") {
			t.Errorf("without samples only times are known: %s", got)
		}
	})
	t.Run("nothing sound", func(t *testing.T) {
		r := all
		r.Runs = nil
		if got := first(r); !strings.Contains(got, "no sound run") {
			t.Errorf("promises figures: %s", got)
		}
	})
	t.Run("nothing known of sound runs", func(t *testing.T) {
		r := report.Report{Runs: []report.Run{{Adapter: "None", Users: 1, TTLSeconds: 60, Verdict: "Passed"}, {Adapter: "ETS", Users: 1, TTLSeconds: 60, Verdict: "Passed"}}}
		if got := first(r); !strings.Contains(got, "an unknown amount") {
			t.Errorf("promises figures: %s", got)
		}
	})
}

// clientBound makes the client the bottleneck of a run.
func clientBound(run *report.Run) {
	late := 340.0
	run.Verdict, run.ClientBound, run.ClientDelay = report.VerdictErrored, true, &late
	run.Message = "The client was the bottleneck."
}

// Times count from when a step was to begin. What was published counts from when it began, and is compared with that.
func TestBothTimesWhereTheyDiffer(t *testing.T) {
	r := example(20, [2]int{25000, 300})
	r.Runs[0].Durations["stash"] = report.Duration{Count: 5000, P50: 7, P95: 6300, P99: 8100, Max: 9000}
	r.Runs[0].Durations["stash_service"] = report.Duration{Count: 5000, P50: 1.1, P95: 2.2, P99: 3.3, Max: 9000}
	md := string(report.Markdown(r))
	for _, want := range []string{"7 (1.1) / 6,300 (2.2) / 8,100 (3.3)", "| Stash, p99 | 3.3 ms ("} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in the Markdown: %s", want, md)
		}
	}
}

// Of 50 durations none is the p99.
func TestFewDurationsHaveNoP99(t *testing.T) {
	r := example(20, [2]int{50, 60})
	r.Runs[0].Durations["stash"] = report.Duration{Count: 50, P50: 1, P95: 2, P99: 9, P99AtLeast: 1.5, Max: 9}
	if md := string(report.Markdown(r)); !strings.Contains(md, "1 / 2 / ≥ 1.5") {
		t.Errorf("a p99 of 50 durations is claimed: %s", md)
	}
}

func TestUnsoundRunsAreShown(t *testing.T) {
	page, md := breakable(mixed()), string(report.Markdown(mixed()))
	for _, want := range []string{"no sound run: Errored", "no sound run: Not finished", "Not shown: Mnesia (errored).", "Dashed, because a threshold failed: Redis.", "912 of 1,000 (91.2 %)", "closed 3, timeout 11"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	for _, want := range []string{"| errored | errored | errored | errored |", "| Failed | Redis |", "1 of 10 runs errored", "1 of 10 runs failed a threshold", "1 of 10 runs not finished"} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in the Markdown", want)
		}
	}
	lines := strings.Count(page, `class="line a-mnesia`)
	keys := strings.Count(page, `class="key"`)
	if lines == 0 || lines > keys {
		t.Errorf("%d lines and keys of Mnesia among %d keys: both of its runs are not sound, so it may have keys in tables only", lines, keys)
	}
}

func TestEverythingIsEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=y> | **bold** [l](javascript:z)`
	r := example(3, [2]int{10, 10})
	fill(reflect.ValueOf(&r).Elem(), evil)
	// What decides what is drawn at all.
	for i := range r.Runs {
		r.Runs[i].Verdict = report.VerdictPassed
	}
	page := html(r)
	for _, tag := range []string{"<script", "<img"} {
		if strings.Contains(page, tag) {
			t.Errorf("%s is on the page", tag)
		}
	}
	_, body, _ := strings.Cut(page, "</head>")
	body, _, _ = strings.Cut(body, "</html>")
	decoder := xml.NewDecoder(strings.NewReader(body))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, []string{"br"}, xml.HTMLEntity
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		for _, attribute := range element.Attr {
			if ok && strings.HasPrefix(attribute.Name.Local, "on") {
				t.Errorf("an attribute %s on the page", attribute.Name.Local)
			}
		}
	}
	md := string(report.Markdown(r))
	for _, raw := range []string{"<script", "> | **", "*bold*", "[l](j"} {
		if strings.Contains(md, raw) {
			t.Errorf("%q is in the Markdown", raw)
		}
	}
}

// fill sets every string of a value.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf(map[string]string{text: text}))
		}
	default:
	}
}

func TestSelfContained(t *testing.T) {
	page := html(example(20, published...))
	// The only address is the source of the published figures, as a link for people.
	for _, found := range regexp.MustCompile(`(?:src|href|url|@import)\s*[=(]?\s*["']?([^"'\s)>]+)`).FindAllString(page, -1) {
		if !strings.Contains(found, report.SourceURL) && !strings.HasPrefix(found, `href="#`) {
			t.Errorf("the page refers to something outside of it: %s", found)
		}
	}
}

func TestFilesFit(t *testing.T) {
	whole := example(report.MaxPoints, published...)
	files, err := report.Files(whole, report.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, text := range files {
		t.Logf("%s: %d KiB", name, len(text)>>10)
		size += len(text)
	}
	if size > report.MaxBytes {
		t.Errorf("%d bytes, and %d are allowed", size, report.MaxBytes)
	}
	var back report.Report
	if err := json.Unmarshal([]byte(files[report.FileJSON]), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Runs) != 35 || len(back.Runs[0].Samples[report.SeriesCPU].Points) != report.MaxPoints || back.Message != "" {
		t.Errorf("the whole published matrix must fit with all of its points: %d runs, %d points, %q",
			len(back.Runs), len(back.Runs[0].Samples[report.SeriesCPU].Points), back.Message)
	}
}

func TestFilesTooLarge(t *testing.T) {
	whole := example(report.MaxPoints, published...)
	files, err := report.Files(whole, 500<<10)
	if err != nil {
		t.Fatal(err)
	}
	size := len(files[report.FileJSON]) + len(files[report.FileMarkdown]) + len(files[report.FileHTML])
	var back report.Report
	if err := json.Unmarshal([]byte(files[report.FileJSON]), &back); err != nil {
		t.Fatal(err)
	}
	got := back.Runs[34].Samples[report.SeriesCPU]
	if size > 500<<10 || len(got.Points) == 0 || len(got.Points) > 30 || got.Peak != whole.Runs[34].Samples[report.SeriesCPU].Peak {
		t.Errorf("%d bytes, %d points, peak %g: fewer points, the same peak", size, len(got.Points), got.Peak)
	}
	for name, text := range files {
		if !strings.Contains(text, "To fit, the report keeps") {
			t.Errorf("%s does not say that points are missing", name)
		}
	}
	if len(whole.Runs[34].Samples[report.SeriesCPU].Points) != report.MaxPoints {
		t.Error("the report that was given was changed")
	}
	if _, err := report.Files(whole, 1000); !errors.Is(err, report.ErrTooLarge) {
		t.Errorf("a limit that nothing fits in: %v", err)
	}
}

// A controller reads the report back to add a run to it.
func TestFilesOfAReportThatWasReadBack(t *testing.T) {
	for _, limit := range []int{report.MaxBytes, 500 << 10} {
		r := example(report.MaxPoints, published...)
		r.Message = "One run was lost."
		first, err := report.Files(r, limit)
		if err != nil {
			t.Fatal(err)
		}
		var back report.Report
		if err := json.Unmarshal([]byte(first[report.FileJSON]), &back); err != nil {
			t.Fatal(err)
		}
		again, err := report.Files(back, limit)
		if err != nil || !cmp.Equal(first, again) {
			t.Errorf("limit %d: the files differ: %v", limit, err)
		}
		smaller, err := report.Files(back, 300<<10)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(smaller[report.FileJSON]), &back); err != nil {
			t.Fatal(err)
		}
		if strings.Count(back.Message, "To fit") != 1 || !strings.HasPrefix(back.Message, "One run was lost. To fit") {
			t.Errorf("limit %d, then less: %s", limit, back.Message)
		}
	}
}

func TestThin(t *testing.T) {
	var points [][2]float64
	for i := range 1000 {
		points = append(points, [2]float64{float64(i), float64(i % 7)})
	}
	points[555][1] = 99
	for _, n := range []int{1, 2, 7, 60} {
		got := report.Thin(points, n)
		peak := 0.0
		for i, p := range got {
			peak = max(peak, p[1])
			if i > 0 && p[0] <= got[i-1][0] {
				t.Errorf("%d points: not in order of time at %v", n, p)
			}
		}
		if len(got) != n || got[n-1] != points[999] || n > 1 && peak != 99 {
			t.Errorf("%d points: got %d, the last %v, the highest %g", n, len(got), got[n-1], peak)
		}
	}
	if got := report.Thin(points[:3], 60); !cmp.Equal(got, points[:3]) {
		t.Errorf("few points must stay as they are: %v", got)
	}
}

func TestRenderingIsPure(t *testing.T) {
	r := mixed()
	first, err := report.Files(r, report.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := report.Files(r, report.MaxBytes)
		if err != nil || !cmp.Equal(first, again) {
			t.Fatalf("the same report gives other files: %v", err)
		}
	}
	if diff := cmp.Diff(mixed(), r); diff != "" {
		t.Errorf("the report was changed: %s", diff)
	}
}

// Everything that can be left out, left out: the report of a benchmark that ended before its first run.
func TestEmpty(t *testing.T) {
	for _, r := range []report.Report{{}, {Runs: []report.Run{{}}}, {Verdict: report.VerdictErrored, Message: "The target does not exist."}} {
		page := html(r)
		if !strings.Contains(page, r.Message) || strings.Contains(page, "NaN") || bytes.Contains(report.Markdown(r), []byte("NaN")) {
			t.Errorf("an empty report: %s", page)
		}
	}
}
