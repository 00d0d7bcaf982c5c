package dashboards

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxPoints is how many points a line has at most.
const maxPoints = 240

// Prometheus is the API of a Prometheus.
type Prometheus struct {
	Client *http.Client
	// URL is the address of the API, with its version.
	URL string
}

// Get reads the data of an answer of the API.
func (p Prometheus) Get(ctx context.Context, path string, parameters url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.URL, "/")+"/"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := p.Client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w: %.200s", response.Status, err, body)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// Values are the values of a label in the series that match, in all of them if match is empty.
func (p Prometheus) Values(ctx context.Context, label, match string, from, to time.Time) ([]string, error) {
	var found []string
	parameters := url.Values{"start": {unix(from)}, "end": {unix(to)}}
	if match != "" {
		parameters.Set("match[]", match)
	}
	err := p.Get(ctx, "label/"+label+"/values", parameters, &found)
	return found, err
}

// Window is the time that a dashboard is about.
type Window struct {
	From, To time.Time
	// Scrape is the time between two scrapes, which Grafana knows from its datasource.
	Scrape time.Duration
}

// step is the time between two points.
func (w Window) step() time.Duration {
	return max(w.Scrape, (w.To.Sub(w.From)/maxPoints + time.Second - 1).Truncate(time.Second))
}

// variables are those that Grafana sets by itself.
func (w Window) variables() Variables {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + "s" }
	return Variables{
		"__range":         seconds(w.To.Sub(w.From)),
		"__interval":      seconds(w.step()),
		"__rate_interval": seconds(max(w.step()+w.Scrape, 4*w.Scrape)),
	}
}

// Data is all that the picture of a dashboard is drawn from.
type Data struct {
	From, To time.Time
	// Step is the time between two points of a line.
	Step      time.Duration
	Variables Variables
	Answers   map[Query][]Series
}

// Query names a query of a dashboard. That of an annotation has no panel, and the annotation's name.
type Query struct {
	Panel int
	Name  string
}

// Series is one series that a query found.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is a finite value at a moment, in seconds since 1970.
type Point struct{ Time, Value float64 }

// Ask asks all queries of a dashboard. Variables without a given value get the one that Grafana shows first.
func (p Prometheus) Ask(ctx context.Context, d Dashboard, w Window, given Variables) (Data, error) {
	step := w.step()
	data := Data{From: w.From.Truncate(step), To: w.To.Truncate(step), Step: step, Variables: w.variables(), Answers: map[Query][]Series{}}
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			data.Variables[v.Name] = "prometheus"
			continue
		}
		value, is := given[v.Name]
		if !is {
			var err error
			if value, err = p.first(ctx, v, data); err != nil {
				return data, err
			}
		}
		data.Variables[v.Name] = value
	}
	for _, q := range d.Queries() {
		answer, err := p.query(ctx, data, q.Expr, q.Instant)
		if err != nil {
			return data, fmt.Errorf("%s: %w", q.Where, err)
		}
		data.Answers[q.Query] = answer
	}
	return data, nil
}

// first is the value of a menu that Grafana shows first.
func (p Prometheus) first(ctx context.Context, v Variable, data Data) (string, error) {
	if v.IncludeAll && v.Current["value"] == "$__all" {
		return v.AllValue, nil
	}
	match, label, err := v.LabelValues()
	if err != nil {
		return "", err
	}
	if match, err = data.Variables.Fill(match); err != nil {
		return "", err
	}
	found, err := p.Values(ctx, label, match, data.From, data.To)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("there is nothing to choose for the variable %s: no series is %s", v.Name, match)
	}
	if slices.Sort(found); v.Sort == 2 {
		slices.Reverse(found)
	}
	return found[0], nil
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func (p Prometheus) query(ctx context.Context, data Data, expr string, instant bool) ([]Series, error) {
	expr, err := data.Variables.Fill(expr)
	if err != nil {
		return nil, err
	}
	path, parameters := "query_range", url.Values{"query": {expr}, "start": {unix(data.From)}, "end": {unix(data.To)}, "step": {strconv.Itoa(int(data.Step.Seconds()))}}
	if instant {
		path, parameters = "query", url.Values{"query": {expr}, "time": {unix(data.To)}}
	}
	type value [2]any
	var answer struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  value             `json:"value"`
			Values []value           `json:"values"`
		} `json:"result"`
	}
	if err := p.Get(ctx, path, parameters, &answer); err != nil {
		return nil, err
	}
	var found []Series
	for _, result := range answer.Result {
		s := Series{Labels: result.Metric}
		for _, v := range append(result.Values, result.Value) {
			moment, isTime := v[0].(float64)
			number, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64)
			if isTime && err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
				s.Points = append(s.Points, Point{moment, number})
			}
		}
		if len(s.Points) > 0 {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b Series) int { return cmp.Compare(a.key(), b.key()) })
	return found, nil
}

// key tells series of a query apart.
func (s Series) key() string {
	var b strings.Builder
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		fmt.Fprintf(&b, "%s=%q,", label, s.Labels[label])
	}
	return b.String()
}
