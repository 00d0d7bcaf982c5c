package report

import (
	"slices"
	"strings"
	"testing"
)

func TestPublishedFigures(t *testing.T) {
	values, err := readPublished(publishedCSV)
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]string{"cpu": "share"}
	for _, f := range figures {
		if f.series != SeriesCPU {
			units[f.series] = f.unit
		}
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
		case q.value <= 0 || q.unit == "share" && q.value > 1:
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
	if len(values) < 200 {
		t.Errorf("%d published values, and there were 209", len(values))
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

func TestPublishedIsForTheSameLoadOnly(t *testing.T) {
	run := Run{Adapter: "Mnesia", Users: 1000, TTLSeconds: 60}
	if _, ok := published(SeriesMemoryBinary, run); !ok {
		t.Error("the published test has this load")
	}
	for _, change := range []func(*Run){
		func(r *Run) { r.Users = 100 },
		func(r *Run) { r.TTLSeconds = 60.5 },
		func(r *Run) { r.Adapter = "Other" },
	} {
		other := run
		change(&other)
		if q, ok := published(SeriesMemoryBinary, other); ok {
			t.Errorf("%+v has no published figure, and got %v", other, q)
		}
	}
}
