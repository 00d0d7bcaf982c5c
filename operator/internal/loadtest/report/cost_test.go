package report_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// rowOf is the text of an adapter's row in the first cost table.
func rowOf(t *testing.T, r report.Report, adapter string) string {
	t.Helper()
	for row := range strings.SplitSeq(section(strings.ReplaceAll(breakable(r), "<tr ", "\x00<tr "), "costs"), "\x00") {
		if row = strings.TrimSpace(row); strings.HasPrefix(row, adapter) {
			return row
		}
	}
	t.Fatalf("the cost table has no row for %s", adapter)
	return ""
}

func TestCostTable(t *testing.T) {
	r := example(20, [2]int{1000, 60})
	for adapter, want := range map[string]string{
		"None": "None 121 MB pods 156 MB 21 s pods 22.9 s 47.9 MB 17.4 ms –",
		"ETS":  "ETS 125 MB +3.83 MB (3 %) pods 160 MB 21.8 s +0.84 s (4 %) pods 23.8 s 87.6 MB +39.7 MB (83 %) 19.6 ms +2.12 ms (12 %) 100 % 1,000 of 1,000",
	} {
		if got := rowOf(t, r, adapter); !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	page := html(r)
	costs := section(breakable(r), "costs")
	for _, want := range []string{"1,000 users, TTL 1 min", "over None", "Redis itself is another server"} {
		if !strings.Contains(costs, want) {
			t.Errorf("%q is not in: %s", want, costs)
		}
	}
	// The longest bar of each column is whole, and no bar is longer.
	widths := regexp.MustCompile(`<i style="width:([0-9.]+)%">`).FindAllStringSubmatch(page, -1)
	if len(widths) != 5*5-1 || strings.Count(page, `width:100%"`) < 5 {
		t.Errorf("bars: %v", widths)
	}
}

// Peaks and totals of a part of a run look like those of a whole one, so they are neither shown nor compared.
func TestWhatWasSampledInPart(t *testing.T) {
	r, seconds := example(20, [2]int{1000, 60}), 20.0
	before := string(report.Markdown(r))
	for i := range r.Runs {
		if r.Runs[i].Adapter == "ETS" {
			r.Runs[i].SampledSeconds = &seconds
		}
	}
	if got := rowOf(t, r, "ETS"); !strings.HasPrefix(got, "ETS – – – 19.6 ms") {
		t.Errorf("the costs of a part are told: %s", got)
	}
	if got := rowOf(t, r, "None"); !strings.HasPrefix(got, "None 121 MB") {
		t.Errorf("the others' are not: %s", got)
	}
	if text := string(report.Markdown(r)); !strings.Contains(before, "125 MB") || strings.Contains(text, "125 MB") {
		t.Errorf("Markdown tells a peak that nobody knows: %s", text)
	}
	if c := report.Compare(r, example(20, [2]int{1000, 60}), "main-report", map[string]float64{"memory": 1}); c.Verdict != report.VerdictErrored {
		t.Errorf("a part was compared with a whole: %+v", c)
	}
}

func TestCostTableOfWhatIsNotThere(t *testing.T) {
	r := example(20, [2]int{1000, 60})
	r.Runs = r.Runs[1:]
	if got := rowOf(t, r, "ETS"); strings.Contains(got, "+") {
		t.Errorf("compares with nothing: %s", got)
	}
	if page := html(r); strings.Contains(page, `id="thousand"`) {
		t.Error("without a baseline nobody knows what 1,000 users cost")
	}
	if got := rowOf(t, mixed(), "Mnesia"); !strings.HasPrefix(got, "Mnesia Errored no sound run: Errored") {
		t.Error(got)
	}
	if got := rowOf(t, mixed(), "Redis"); !strings.Contains(got, "Redis Failed") || !strings.Contains(got, "91.2 % 912 of 1,000") {
		t.Error(got)
	}
	r = example(0, [2]int{1000, 60})
	for i := range r.Runs {
		r.Runs[i].Samples = nil
	}
	if got := rowOf(t, r, "ETS"); !strings.HasPrefix(got, "ETS – – – 19.6 ms") {
		t.Error(got)
	}
	r.Runs = nil
	if page := html(r); strings.Contains(page, `id="costs"`) {
		t.Error("a report without runs has a cost table")
	}
}

// Times that say nothing about the fleet are amber, and compared with nothing.
func TestAmber(t *testing.T) {
	amber := regexp.MustCompile(`<td class="l untimed" data-column="Round trip">`)
	r := example(20, [2]int{1000, 60})
	clientBound(&r.Runs[1])
	if n := len(amber.FindAllString(html(r), -1)); n != 1 || !strings.Contains(rowOf(t, r, "ETS"), "19.6 ms client too slow 100 %") {
		t.Errorf("%d amber times, %s", n, rowOf(t, r, "ETS"))
	}
	bands := regexp.MustCompile(`<g class="line a-ets"><path class="band"`)
	if bands.MatchString(html(r)) || !bands.MatchString(html(example(20, [2]int{1000, 60}))) || !strings.Contains(breakable(r), "Not shown: ETS (the client was the bottleneck).") {
		t.Error("times that do not count are drawn")
	}
	slow := example(20, [2]int{1000, 60})
	d := slow.Runs[0].Durations["reconnect"]
	d.P95 = 4450
	slow.Runs[0].Durations["reconnect"] = d
	if n := len(amber.FindAllString(html(slow), -1)); n != 5 || !strings.Contains(section(breakable(slow), "costs"), "without LiveStash a return took 4,450 ms") {
		t.Errorf("%d amber times", n)
	}
	if n := len(amber.FindAllString(html(example(20, [2]int{1000, 60})), -1)); n != 0 {
		t.Errorf("%d amber times in a report whose times count", n)
	}
}

func TestCostOfThousandUsers(t *testing.T) {
	got := section(breakable(example(20, [2]int{25000, 300})), "thousand")
	for _, want := range []string{"None 34.5 MB 0.117 cores 266 kB/s", "ETS +3.83 MB +0.005 cores +221 kB/s", "BrowserMemory as None"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in: %s", want, got)
		}
	}
}

// Whiskers are drawn where several runs say how sure a time is.
func TestLatencyIntervals(t *testing.T) {
	for rounds, want := range map[int]string{
		1: "One run each, so nothing says",
		3: "Whiskers: the lowest and the highest p95 of up to 3 runs.",
		6: "Whiskers: the 95 % interval of the p95, from 6 runs at least.",
	} {
		var r report.Report
		for round := range rounds {
			of := example(20, [2]int{1000, 60})
			for i := range of.Runs {
				run := &of.Runs[i]
				run.Name, run.Round = fmt.Sprintf("%s-%d", run.Name, round), round+1
				run.Durations = durations(4+float64(round)/10, 1000)
			}
			r.Runs = append(r.Runs, of.Runs...)
		}
		text := section(breakable(r), "trips")
		whiskers := strings.Count(html(r), `class="whisker"`)
		if !strings.Contains(text, want) || (rounds > 1) != (whiskers == 4*5) || rounds == 1 && whiskers != 0 {
			t.Errorf("%d rounds: %d whiskers, %s", rounds, whiskers, text)
		}
	}
}

// One line says on what, with what and when.
func TestHead(t *testing.T) {
	r := mixed()
	r.Machine.Nodes = append(r.Machine.Nodes, report.Node{Name: "node-2", CPU: 8, Memory: 32 << 30}, report.Node{Name: "small", CPU: 1, Memory: 2e9})
	head, _, _ := strings.Cut(breakable(r), "</header>")
	for _, want := range []string{
		"20 November 2026, 09:30 UTC to 11:05 UTC", "2 nodes of 8 CPUs and 34.4 GB each and 1 node of 1 CPU and 2 GB",
		"LiveStash operator 0.1.0, Kubernetes v1.36.3, livestash-workload-phoenix:0.1.0, livestash-k6:0.1.0",
	} {
		if !strings.Contains(head, want) {
			t.Errorf("%q is not in: %s", want, head)
		}
	}
}
