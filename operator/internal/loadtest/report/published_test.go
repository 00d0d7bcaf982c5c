package report

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestPublishedFigures(t *testing.T) {
	values, err := readPublished(publishedCSV)
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]string{}
	for _, f := range figures {
		units[f.series] = f.unit
	}
	for _, trip := range trips {
		for _, q := range quantiles {
			units[trip.published+"_"+q.name] = "ms"
		}
	}
	matrix := map[[2]int]bool{{1000, 60}: true, {5000, 60}: true, {10000, 60}: true, {17000, 60}: true, {25000, 60}: true, {25000, 300}: true, {25000, 900}: true}
	for key, q := range values {
		switch {
		case units[key.figure] != q.unit:
			t.Errorf("%v has the unit %q, and the report knows %q", key, q.unit, units[key.figure])
		case !slices.Contains(adapterOrder, key.adapter) || !matrix[[2]int{key.users, key.ttl}]:
			t.Errorf("%v is not in the published matrix", key)
		case q.value <= 0 || q.unit == "cores" && q.value > machineCores:
			t.Errorf("%v is %g %s", key, q.value, q.unit)
		}
	}
	for key, q := range values {
		if name, found := strings.CutSuffix(key.figure, "_p50"); found {
			worse, ok := values[cell{name + "_p99", key.adapter, key.users, key.ttl}]
			if ok && worse.value < q.value {
				t.Errorf("%v: p99 %g is below p50 %g", key, worse.value, q.value)
			}
		}
	}
	if len(values) < 205 {
		t.Errorf("%d published values, and there were 205", len(values))
	}
}

func TestReadPublishedRefuses(t *testing.T) {
	const head = "figure,adapter,users,ttl,value,unit\n"
	for name, text := range map[string]string{
		"a column short": head + "cpu,ETS,1000,60,0.5\n",
		"users":          head + "cpu,ETS,1k,60,0.5,share\n",
		"ttl":            head + "cpu,ETS,1000,1m,0.5,share\n",
		"value":          head + "cpu,ETS,1000,60,half,share\n",
		"twice":          head + "cpu,ETS,1000,60,0.5,share\ncpu,ETS,1000,60,0.6,share\n",
	} {
		if _, err := readPublished([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPublishedIsForTheSameTestOnly(t *testing.T) {
	spec := Spec{Scenario: "Visits", PayloadKeys: 150, PayloadOnPage: "Shown"}
	run := Run{Adapter: "Mnesia", Users: 25000, TTLSeconds: 900, DurationSeconds: 2700, RampSeconds: 675, Replicas: 2}
	for _, ramp := range []float64{675, 685} {
		run.RampSeconds = ramp
		if _, ok := published(SeriesMemoryBinary, spec, run); !ok {
			t.Errorf("the published test has this load, with a ramp of %g s", ramp)
		}
	}
	for name, change := range map[string]func(*Spec, *Run){
		"users":    func(_ *Spec, r *Run) { r.Users = 100 },
		"TTL":      func(_ *Spec, r *Run) { r.TTLSeconds = 900.5 },
		"duration": func(_ *Spec, r *Run) { r.DurationSeconds = 1800 },
		"ramp":     func(_ *Spec, r *Run) { r.RampSeconds = 10 },
		"adapter":  func(_ *Spec, r *Run) { r.Adapter = "Other" },
		"pods":     func(_ *Spec, r *Run) { r.Replicas = 3 },
		"scenario": func(s *Spec, _ *Run) { s.Scenario = "Reconnect" },
		"payload":  func(s *Spec, _ *Run) { s.PayloadKeys = 10 },
		"page":     func(s *Spec, _ *Run) { s.PayloadOnPage = "Hidden" },
	} {
		asked, other := spec, run
		change(&asked, &other)
		if q, ok := published(SeriesMemoryBinary, asked, other); ok {
			t.Errorf("another %s has no published figure, and got %v", name, q)
		}
	}
}

// A share of a machine says nothing without its cores: 35.8 % of four are 1.43.
func TestPublishedCPUIsInCores(t *testing.T) {
	if q := publishedValues()[cell{SeriesCPU, "None", 25000, 300}]; inUnit(q.value, q.unit) != "1.43 cores" {
		t.Errorf("%v", q)
	}
}

// docs/benchmarks.md shows every published value. Run with -update to write its tables anew.
func TestPublishedFiguresInTheDocs(t *testing.T) {
	const file, begin, end = "../../../../docs/benchmarks.md", "<!-- published: written by the tests of operator/internal/loadtest/report -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	old, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the published figures", file)
	}
	want := publishedTables()
	if old == want {
		return
	}
	if flag.Lookup("update").Value.String() != "true" {
		t.Fatalf("the tables of %s are not those of published.csv; run this test with -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func publishedTables() string {
	var b strings.Builder
	section := func(title, name string) {
		rows := [][]string{append([]string{"users, TTL"}, adapterOrder...)}
		for _, l := range []load{{users: 1000, ttl: 60}, {users: 5000, ttl: 60}, {users: 10000, ttl: 60}, {users: 17000, ttl: 60}, {users: 25000, ttl: 60}, {users: 25000, ttl: 300}, {users: 25000, ttl: 900}} {
			row, known := []string{grouped(int64(l.users)) + ", " + span(l.ttl)}, false
			for _, adapter := range adapterOrder {
				q, ok := publishedValues()[cell{name, adapter, l.users, int(l.ttl)}]
				known = known || ok
				if row = append(row, "–"); ok {
					row[len(row)-1] = inUnit(q.value, q.unit)
				}
			}
			if known {
				rows = append(rows, row)
			}
		}
		if len(rows) > 1 {
			b.WriteString("\n### " + title + "\n\n")
			table(&b, rows)
		}
	}
	for _, trip := range trips {
		for _, q := range quantiles {
			section(trip.title+", "+q.name, trip.published+"_"+q.name)
		}
	}
	for _, f := range figures {
		title := f.title + ", highest point"
		if f.rate() {
			title += " of the rate over a minute"
		}
		if f.perPod {
			title += ", mean of the two machines"
		}
		section(title, f.series)
	}
	b.WriteByte('\n')
	return b.String()
}
