package dashboards

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// window is an hour, the time that the dashboards show by themselves.
var window = Window{From: time.Unix(1_780_000_000, 0), To: time.Unix(1_780_003_600, 0), Scrape: 15 * time.Second}

// shipped are the chart's dashboards by their files' names.
func shipped(t *testing.T) map[string]Dashboard {
	t.Helper()
	files, err := filepath.Glob("../../charts/livestash-observability/dashboards/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, want 5, %v", len(files), err)
	}
	found := map[string]Dashboard{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found[filepath.Base(file)], err = Read(content); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return found
}

// fake is a Prometheus that has series for every query: three for each label that the query groups by.
type fake struct {
	empty bool
	// asked are the queries and selectors that arrived.
	asked []string
}

func (f *fake) serve(t *testing.T) Prometheus {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return Prometheus{Client: server.Client(), URL: server.URL + "/api/v1"}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data any
	query := r.URL.Query()
	f.asked = append(f.asked, query.Get("query")+query.Get("match[]"))
	if label, is := strings.CutPrefix(r.URL.Path, "/api/v1/label/"); is {
		name := strings.TrimSuffix(label, "/values")
		data = []string{name + "-1", name + "-0"}
	} else {
		data = map[string]any{"result": f.answer(r.URL.Path, query.Get("query"), query.Get("start"), query.Get("end"), query.Get("step"))}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
}

func (f *fake) answer(path, expr, start, end, step string) []any {
	series := []map[string]string{{}}
	if by := regexp.MustCompile(`by \(([^)]+)\)`).FindStringSubmatch(expr); by != nil {
		for label := range strings.SplitSeq(by[1], ", ") {
			var more []map[string]string
			for _, labels := range series {
				for i := range 3 {
					next := maps.Clone(labels)
					next[label] = label + "-" + strconv.Itoa(i)
					more = append(more, next)
				}
			}
			series = more
		}
	}
	found := []any{}
	if f.empty {
		return found
	}
	for _, labels := range series {
		value := func(t int) [2]any {
			// Anything that looks like a measurement, and is the same each time.
			noise := crc32.ChecksumIEEE(fmt.Append(nil, expr, labels, t)) % 100
			return [2]any{t, fmt.Sprint(300 + 50*math.Sin(float64(t)/400) + float64(noise)/4)}
		}
		if strings.HasSuffix(path, "/query") {
			found = append(found, map[string]any{"metric": labels, "value": value(0)})
			continue
		}
		from, _ := strconv.Atoi(start)
		to, _ := strconv.Atoi(end)
		by, _ := strconv.Atoi(step)
		var values [][2]any
		for t := from; t <= to; t += by {
			values = append(values, value(t))
		}
		found = append(found, map[string]any{"metric": labels, "values": values})
	}
	return found
}

func draw(t *testing.T, d Dashboard, f *fake) string {
	t.Helper()
	data, err := f.serve(t).Ask(t.Context(), d, window, Variables{"cluster": "shop"})
	if err != nil {
		t.Fatal(err)
	}
	picture, err := Draw(d, data)
	if err != nil {
		t.Fatal(err)
	}
	return string(picture)
}

// words are the texts of a picture, which has to be well-formed.
func words(t *testing.T, picture string) []string {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	var found []string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, is := token.(xml.CharData); is {
			found = append(found, string(text))
		}
	}
}

func TestEveryPanelIsDrawn(t *testing.T) {
	for name, d := range shipped(t) {
		t.Run(name, func(t *testing.T) {
			var f fake
			picture := draw(t, d, &f)
			texts := words(t, picture)
			for _, p := range d.Panels {
				if !slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(p.Title, strings.TrimSuffix(text, "…")) }) {
					t.Errorf("there is no panel %q", p.Title)
				}
			}
			for _, want := range []string{Caption, d.Title, "28 May 2026, 20:26 – 21:26 UTC"} {
				if !slices.Contains(texts, want) {
					t.Errorf("the picture does not say %q", want)
				}
			}
			if slices.Contains(texts, "No data") {
				t.Error("a panel has no data")
			}
			if len(picture) > 300_000 {
				t.Errorf("the picture has %d bytes", len(picture))
			}
			if picture != draw(t, d, &fake{}) {
				t.Error("the same data give another picture")
			}
			for _, asked := range f.asked {
				if variable.MatchString(asked) {
					t.Errorf("a variable is left in %s", asked)
				}
			}
		})
	}
}

func TestPanelsWithoutData(t *testing.T) {
	for name, d := range shipped(t) {
		want := map[string]int{}
		for _, p := range d.Panels {
			if p.Type != "row" {
				want[cmp.Or(p.FieldConfig.Defaults.NoValue, "No data")]++
			}
		}
		texts := words(t, draw(t, d, &fake{empty: true}))
		for text, n := range want {
			got := 0
			for _, other := range texts {
				if other == text {
					got++
				}
			}
			if got != n {
				t.Errorf("%s says %q %d times, want %d", name, text, got, n)
			}
		}
	}
}

func TestVariables(t *testing.T) {
	d := shipped(t)["beam.json"]
	var f fake
	data, err := f.serve(t).Ask(t.Context(), d, window, Variables{"cluster": "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"namespace": "namespace-0", "cluster": "shop", "pod": ".*", "__range": "3600s", "__interval": "15s", "__rate_interval": "60s", "datasource": "prometheus",
	} {
		if data.Variables[name] != want {
			t.Errorf("%s is %q, want %q", name, data.Variables[name], want)
		}
	}
	got, err := data.Variables.Fill(`rate(a{b="$cluster", c=~"${pod}", d="$1"}[$__rate_interval])`)
	if want := `rate(a{b="shop", c=~".*", d="$1"}[60s])`; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := data.Variables.Fill("$color"); err == nil {
		t.Error("a variable without a value is filled")
	}
	long := Window{From: window.From, To: window.From.Add(6 * time.Hour), Scrape: window.Scrape}
	if got := long.variables(); got["__interval"] != "90s" || got["__rate_interval"] != "105s" {
		t.Errorf("for six hours: %v", got)
	}
}

func TestFailuresOfPrometheus(t *testing.T) {
	d := shipped(t)["fleet.json"]
	for answer, want := range map[string]string{
		`{"status":"error","error":"too many samples"}`: "too many samples",
		`bad gateway`:                    "bad gateway",
		`{"status":"success","data":[]}`: "there is nothing to choose for the variable namespace",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		_, err := Prometheus{server.Client(), server.URL}.Ask(t.Context(), d, window, nil)
		server.Close()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", answer, err, want)
		}
	}
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	content, err := os.ReadFile("../../charts/livestash-observability/dashboards/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../../charts/livestash-observability/dashboards/benchmark.json")
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{`"id": "merge"`, `"id": "reduce"`}:                       "only tables that are merged",
		{`"Time": true`, `"adapter": true`}:                       "only tables that leave out the time",
		{`"instant": true`, `"instant": false`}:                   "only tables of instant queries",
		{`"type": "stat"`, `"type": "gauge"`}:                     `the type "gauge" is not known`,
		{`"unit": "bytes"`, `"unit": "decbytes"`}:                 `the unit "decbytes" is not known`,
		{`"drawStyle": "line"`, `"drawStyle": "bars"`}:            `drawStyle "bars" is not known`,
		{`"mode": "normal"`, `"mode": "percent"`}:                 `stacking "percent" is not known`,
		{`"lastNotNull"`, `"mean"`}:                               `calcs "mean" is not known`,
		{`"textMode": "value"`, `"textMode": "name"`}:             `textMode "name" is not known`,
		{`"mergeValues": true`, `"mergeValues": false`}:           `mergeValues "false" is not known`,
		{`"overrides": []`, `"overrides": [{}]`}:                  `overrides "" are not known`,
		{`"id": "byRegexp"`, `"id": "byType"`}:                    `overrides "byType" are not known`,
		{`"id": "displayName"`, `"id": "custom.width"`}:           `overrides of "custom.width" are not known`,
		{`"mode": "fixed"`, `"mode": "shades"`}:                   `colours of the mode "shades"`,
		{`"fixedColor": "green"`, `"fixedColor": "lime"`}:         `the colour "lime" is not known`,
		{`"type": "color-text"`, `"type": "gauge"`}:               `cells of the type "gauge"`,
		{`"mode": "absolute"`, `"mode": "percentage"`}:            `thresholds of the mode "percentage"`,
		{`"type": "value"`, `"type": "range"`}:                    `mappings of the type "range"`,
		{`"color": "red"`, `"color": "crimson"`}:                  `the colour "crimson" is not known`,
		{`"iconColor": "orange"`, `"iconColor": "apricot"`}:       `the annotation "Rollouts: begin"`,
		{`"collapsed": false`, `"collapsed": true`}:               "collapsed rows",
		{`"graphMode": "none"`, `"graphStyle": "none"`}:           `unknown field "graphStyle"`,
		{`"showLegend": false`, `"showLegend": true`}:             `showLegend "true" is not known`,
		{`"placement": "bottom"`, `"placement": "right"`}:         `placement "right" is not known`,
		{`"showPoints": "never"`, `"showPoints": "always"`}:       `showPoints "always" is not known`,
		{`"definition": "label_values(`, `"definition": "query(`}: "is not understood",
	} {
		text := strings.ReplaceAll(string(content), change[0], change[1])
		if text == string(content) {
			text = strings.ReplaceAll(string(table), change[0], change[1])
		}
		if text == string(content) || text == string(table) {
			t.Errorf("%s is not in the dashboard: this test shows nothing", change[0])
		}
		d, err := Read([]byte(text))
		if err == nil {
			var data Data
			if data, err = (&fake{empty: true}).serve(t).Ask(t.Context(), d, window, nil); err == nil {
				_, err = Draw(d, data)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change[1], err, want)
		}
	}
}

func TestFormat(t *testing.T) {
	three := 3
	for _, c := range []struct {
		value    float64
		unit     string
		decimals *int
		want     string
	}{
		{0, "short", nil, "0"}, {3, "short", nil, "3"}, {1234, "short", nil, "1.234 K"}, {0.25, "short", nil, "0.25"}, {1000, "short", nil, "1 K"},
		{0, "bytes", nil, "0 B"}, {1536, "bytes", nil, "1.5 KiB"}, {48 << 20, "bytes", nil, "48 MiB"},
		{12_345, "Bps", nil, "12.35 kB/s"}, {0.9973, "percentunit", nil, "99.73%"}, {1, "percentunit", nil, "100%"}, {0, "percentunit", nil, "0%"},
		{0.0123, "s", nil, "12.3 ms"}, {0.0123, "s", &three, "12.300 ms"}, {90, "s", nil, "1.5 min"}, {7200, "s", nil, "2 h"}, {0, "s", nil, "0 s"},
		{2500, "ops", nil, "2.5 K ops/s"}, {1.5, "cps", nil, "1.5 c/s"}, {40, "reqps", nil, "40 req/s"},
	} {
		if got := format(c.value, c.unit, c.decimals); got != c.want {
			t.Errorf("%g %s is %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}

func TestTicks(t *testing.T) {
	texts := func(ticks []tick) string {
		var found []string
		for _, tick := range ticks {
			found = append(found, tick.text)
		}
		return strings.Join(found, ", ")
	}
	for _, c := range []struct {
		lowest, highest float64
		unit            string
		whole           bool
		want            string
	}{
		{0, 0, "short", true, "0, 1"},
		{0, 3, "short", true, "0, 1, 2, 3"},
		{0, 0.9, "short", false, "0, 0.2, 0.4, 0.6, 0.8, 1.0"},
		{0, 1, "percentunit", false, "0%, 20%, 40%, 60%, 80%, 100%"},
		{0, 70 << 20, "bytes", true, "0 B, 20 MiB, 40 MiB, 60 MiB, 80 MiB"},
		{0, 0.0042, "s", false, "0 s, 1 ms, 2 ms, 3 ms, 4 ms, 5 ms"},
		{-3, 5, "short", true, "-4, -2, 0, 2, 4, 6"},
	} {
		if got := texts(valueTicks(c.lowest, c.highest, c.unit, c.whole)); got != c.want {
			t.Errorf("%g to %g %s: %s, want %s", c.lowest, c.highest, c.unit, got, c.want)
		}
	}
	at := time.Date(2026, 5, 28, 20, 26, 40, 0, time.UTC)
	for length, want := range map[time.Duration]string{
		40 * time.Second:   "20:26:40, 20:26:50, 20:27:00, 20:27:10, 20:27:20",
		time.Hour:          "20:30, 20:40, 20:50, 21:00, 21:10, 21:20",
		5 * 24 * time.Hour: "29 May, 30 May, 31 May, 1 Jun, 2 Jun",
	} {
		if got := texts(timeTicks(at, at.Add(length), 7)); got != want {
			t.Errorf("%v: %s, want %s", length, got, want)
		}
	}
}

// one is a dashboard of one panel, eight columns wide, and an hour of data for its query A.
func one(panel string, series ...Series) (Dashboard, Data) {
	var d Dashboard
	if err := json.Unmarshal([]byte(`{"panels": [`+panel+`]}`), &d); err != nil {
		panic(err)
	}
	return d, Data{From: window.From, To: window.To, Step: 15 * time.Second, Answers: map[Query][]Series{{1, "A"}: series}}
}

func drawn(t *testing.T, d Dashboard, data Data) string {
	t.Helper()
	picture, err := Draw(d, data)
	if err != nil {
		t.Fatal(err)
	}
	return string(picture)
}

// Overrides give names and colours to lines, and change nothing for the others.
func TestOverrides(t *testing.T) {
	panel := strings.Replace(fmt.Sprintf(chartOf, "none"), `"fieldConfig": {`, `"fieldConfig": {"overrides": [
		{"matcher": {"id": "byName", "options": "<a>"}, "properties": [{"id": "displayName", "value": "Alpha"}, {"id": "color", "value": {"mode": "fixed", "fixedColor": "#123456"}}]},
		{"matcher": {"id": "byRegexp", "options": "/^<b/"}, "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": "red"}}]}],`, 1)
	d, data := one(panel, level("a", 2, 0, 15), level("b", 3, 0, 15), level("c", 4, 0, 15))
	picture := drawn(t, d, data)
	if texts := words(t, picture); !slices.Contains(texts, "Alpha") || !slices.Contains(texts, "<b>") || slices.Contains(texts, "<a>") {
		t.Errorf("the legend says %q", texts)
	}
	for _, colour := range []string{"#123456", color("red"), palette[2]} {
		if !strings.Contains(picture, `class="line" stroke="`+colour+`"`) {
			t.Errorf("no line is %s", colour)
		}
	}
}

// A row of a table is what the labels that all queries share say: a query with one more adds a column, and not a row. Words and numbers
// have the colours of their columns.
func TestTableOfSeveralQueries(t *testing.T) {
	var d Dashboard
	if err := json.Unmarshal([]byte(`{"panels": [{"id": 1, "type": "table", "title": "T", "gridPos": {"w": 24, "h": 8},
		"targets": [{"refId": "A", "format": "table", "instant": true}, {"refId": "B", "format": "table", "instant": true}],
		"transformations": [{"id": "merge"}, {"id": "organize", "options": {"excludeByName": {"Time": true, "Value #B": true},
			"indexByName": {"fleet": 0, "kind": 1, "Value #A": 2}, "renameByName": {"fleet": "Fleet", "kind": "Kind", "Value #A": "Ready"}}}],
		"options": {"sortBy": [{"displayName": "Ready"}]},
		"fieldConfig": {"defaults": {"unit": "short"}, "overrides": [
			{"matcher": {"id": "byName", "options": "Ready"}, "properties": [{"id": "custom.cellOptions", "value": {"type": "color-text"}},
				{"id": "noValue", "value": "Unknown"}, {"id": "mappings", "value": [{"type": "value", "options": {"0": {"text": "False", "color": "red"}}}]}]},
			{"matcher": {"id": "byName", "options": "Kind"}, "properties": [{"id": "mappings", "value": [{"type": "value", "options": {"ets": {"text": "ETS", "color": "green"}}}]}]}]}}]}`), &d); err != nil {
		t.Fatal(err)
	}
	row := func(value float64, labels ...string) Series {
		s := Series{Labels: map[string]string{}, Points: []Point{{0, value}}}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	picture := drawn(t, d, Data{From: window.From, To: window.To, Step: time.Second, Answers: map[Query][]Series{
		{1, "A"}: {row(12, "fleet", "b"), row(0, "fleet", "a"), row(7, "fleet", "c")},
		{1, "B"}: {row(1, "fleet", "a", "kind", "ets"), row(1, "fleet", "b", "kind", "redis"), row(1, "fleet", "d", "kind", "ets")},
	}})
	got := words(t, picture)
	if want := "Fleet a c b d Kind ETS – redis ETS Ready False 7 12 Unknown"; !strings.Contains(strings.Join(got, " "), want) &&
		!strings.Contains(strings.Join(got, " "), "Fleet d a c b Kind ETS ETS – redis Ready Unknown False 7 12") {
		t.Errorf("the table says %q, want %s", got, want)
	}
	if !regexp.MustCompile(`style="fill:` + color("red") + `"[^>]*>False<`).MatchString(picture) {
		t.Error("the word False is not red")
	}
	for _, word := range []string{"ETS", "redis"} {
		if !regexp.MustCompile(`style="fill:` + color("text") + `"[^>]*>` + word + `<`).MatchString(picture) {
			t.Errorf("%s has a colour, and its column none", word)
		}
	}
}

// level is a series of the same value at seconds after the beginning.
func level(name string, value float64, seconds ...float64) Series {
	s := Series{Labels: map[string]string{"pod": name}}
	for _, second := range seconds {
		s.Points = append(s.Points, Point{float64(window.From.Unix()) + second, value})
	}
	return s
}

const chartOf = `{"id": 1, "type": "timeseries", "title": "Chart", "gridPos": {"w": 8, "h": 8}, "targets": [{"refId": "A", "legendFormat": "<{{pod}}>"}],
	"fieldConfig": {"defaults": {"unit": "short", "min": 0, "custom": {"drawStyle": "line", "showPoints": "never", "stacking": {"mode": "%s"}}}},
	"options": {"legend": {"displayMode": "list", "placement": "bottom"}}}`

func TestGapsStacksAndDots(t *testing.T) {
	d, data := one(fmt.Sprintf(chartOf, "none"), level("a", 2, 0, 15, 60, 75), level("b", 3, 600))
	picture := drawn(t, d, data)
	paths := regexp.MustCompile(`class="line" stroke="[^"]+" d="([^"]+)"`).FindAllStringSubmatch(picture, -1)
	if len(paths) != 2 || strings.Count(paths[1][1], "M") != 2 || !strings.HasSuffix(paths[0][1], "l0 0") {
		t.Errorf("lines %q, want a dot, and before it a line of two parts", paths)
	}
	if !slices.Contains(words(t, picture), "<a>") {
		t.Error("the legend does not name <a>")
	}

	d, data = one(fmt.Sprintf(chartOf, "normal"), level("a", 2, 0, 15), level("b", 3, 0, 15))
	if texts := words(t, drawn(t, d, data)); !slices.Contains(texts, "5") {
		t.Errorf("the axis of 2 upon 3 does not end at 5: %q", texts)
	}
	if data.Answers[Query{1, "A"}][1].Points[0].Value != 3 {
		t.Error("drawing a stack has changed the data")
	}
}

func TestLongLegend(t *testing.T) {
	var many []Series
	for i := range 40 {
		many = append(many, level(fmt.Sprintf("a-pod-with-a-long-name-%d", i), 1, 0, 15))
	}
	d, data := one(fmt.Sprintf(chartOf, "none"), many...)
	texts, named := words(t, drawn(t, d, data)), 0
	for _, text := range texts {
		if strings.HasPrefix(text, "<a-pod") {
			named++
		}
	}
	if want := fmt.Sprintf("and %d more", 40-named); named == 0 || !slices.Contains(texts, want) {
		t.Errorf("%d are named, and there is no %q", named, want)
	}
}

func TestColoursOfValues(t *testing.T) {
	of := func(field string) Field {
		var f Field
		if err := json.Unmarshal([]byte(field), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	limits := `{"unit": "percentunit", "thresholds": {"mode": "absolute", "steps": [{"color": "red", "value": null}, {"color": "green", "value": 0.99}]}}`
	mapped := `{"unit": "short", "mappings": [{"type": "value", "options": {"1": {"text": "yes", "color": "#8a8a8a"}}}]}`
	for _, c := range []struct {
		field      string
		value      float64
		text, fill string
	}{
		{limits, 0.98, "98%", "red"}, {limits, 0.99, "99%", "green"}, {mapped, 1, "yes", "#8a8a8a"}, {mapped, 2, "2", "green"},
		{`{"unit": "short"}`, 79, "79", "green"}, {`{"unit": "short"}`, 80, "80", "red"},
	} {
		if text, fill := of(c.field).written(c.value); text != c.text || fill != color(c.fill) {
			t.Errorf("%g is %q in %s, want %q in %s", c.value, text, fill, c.text, c.fill)
		}
	}
}

func TestStates(t *testing.T) {
	s := level("Ready", 1, 0, 15, 30, 45)
	s.Points[2].Value = 0
	d, data := one(`{"id": 1, "type": "state-timeline", "title": "States", "gridPos": {"w": 24, "h": 4}, "targets": [{"refId": "A", "legendFormat": "{{pod}}"}],
		"fieldConfig": {"defaults": {"unit": "short"}}, "options": {"showValue": "auto", "mergeValues": true, "rowHeight": 0.8, "legend": {"showLegend": false}}}`, s)
	if bars := strings.Count(drawn(t, d, data), `rx="2"`); bars != 3 {
		t.Errorf("%d bars for 1 1 0 1, want 3", bars)
	}
}

func TestTable(t *testing.T) {
	d := shipped(t)["benchmark.json"]
	p := d.Panels[slices.IndexFunc(d.Panels, func(p Panel) bool { return p.Type == "table" })]
	value := func(adapter string, v float64) Series {
		return Series{map[string]string{"adapter": adapter}, []Point{{0, v}}}
	}
	data := Data{From: window.From, To: window.To, Step: time.Minute, Answers: map[Query][]Series{
		{p.ID, "A"}: {value("none", 0.004), value("ets", 0.002)},
		{p.ID, "B"}: {value("ets", 0.25)},
		{p.ID, "C"}: {value("none", 1.5), value("ets", 0.5)},
	}}
	d.Panels, d.Annotations.List = []Panel{p}, nil
	texts := words(t, drawn(t, d, data))
	first := slices.Index(texts, "Adapter")
	want := "Adapter ETS None First visit 2.0 ms 4.0 ms First render 250.0 ms – Stash 500.0 ms 1.5 s"
	if got := strings.Join(texts[first:len(texts)-1], " "); !strings.HasPrefix(got, want) {
		t.Errorf("the columns are %q, want %q", got, want)
	}
}

func TestRolloutsAreMarked(t *testing.T) {
	d, data := one(fmt.Sprintf(chartOf, "none"), level("a", 2, 0, 15))
	d.Annotations.List = []Annotation{{Name: "Rollouts", Expr: "x", Enable: true, UseValueForTime: true, IconColor: "orange"}}
	inside, before := float64(window.From.Unix()+60)*1000, float64(window.From.Unix()-60)*1000
	data.Answers[Query{Name: "Rollouts"}] = []Series{level("a", inside, 0, 15), level("b", before, 0)}
	if marks := bytes.Count([]byte(drawn(t, d, data)), []byte("stroke-dasharray")); marks != 1 {
		t.Errorf("%d marks, want 1", marks)
	}
}
