package report

import (
	"encoding/json"
	"strings"
	"testing"
)

// A report is read back from a ConfigMap that a user may edit. What is taken of it can be drawn, in bounds, and read back again.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"name":"n","runs":[{"name":"r","adapter":"ETS","verdict":"Passed","users":5,"ttlSeconds":60,"samples":{"memory":{"unit":"bytes","points":[[0,1],[5,2]],"peak":2}},"durations":{"join":{"count":1,"p50":3}},"counts":{"planned":3}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := Parse(text)
		if err != nil || len(text) > 64<<10 {
			return
		}
		files, err := Files(read, MaxBytes)
		if err != nil {
			t.Fatalf("it cannot be written again: %v", err)
		}
		if page := files[FileHTML]; strings.Count(page, `class="tick"`) > 1000+mostTicks*len(text) {
			t.Errorf("the page has %d bytes", len(page))
		}
		var again Report
		if err := json.Unmarshal([]byte(files[FileJSON]), &again); err != nil {
			t.Errorf("it cannot be read back: %v", err)
		}
	})
}

// Two points of any size make a chart of a few ticks.
func FuzzChart(f *testing.F) {
	f.Add(0.0, 1.0, 5.0, 2.0, true)
	f.Add(1e15, 1.0, 1.7e308, 5e-324, false)
	f.Fuzz(func(t *testing.T, t1, v1, t2, v2 float64, whole bool) {
		unit := map[bool]string{true: "1", false: "bytes"}[whole]
		svg := string(chart("x", unit, []line{{points: [][2]float64{{t1, v1}, {t2, v2}}}}))
		if strings.Count(svg, "<text") > 2*mostTicks+1 || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Error(svg)
		}
	})
}
