package report

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Figures come from agents and from a ConfigMap that a tenant may edit. Whatever they are, drawing them ends, and soon.
func TestChartsEnd(t *testing.T) {
	absurd := []float64{0, 5e-324, 1e-300, 1e-9, 1, 86400 * 7, 1e15, 1e17, 1e300, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), -1, -1e300}
	for _, second := range absurd {
		for _, value := range absurd {
			for _, unit := range []string{"1", "bytes"} {
				drawn := make(chan string, 1)
				go func() {
					drawn <- string(chart("Memory", unit, []line{{points: [][2]float64{{0, 1}, {second, value}, {second, value}}}}))
				}()
				select {
				case svg := <-drawn:
					if ticks := strings.Count(svg, "<text"); ticks > 40 {
						t.Errorf("a point at %g s of %g %s: %d ticks", second, value, unit, ticks)
					}
					for _, nonsense := range []string{"NaN", "Inf"} {
						if strings.Contains(svg, nonsense) {
							t.Errorf("a point at %g s of %g %s: the chart has %s", second, value, unit, nonsense)
						}
					}
				case <-time.After(time.Minute):
					t.Fatalf("a point at %g s of %g %s is drawn for ever", second, value, unit)
				}
			}
		}
	}
}

// That no figure is absurd was checked before. Ticks are counted all the same.
func TestTicksAreCounted(t *testing.T) {
	if places := ticks(1, 1e-5); len(places) > mostTicks {
		t.Errorf("an axis to 1 in steps of 0.00001 has %d ticks", len(places))
	}
}

// Events are marked up to a bound, and those alone that can be.
func TestEventsAreBounded(t *testing.T) {
	points := []line{{points: [][2]float64{{0, 1}, {600, 2}}}}
	events := make([]Event, 50*mostTicks)
	if drawn := strings.Count(string(chart("Memory", "bytes", points, events...)), `class="event"`); drawn != mostTicks {
		t.Errorf("%d of %d events are drawn, want %d", drawn, len(events), mostTicks)
	}
	for _, e := range []Event{{AtSeconds: math.NaN()}, {AtSeconds: -5}, {AtSeconds: 601}, {TookSeconds: math.Inf(1)}, {TookSeconds: -5}, {TookSeconds: 1e300}} {
		if svg := string(chart("Memory", "bytes", points, e)); strings.Contains(svg, `class="event"`) {
			t.Errorf("an event at %g s of %g s is drawn", e.AtSeconds, e.TookSeconds)
		}
	}
}

// A run of two weeks still has a time axis that can be read.
func TestLongTimesHaveFewTicks(t *testing.T) {
	svg := string(chart("Memory", "bytes", []line{{points: [][2]float64{{0, 1}, {60 * 86400, 2}}}}))
	if ticks := strings.Count(svg, `class="tick"`); ticks < 2 || ticks > 8 {
		t.Errorf("60 days have %d ticks", ticks)
	}
}

func TestParse(t *testing.T) {
	good := `{"schemaVersion":2,"name":"n","runs":[{"name":"r","ttlSeconds":60,"durationSeconds":120,"samples":{"memory":{"unit":"bytes","points":[[0,1],[5,2]],"peak":2}},"durations":{"join":{"count":1,"p50":3}},"counts":{"planned":3}}]}`
	if read, err := Parse([]byte(good)); err != nil || len(read.Runs) != 1 || read.Runs[0].Samples["memory"].Peak != 2 {
		t.Errorf("Parse(good) = %v, %v", read, err)
	}
	for name, change := range map[string][2]string{
		"a time that never ends":   {"[5,2]", "[1e15,2]"},
		"a time before the start":  {"[5,2]", "[-5,2]"},
		"an absurd value":          {"[5,2]", "[5,1.7e308]"},
		"an absurd peak":           {`"peak":2`, `"peak":1.7e308`},
		"an absurd total":          {`"peak":2`, `"peak":2,"total":-1`},
		"more points than it has":  {"[5,2]", "[5,2]" + strings.Repeat(",[5,2]", 500)},
		"a TTL of ages":            {`"ttlSeconds":60`, `"ttlSeconds":1e300`},
		"a run of ages":            {`"durationSeconds":120`, `"durationSeconds":1e18`},
		"a ramp of ages":           {`"durationSeconds":120`, `"rampSeconds":1e18`},
		"an event before it all":   {`"counts"`, `"events":[{"atSeconds":-1}],"counts"`},
		"an event without an end":  {`"counts"`, `"events":[{"tookSeconds":1e300}],"counts"`},
		"a client who never comes": {`"counts"`, `"clientDelay":1e300,"counts"`},
		"an absurd minute":         {`"peak":2`, `"peak":2,"peakMinute":1e300`},
		"fewer than none":          {`"count":1`, `"count":-1`},
		"an absurd duration":       {`"p50":3`, `"p50":1e300`},
		"a negative count":         {`"planned":3`, `"planned":-3`},
		"absurd errors":            {`"planned":3`, `"planned":3,"errors":{"timeout":-1}`},
		"more runs than can be":    {`"runs":[`, `"runs":[` + strings.Repeat(`{},`, 5000)},
		"no JSON":                  {"{", "<"},
		"a machine out of fables":  {`"name":"n"`, `"name":"n","machine":{"nodes":[{"cpu":1e300}]}`},
		"a machine without memory": {`"name":"n"`, `"name":"n","machine":{"nodes":[{"memory":-1}]}`},
		"a replica for everybody":  {`"name":"r"`, `"name":"r","replicas":-1`},
		"users who are too many":   {`"name":"r"`, `"name":"r","users":99999999999999999`},
		"a format of another time": {`"schemaVersion":2`, `"schemaVersion":1`},
	} {
		if _, err := Parse([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
