package loadtest

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// every is each fifth second, from one to before another.
func every(from, to int) []int {
	var seconds []int
	for second := from; second < to; second += 5 {
		seconds = append(seconds, second)
	}
	return seconds
}

// hear adds what agents said at one moment.
func hear(r *Recorder, at time.Time, pods int, said map[string]agentclient.Metrics) {
	answers := map[string]Answer{}
	for pod, metrics := range said {
		answers[pod] = Answer{At: at, Metrics: metrics}
	}
	r.Add(pods, answers)
}

// An agent that answers a round of questions late has counted for longer. Its rate is what it was.
func TestRatesAreOverTheTimeBetweenAnswers(t *testing.T) {
	const rate = 1000.0
	r := NewRecorder(start)
	for _, answered := range []float64{0.1, 7, 10.2, 15, 23.5, 25} {
		at := start.Add(time.Duration(answered * float64(time.Second)))
		quick := at.Add(-time.Duration(answered/50) * time.Second)
		r.Add(2, map[string]Answer{
			"shop-0": {At: at, Metrics: agentclient.Metrics{HTTPIn: rate * answered}},
			"shop-1": {At: quick, Metrics: agentclient.Metrics{HTTPIn: rate * quick.Sub(start).Seconds()}},
		})
	}
	got := r.Series()[report.SeriesHTTPIn]
	if len(got.Points) != 5 || math.Abs(got.Peak-2*rate) > 1e-6 {
		t.Errorf("a steady %g bytes/s of two pods have a peak of %g: %v", rate, got.Peak, got.Points)
	}
	if at := got.Points[0][0]; math.Abs(at-7) > 1e-6 {
		t.Errorf("the first point is at %g s, want when the answer was there", at)
	}
}

// What the node pays is told by agents that see their control group. With one that does not, there is no sum.
func TestWhatSomeAgentsDoNotTell(t *testing.T) {
	r := NewRecorder(start)
	tells := func(memory, seconds float64) agentclient.Metrics {
		return agentclient.Metrics{Processes: 1, PodMemory: &memory, PodCPUSeconds: &seconds}
	}
	hear(r, after(0), 2, map[string]agentclient.Metrics{"shop-0": tells(100, 1), "shop-1": tells(50, 2)})
	hear(r, after(5), 2, map[string]agentclient.Metrics{"shop-0": tells(120, 6), "shop-1": tells(60, 7)})
	hear(r, after(10), 2, map[string]agentclient.Metrics{"shop-0": tells(900, 11), "shop-1": {Processes: 1}})
	hear(r, after(15), 2, map[string]agentclient.Metrics{"shop-0": tells(130, 16), "shop-1": tells(70, 17)})
	got := r.Series()
	if diff := cmp.Diff(report.Series{Unit: "bytes", Points: [][2]float64{{0, 150}, {5, 180}, {15, 200}}, Peak: 200}, got[report.SeriesPodMemory]); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	if used := got[report.SeriesPodCPU]; used.Unit != "cores" || used.Peak != 2 || len(used.Points) != 1 || used.Points[0][0] != 5 {
		t.Errorf("CPU: %+v", used)
	}
	if len(got[report.SeriesProcesses].Points) != 4 {
		t.Errorf("what all of them tell: %+v", got[report.SeriesProcesses])
	}
	// It is kept and read back.
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseRecorder(text); err != nil || !cmp.Equal(again.Series(), got) {
		t.Errorf("read back: %v", err)
	}
}

// What agents tell is that of the whole run only if all of them answered near its beginning and near its end. What they do not tell in between is
// in their next answers.
func TestSampledAsAWhole(t *testing.T) {
	one, both := map[string]agentclient.Metrics{"shop-0": {}}, map[string]agentclient.Metrics{"shop-0": {}, "shop-1": {}}
	for name, c := range map[string]struct {
		// at is when all answered, and alone when only one did.
		at, alone []int
		run       float64
		seconds   float64
		whole     bool
	}{
		"all of it":                      {at: every(0, 99), run: 100, seconds: 95, whole: true},
		"a short gap":                    {at: append(every(0, 40), every(70, 99)...), alone: every(40, 70), run: 100, seconds: 60, whole: true},
		"a long one":                     {at: append(every(0, 20), every(88, 99)...), alone: every(20, 88), run: 100, seconds: 25},
		"an agent that gave out":         {at: every(0, 25), alone: every(25, 99), run: 100, seconds: 20},
		"and came back when it was over": {at: append(every(0, 25), 98, 99), alone: every(25, 95), run: 90, seconds: 21},
		"a late beginning":               {at: every(40, 99), alone: every(0, 40), run: 100, seconds: 55},
		"an operator that was away":      {at: append(every(0, 40), 70, 75, 80, 85, 90, 95), run: 600, seconds: 60},
		"never":                          {alone: every(0, 99), run: 100},
		"a short run":                    {at: []int{5, 12, 19, 26}, run: 30, seconds: 21, whole: true},
		"the middle of one":              {at: []int{15, 22}, run: 37, seconds: 7},
		"a run of a moment":              {run: 3, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRecorder(start)
			for second := range 100 {
				switch {
				case slices.Contains(c.at, second):
					hear(r, after(second), 2, both)
				case slices.Contains(c.alone, second):
					hear(r, after(second), 2, one)
				}
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ParseRecorder(text)
			if err != nil {
				t.Fatal(err)
			}
			for kept, of := range map[string]*Recorder{"at hand": r, "read back": again} {
				if seconds, whole := of.Sampled(c.run); seconds != c.seconds || whole != c.whole {
					t.Errorf("%s: sampled for %g s, as a whole: %v; want %g and %v", kept, seconds, whole, c.seconds, c.whole)
				}
			}
		})
	}
}

// A pod without an agent tells what it uses, and nothing of a virtual machine: no memory is not a memory of 0.
func TestSeriesOfAServer(t *testing.T) {
	r := NewRecorder(start)
	for i := range 3 {
		memory, seconds := 100.0, float64(10*i)
		hear(r, after(5*i), 1, map[string]agentclient.Metrics{"chat-0": {PodOnly: true, PodMemory: &memory, PodCPUSeconds: &seconds}})
	}
	got := r.Series()
	if len(got) != 2 || got[report.SeriesPodMemory].Peak != 100 || got[report.SeriesPodCPU].Peak != 2 {
		t.Errorf("the series are %+v", got)
	}
}

func TestSeriesAreSumsOverPods(t *testing.T) {
	r := NewRecorder(start)
	pods := func(a, b agentclient.Metrics) map[string]agentclient.Metrics {
		return map[string]agentclient.Metrics{"shop-0": a, "shop-1": b}
	}
	hear(r, after(0), 2, pods(agentclient.Metrics{Processes: 10, HTTPOut: 1000, CPUSeconds: 1}, agentclient.Metrics{Processes: 20, HTTPOut: 50}))
	hear(r, after(5), 2, pods(agentclient.Metrics{Processes: 11, HTTPOut: 1500, CPUSeconds: 6}, agentclient.Metrics{Processes: 21, HTTPOut: 100}))
	// A pod that does not answer makes no dip, and what it sends meanwhile is not forgotten.
	hear(r, after(10), 2, map[string]agentclient.Metrics{"shop-0": {Processes: 12, HTTPOut: 1600, CPUSeconds: 6}})
	hear(r, after(15), 2, pods(agentclient.Metrics{Processes: 13, HTTPOut: 1700, CPUSeconds: 6}, agentclient.Metrics{Processes: 23, HTTPOut: 300}))
	// A virtual machine that was started anew counts from 0.
	hear(r, after(20), 2, pods(agentclient.Metrics{Processes: 1, HTTPOut: 1700, CPUSeconds: 6}, agentclient.Metrics{Processes: 3, HTTPOut: 25}))

	got := r.Series()
	sent, used := 700.0+275, 5.0
	want := map[string]report.Series{
		report.SeriesProcesses: {Unit: "1", Points: [][2]float64{{0, 30}, {5, 32}, {15, 36}, {20, 4}}, Peak: 36},
		report.SeriesHTTPOut:   {Unit: "bytes/s", Points: [][2]float64{{5, 110}, {15, 40}, {20, 5}}, Peak: 110, Total: &sent},
		report.SeriesCPU:       {Unit: "cores", Points: [][2]float64{{5, 1}, {15, 0}, {20, 0}}, Peak: 1, Total: &used},
	}
	for name, series := range want {
		if diff := cmp.Diff(series, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// What no agent told has no series.
	if len(got) != len(gauges)+len(counters)-3 {
		t.Errorf("%d series, want %d", len(got), len(gauges)+len(counters)-3)
	}
	if r.Samples != 5 || r.Incomplete != 1 {
		t.Errorf("%d samples, %d incomplete; want 5 and 1", r.Samples, r.Incomplete)
	}
}

// A sum of many differences is a little larger than one difference. The operator takes back what it has written down all the same.
func TestRecordersAreReadBack(t *testing.T) {
	for from := range 50 {
		r := NewRecorder(start)
		for i := range 60 {
			at := start.Add(time.Duration(1000*i*5+37*from+(i*i*131)%300) * time.Millisecond)
			hear(r, at, 1, map[string]agentclient.Metrics{"shop-0": {}})
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRecorder(text); err != nil {
			t.Fatal(err)
		}
	}
}

// A pod that comes in the middle of a run has done something before it is first asked.
func TestWhatNewPodsDidIsCounted(t *testing.T) {
	r := NewRecorder(start)
	hear(r, after(0), 1, map[string]agentclient.Metrics{"shop-0": {CPUSeconds: 7}})
	hear(r, after(5), 1, map[string]agentclient.Metrics{"shop-0": {CPUSeconds: 8}})
	hear(r, after(10), 2, map[string]agentclient.Metrics{"shop-0": {CPUSeconds: 9}, "shop-1": {CPUSeconds: 3}})
	hear(r, after(15), 2, map[string]agentclient.Metrics{"shop-0": {CPUSeconds: 10}, "shop-1": {CPUSeconds: 4}})
	got := r.Series()[report.SeriesCPU]
	if total := *got.Total; total != 3+4 || len(got.Points) != 2 || got.Points[1][1] != 0.4 {
		t.Errorf("%g CPU seconds, want 3 of one pod and 4 of the other: %v", total, got.Points)
	}
}

// After a gap there is no mean over a minute.
func TestNoPeakMinuteOverAGap(t *testing.T) {
	r := NewRecorder(start)
	for _, second := range append(every(0, 30), 119, 124) {
		hear(r, after(second), 1, map[string]agentclient.Metrics{"shop-0": {HTTPIn: float64(1000 * second)}})
	}
	if got := r.Series()[report.SeriesHTTPIn]; got.PeakMinute != nil || *got.Total != 124_000 {
		t.Errorf("a peak over a minute of %v, and a total of %g", got.PeakMinute, *got.Total)
	}
}

// A run of 45 minutes and one of two take about as much room; sums, peaks and ends stay right.
func TestSeriesStaySmall(t *testing.T) {
	for _, samples := range []int{3, 60, 61, 119, 120, 121, 540, 5000} {
		r := NewRecorder(start)
		for i := range samples {
			metrics := agentclient.Metrics{Processes: 100, HTTPIn: float64(1000 * i)}
			if i == samples/2 {
				metrics.Processes = 5000
			}
			hear(r, after(5*i), 1, map[string]agentclient.Metrics{"shop-0": metrics})
		}
		series := r.Series()
		processes, sent := series[report.SeriesProcesses], series[report.SeriesHTTPIn]
		if n := len(processes.Points); n > report.MaxPoints || n < min(samples, report.MaxPoints/2) {
			t.Errorf("%d samples: %d points", samples, n)
		}
		if processes.Peak != 5000 {
			t.Errorf("%d samples: peak %v, want 5000", samples, processes.Peak)
		}
		if *sent.Total != float64(1000*(samples-1)) {
			t.Errorf("%d samples: total %v, want %v", samples, *sent.Total, 1000*(samples-1))
		}
		for i, point := range sent.Points {
			if math.Abs(point[1]-200) > 1e-9 {
				t.Errorf("%d samples: rate %v, want 200", samples, point[1])
			}
			if i > 0 && point[0] <= sent.Points[i-1][0] {
				t.Errorf("%d samples: time goes back at point %d", samples, i)
			}
		}
		if last := sent.Points[len(sent.Points)-1][0]; last < 0.9*float64(5*(samples-1))-5 {
			t.Errorf("%d samples: the last point is at %v s", samples, last)
		}
	}
}

// Published rates are means over a minute: a wave of five seconds is a twelfth of itself there.
func TestRatesOverAMinute(t *testing.T) {
	for _, every := range []int{1, 5, 7} {
		r := NewRecorder(start)
		for second := 0; second <= 300; second += every {
			sent := 100 * float64(second)
			if second > 150 {
				sent += 60000 // at once
			}
			hear(r, after(second), 1, map[string]agentclient.Metrics{"shop-0": {HTTPIn: sent, Processes: 5}})
		}
		series := r.Series()
		got := series[report.SeriesHTTPIn]
		// 1,100 over a minute exactly; the samples make it up to 72 s.
		if got.PeakMinute == nil || *got.PeakMinute > 1100+1e-6 || *got.PeakMinute < 100+60000.0/72 || got.Peak < 8000 {
			t.Errorf("every %d s: a peak of %v over a minute, of %g between two samples", every, got.PeakMinute, got.Peak)
		}
		if series[report.SeriesProcesses].PeakMinute != nil {
			t.Error("a count of processes is no rate")
		}
		if n := len(r.Tracks[report.SeriesHTTPIn].Recent); n > mostRecent {
			t.Errorf("every %d s: %d totals are kept", every, n)
		}
	}
	short := NewRecorder(start)
	for second := range 55 {
		hear(short, after(second), 1, map[string]agentclient.Metrics{"shop-0": {HTTPIn: float64(second)}})
	}
	if got := short.Series()[report.SeriesHTTPIn].PeakMinute; got != nil {
		t.Errorf("a run of 55 s has a rate over a minute: %g", *got)
	}
}

// The operator may restart between any two samples.
func TestRecorderIsKeptAsJSON(t *testing.T) {
	whole, kept := NewRecorder(start), NewRecorder(start)
	for i := range 300 {
		metrics := map[string]agentclient.Metrics{}
		for pod := range 3 {
			metrics["shop-"+strconv.Itoa(pod)] = agentclient.Metrics{Processes: float64(i), RedisOut: float64(i * i), CPUSeconds: float64(i) / 3}
		}
		hear(whole, after(5*i), 3, metrics)
		hear(kept, after(5*i), 3, metrics)
		text, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 64<<10 {
			t.Fatalf("%d bytes after %d samples", len(text), i+1)
		}
		kept = &Recorder{}
		if err := json.Unmarshal(text, kept); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(whole.Series(), kept.Series()); diff != "" {
		t.Errorf("(-whole +kept):\n%s", diff)
	}
}

func TestNoSamples(t *testing.T) {
	if got := NewRecorder(start).Series(); len(got) != 0 {
		t.Errorf("series of nothing: %v", got)
	}
}
