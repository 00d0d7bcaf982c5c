package loadtest

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

const soundReport = `{"version":3,"testid":"t","runners":1,"users":5,"duration_s":60,"ran_s":60,"completed":true,"ttl_s":20,"expired":{"yes":0,"no":3},"client_delay":{"count":9,"p99":1.5},"planned":5,"recovered":{"yes":5,"no":0},
 "errors":{"timeout":1},"durations":{"join":{"count":2,"sum":3,"min":1,"max":2,"scale":3,"offset":0,"counts":[1,-3,1]}}}`

// A runner's report is what a container of the tenant's wrote. What no run can have is refused, or else it would end in sums
// that overflow and in figures that no JSON can hold, so that no report is ever written.
func TestHostileRunnerReports(t *testing.T) {
	if _, err := ParseRunnerReport(soundReport); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a count below zero":     {`"planned":5`, `"planned":-5`},
		"an absurd count":        {`"planned":5`, `"planned":9223372036854775807`},
		"an absurd share":        {`"yes":5`, `"yes":9223372036854775807`},
		"absurd errors":          {`"timeout":1`, `"timeout":9223372036854775807`},
		"an absurd time":         {`"ran_s":60`, `"ran_s":1e300`},
		"an absurd length":       {`"duration_s":60`, `"duration_s":1e300`},
		"buckets beyond numbers": {`"offset":0`, `"offset":99999999`},
		"a gap beyond numbers":   {`-3`, `-9223372036854775808`},
		"an absurd TTL":          {`"ttl_s":20`, `"ttl_s":-20`},
		"absurd expiries":        {`"no":3`, `"no":-3`},
		"an absurd delay":        {`"p99":1.5`, `"p99":1e300`},
		"an absurd greatest":     {`"max":2`, `"max":1e300`},
		"a least below zero":     {`"min":1`, `"min":-1`},
		"a negative histogram":   {`"count":2`, `"count":-2`},
		"an absurd sum":          {`"sum":3`, `"sum":1e300`},
	} {
		read, err := ParseRunnerReport(strings.Replace(soundReport, change[0], change[1], 1))
		if err == nil {
			text, unfit := json.Marshal(Merge(visits{}, []RunnerReport{read, read}))
			t.Errorf("%s is taken; merged it is %s (%v)", name, text, unfit)
		}
	}
}

// What the recorder wrote down is in a ConfigMap of the tenant's namespace.
func TestHostileRecorders(t *testing.T) {
	good := NewRecorder(start)
	hear(good, after(5), 1, map[string]agentclient.Metrics{"shop-0": {Processes: 7, HTTPIn: 3}})
	hear(good, after(10), 1, map[string]agentclient.Metrics{"shop-0": {Processes: 8, HTTPIn: 4}})
	text, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRecorder(text); err != nil {
		t.Fatal(err)
	}
	many := strings.Repeat("[5,7],", keptPoints)
	for name, change := range map[string][2]string{
		"no JSON":                {"{", "<"},
		"an endless axis":        {"[5,7]", "[1e15,7]"},
		"an absurd value":        {"[5,7]", "[5,1e300]"},
		"a value below zero":     {"[5,7]", "[5,-1]"},
		"endless points":         {"[5,7]", many + "[5,7]"},
		"an absurd peak":         {`"peak":8`, `"peak":1e300`},
		"an absurd answer":       {`"processes":8`, `"processes":1e300`},
		"samples below zero":     {`"samples":2`, `"samples":-2`},
		"sampled backwards":      {`"from":5`, `"from":50`},
		"more seen than sampled": {`"seen":5`, `"seen":50`},
		"incomplete below zero":  {`"samples":2`, `"samples":2,"incomplete":-2`},
		"a series that is none":  {`"tracks":{`, `"tracks":{"":{"peak":1},`},
		"a series of no figures": {`"tracks":{`, `"tracks":{"colour":null,`},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("%s: %s is not in %s", name, change[0], text)
		}
		if _, err := ParseRecorder([]byte(changed)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	// Half of one must not bring the operator down either.
	for _, half := range []string{`{}`, `{"tracks":{}}`, `{"pods":{}}`, `null`} {
		read, err := ParseRecorder([]byte(half))
		if err != nil {
			continue
		}
		hear(read, after(5), 1, map[string]agentclient.Metrics{"shop-0": {Processes: 7}})
	}
}

// Each list and each figure of a series has its bound.
func TestHostileTracks(t *testing.T) {
	for name, tc := range map[string]struct {
		track track
		taken bool
	}{
		"points to the last":         {track{Points: make([][2]float64, keptPoints-1)}, true},
		"one point more":             {track{Points: make([][2]float64, keptPoints)}, false},
		"a point before the run":     {track{Points: [][2]float64{{-1, 7}}}, false},
		"totals to the last":         {track{Recent: make([][2]float64, mostRecent)}, true},
		"one total more":             {track{Recent: make([][2]float64, mostRecent+1)}, false},
		"a total before the run":     {track{Recent: [][2]float64{{-1, 7}}}, false},
		"a total on an endless axis": {track{Recent: [][2]float64{{1e15, 7}}}, false},
		"an absurd total":            {track{Recent: [][2]float64{{1, 1e300}}}, false},
		"an absurd total of all":     {track{Total: 1e300}, false},
		"an absurd peak of a minute": {track{PeakMinute: new(1e300)}, false},
	} {
		if err := tc.track.check(report.SeriesMemory); (err == nil) != tc.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
	if (*track)(nil).check(report.SeriesMemory) == nil {
		t.Error("a series of nothing is taken")
	}
}

// A sum or a rate of figures that are believed can still be absurd.
func TestRatesStayFinite(t *testing.T) {
	r := NewRecorder(start)
	hear(r, start, 1, map[string]agentclient.Metrics{"shop-0": {}})
	hear(r, start.Add(1), 1, map[string]agentclient.Metrics{"shop-0": {HTTPIn: 1e16, CPUSeconds: math.MaxFloat64}})
	for name, series := range r.Series() {
		if _, err := json.Marshal(series); err != nil || series.Peak > 1e16 {
			t.Errorf("%s: %v (%v)", name, series, err)
		}
	}
}

// What was written down is read back: sums of what is believed, and times of a clock that was set, are believed too.
func TestRecordersReadTheirOwn(t *testing.T) {
	const most = 1e16
	r := NewRecorder(start)
	for i, at := range []time.Time{start.Add(-time.Hour), start.Add(-time.Minute), after(5), after(6), start.AddDate(20, 0, 0), start.AddDate(20, 0, 1)} {
		hear(r, at, 1, map[string]agentclient.Metrics{"shop-0": {HTTPIn: most * float64((i+1)%2)}})
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseRecorder(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := read.Tracks[report.SeriesHTTPIn]; got.Total != most {
		t.Errorf("%g counted, want the most that is believed", got.Total)
	}
}
